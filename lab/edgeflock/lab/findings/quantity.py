"""Figures as people read them: a mean with its deviation or interval, in a unit that fits. Pure."""

from __future__ import annotations

from edgeflock.common.command.units import decimals, signed
from edgeflock.lab.findings.paired import Difference, Spread

DASH = "-"
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_UNITS = {"bytes": "B", "flops": "", "energy_j": "J"}


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


def _scale(name: str, value: float) -> tuple[float, str, int]:
    """Return what to divide by, the unit behind the number, and how many decimals are shown."""
    if name.endswith("accuracy"):
        return 1.0, "", 4
    if name == "seconds":
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
