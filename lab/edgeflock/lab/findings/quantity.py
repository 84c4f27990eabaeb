"""Figures as people read them: a mean with its deviation or interval, in a unit that fits. Pure."""

from __future__ import annotations

import math

from edgeflock.common.command.units import decimals, signed
from edgeflock.lab.findings.bounded import Bounded, Middle
from edgeflock.lab.findings.paired import Difference, Spread

_UNKNOWN = "unknown"
DASH, UNLIMITED = "-", "\N{INFINITY}"
RATIO, METRIC = "ratio", "metric"
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_TESTED = ("final_", "best_", "last_", "accuracy", "loss")  # what models are judged by
_UNITS = {"bytes": "B", "flops": "", "all_flops": "", "energy_j": "J"}


def quantity(name: str, found: Spread | None) -> str:
    """Return `mean ± deviation unit`, or a dash."""
    if found is None:
        return DASH
    divisor, unit, digits = _scale(name, found.mean)
    text = decimals(found.mean / divisor, digits)
    if found.deviation is not None:
        text += f" ± {decimals(found.deviation / divisor, digits)}"
    return text + unit


def interval(name: str, found: Difference | None) -> str:
    """Return `+mean [low, high] unit`, or a dash."""
    if found is None:
        return DASH
    divisor, unit, digits = _scale(name, max(map(abs, (found.mean, found.low or 0.0, found.high or 0.0))))
    text = signed(found.mean / divisor, digits)
    if found.low is not None and found.high is not None:
        text += f" [{signed(found.low / divisor, digits)}, {signed(found.high / divisor, digits)}]"
    return text + unit


def middle(name: str, found: Middle | None, *, alone: bool = False) -> str:
    """Return `median [low, high] unit`, or a dash; alone: without the interval."""
    if found is None:
        return DASH
    known = [end for end in (found.value.low, found.value.high) if math.isfinite(end)]
    divisor, unit, digits = _scale(name, max(known, default=0.0))
    text = _bounds(found.value, divisor, digits)
    if text == _UNKNOWN:
        return text
    if found.count > 1 and not alone:
        text += f" [{_end(found.low, divisor, digits)}, {_end(found.high, divisor, digits)}]"
    return text + unit


def bounded(name: str, found: Bounded | None) -> str:
    """Return `number unit`, `> number unit` of one that is only known to be more, or a dash."""
    return middle(name, None if found is None else Middle(found, found.low, found.high, 0.0, 1, 0))


def _bounds(found: Bounded, divisor: float, digits: int) -> str:
    low, high = (_end(end, divisor, digits) for end in (found.low, found.high))
    if low == high:
        return low
    if not math.isfinite(found.high):
        return f"> {low}" if found.low else _UNKNOWN
    return f"{low} to {high}" if found.low else f"< {high}"


def _end(value: float, divisor: float, digits: int) -> str:
    return decimals(value / divisor, digits) if math.isfinite(value) else UNLIMITED


def _scale(name: str, value: float) -> tuple[float, str, int]:
    """Return what to divide by, the unit behind the number, and how many decimals are shown."""
    if name.startswith(_TESTED) or "_at_" in name:
        return 1.0, "", 4
    if name == METRIC:
        return 1.0, "", 4 if abs(value) < 1 else 3 if abs(value) < 10 else 1
    if name == RATIO:
        return 1.0, "", 2
    if name in ("seconds", "simulated_s"):
        return 1.0, " s", 2 if abs(value) < 10 else 1
    if name not in _UNITS:
        return 1.0, "", 1
    power = 0
    while abs(value) >= 999.95 * 1000.0**power and power < len(_PREFIXES) - 1:
        power += 1
    unit, divisor = f"{_PREFIXES[power]}{_UNITS[name]}", 1000.0**power
    small = abs(value) < 10 * divisor
    has_parts = power or (name == "energy_j" and small)  # bytes and operations are whole
    digits = (2 if small else 1) if has_parts else 0
    return divisor, f" {unit}" if unit else "", digits
