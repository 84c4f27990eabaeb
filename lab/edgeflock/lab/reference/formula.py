"""Formulas: sums of products of symbols, made by computing with symbols in place of numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

Powers = tuple[tuple[str, int], ...]  # of a product, by symbol, short names first; no power is 0


@dataclass(frozen=True)
class Formula:
    """A polynomial with numbers before its products; a product may be divided by."""

    terms: Mapping[Powers, float] = field(default_factory=dict)

    def __add__(self, other: Formula | float) -> Formula:
        terms = dict(self.terms)
        for powers, number in _formula(other).terms.items():
            terms[powers] = terms.get(powers, 0.0) + number
        return Formula({powers: number for powers, number in terms.items() if number})

    def __mul__(self, other: Formula | float) -> Formula:
        found = Formula()
        for powers, number in self.terms.items():
            for more, factor in _formula(other).terms.items():
                found += Formula({_joined(powers, more, 1): number * factor})
        return found

    def __truediv__(self, other: Formula | float) -> Formula:
        """Divide by a number or a single product; raises ValueError for a sum."""
        ((powers, number),) = _formula(other).terms.items()
        return Formula({_joined(mine, powers, -1): factor / number for mine, factor in self.terms.items()})

    def __sub__(self, other: Formula | float) -> Formula:
        return self + _formula(other) * -1.0

    __radd__, __rmul__ = __add__, __mul__

    def at(self, values: Mapping[str, float]) -> float:
        """Return the number that it is with these values of its symbols."""
        return sum(
            number * prod(values[name] ** power for name, power in powers)
            for powers, number in self.terms.items()
        )

    def __str__(self) -> str:
        return " + ".join(_term(number, powers) for powers, number in self.terms.items()) or "0"


def symbol(name: str) -> Formula:
    return Formula({((name, 1),): 1.0})


def _formula(value: Formula | float) -> Formula:
    if isinstance(value, Formula):
        return value
    return Formula({(): float(value)} if value else {})


def _joined(one: Powers, other: Powers, sign: int) -> Powers:
    powers = dict(one)
    for name, power in other:
        powers[name] = powers.get(name, 0) + sign * power
    left = ((name, power) for name, power in powers.items() if power)
    return tuple(sorted(left, key=lambda part: (len(part[0]), part[0])))


def _term(number: float, powers: Powers) -> str:
    parts = [name if power == 1 else f"{name}^{power}" for name, power in powers]
    return " ".join([*([f"{number:g}"] if number != 1 or not parts else []), *parts])
