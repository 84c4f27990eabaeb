"""Numbers as people read them: a unit for a whole axis, or for a single number, and counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

UNKNOWN = "\N{EN DASH}"
_Steps = tuple[tuple[float, str], ...]
_BYTES: _Steps = ((1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"))
_SECONDS: _Steps = ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h"))
_JOULES: _Steps = ((1e-3, "mJ"), (1.0, "J"), (1e3, "kJ"), (1e6, "MJ"))
_COUNTS: _Steps = ((1.0, ""), (1e3, "thousand"), (1e6, "million"), (1e9, "billion"))
_FLOPS: _Steps = ((1.0, "FLOP"), (1e6, "MFLOP"), (1e9, "GFLOP"), (1e12, "TFLOP"), (1e15, "PFLOP"))
_STEPS: dict[str, _Steps] = {
    "bytes": _BYTES,
    "seconds": _SECONDS,
    "energy": _JOULES,
    "count": _COUNTS,
    "flops": _FLOPS,
    "celsius": ((1.0, "°C"),),
    "watts": ((1.0, "W"),),
}
_ROUNDS_UP = 0.9995  # of the next unit: it would read as 1000 of the smaller one
_NOISE = 1e-12  # what is left of a difference between equal numbers
_FROM = 2.0  # so many of a unit must be there before it is used for an axis


@dataclass(frozen=True)
class Scale:
    """What numbers are divided by, and the unit that they have then."""

    divisor: float = 1.0
    unit: str = ""

    def of(self, values: Iterable[float]) -> list[float]:
        return [value / self.divisor for value in values]

    def label(self, what: str) -> str:
        """Return the name of an axis."""
        return f"{what} ({self.unit})" if self.unit else what


def scale(quantity: str, values: Iterable[float]) -> Scale:
    """Return the scale of an axis that shows these values of bytes, seconds, energy, count or flops."""
    largest = max(map(abs, values), default=0.0)
    fitting = [step for step in _STEPS[quantity] if largest >= _FROM * step[0]]
    return Scale(*(fitting[-1] if fitting else _smallest(quantity, largest)))


def _smallest(quantity: str, largest: float) -> tuple[float, str]:
    """Nothing at all is shown in the plain unit, very little in the smallest one."""
    return next(step for step in _STEPS[quantity] if step[0] == 1.0 or largest)


def amount(quantity: str, value: float | None) -> str:
    """Return one number with three digits or more and its unit; a dash if it is not known."""
    if value is None:
        return UNKNOWN
    steps = _STEPS[quantity]
    fitting = [step for step in steps if abs(value) >= _ROUNDS_UP * step[0]]
    divisor, unit = fitting[-1] if fitting else _smallest(quantity, value)
    if quantity == "count" and abs(value) < 1e6:
        return f"{value:,.0f}"
    shown = value / divisor
    digits = 0 if shown == int(shown) or abs(shown) >= 100 else 1 if abs(shown) >= 10 else 2
    return f"{decimals(shown, digits)} {unit}".rstrip()


def counted(count: int, what: str) -> str:
    """Return `1 cell`, `2 cells`, `1,000 cells`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def decimal(value: float | None) -> str:
    """Return an accuracy or a loss."""
    return UNKNOWN if value is None else f"{value:.4f}"


def decimals(value: float, digits: int, sign: str = "") -> str:
    """Return a number with so many decimals; one that would read as nothing has its first two digits."""
    value = 0.0 if abs(value) < _NOISE else value  # nor is there a nothing below zero
    text = f"{value:{sign}.{digits}f}"
    return f"{value:{sign}.2g}" if value and not float(text) else text


def signed(value: float, digits: int) -> str:
    """Return the same with its sign."""
    return decimals(value, digits, "+")


def plain(value: float) -> str:
    """Return a number of unknown size with at most five digits."""
    return f"{value:.5g}"


def spans(count: int, at_most: int) -> list[tuple[int, int]]:
    """Cut 0..count into at most so many spans of equal length, each [low, high); the last may be shorter."""
    length = max(1, -(-count // at_most))
    return [(low, min(count, low + length)) for low in range(0, count, length)]


def means(values: Sequence[float], cuts: Iterable[tuple[int, int]]) -> list[float]:
    """Return the mean of every span."""
    return [sum(values[low:high]) / (high - low) for low, high in cuts]


def size(count: float) -> str:
    """Return bytes with one decimal, so that they stand below each other."""
    value, unit = float(count), 0
    while value >= 999.95 and unit < len(_BYTES) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_BYTES[unit][1]}"
