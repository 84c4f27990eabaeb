"""Numbers that are known, or only to be more or less than something: medians, ratios, exact intervals. Pure.

A run that ends before its target tells that its time is more than what it had: that is a bound, and counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median as middle_of

ENOUGH = 0.95  # an interval is no wider than what covers so much


@dataclass(frozen=True)
class Bounded:
    """A number that is not below `low` and not above `high`; known where they are the same."""

    low: float
    high: float

    @property
    def exact(self) -> bool:
        return self.low == self.high

    @property
    def value(self) -> float | None:
        """The number itself, None where it is not known."""
        return self.low if self.exact else None


@dataclass(frozen=True)
class Middle:
    """The median of several numbers, and the interval in which the median of all such numbers lies."""

    value: Bounded
    low: float
    high: float  # infinite where too many are only known to be more
    level: float  # how often such an interval is right; 0 of one number
    count: int
    missed: int  # of these not known themselves


def exactly(value: float) -> Bounded:
    return Bounded(value, value)


def more_than(limit: float) -> Bounded:
    return Bounded(limit, math.inf)


def median(values: Sequence[Bounded]) -> Bounded:
    """Return what the median is, or what it is not below and not above."""
    return Bounded(middle_of(value.low for value in values), middle_of(value.high for value in values))


def ratio(mine: Bounded, other: Bounded) -> Bounded:
    """Return mine over other, of numbers that are not negative; of two unknown ones it can be anything."""
    return Bounded(_over(mine.low, other.high, 0.0), _over(mine.high, other.low, math.inf))


def _over(mine: float, other: float, otherwise: float) -> float:
    if other == 0 or (math.isinf(mine) and math.isinf(other)):
        return otherwise
    return mine / other


def middle(values: Sequence[Bounded]) -> Middle | None:
    """Return the median with its exact interval, of the signs alone: no shape is assumed.

    Both ends are values of the sample, as far inside as ENOUGH allows; where there are too few values for
    that they are the least and the largest, and the level says what that is worth. None without a value.
    """
    if not values:
        return None
    lows, highs = sorted(value.low for value in values), sorted(value.high for value in values)
    inside = _inside(len(values))
    return Middle(
        median(values),
        lows[inside],
        highs[-1 - inside],
        _level(len(values), inside),
        len(values),
        sum(not value.exact for value in values),
    )


def ratios(mine: Mapping[str, Bounded], other: Mapping[str, Bounded]) -> Middle | None:
    """Return the median ratio over the seeds that both have; None if there is none."""
    return middle([ratio(value, other[seed]) for seed, value in mine.items() if seed in other])


def _inside(count: int) -> int:
    """Return how many values an interval that covers enough can leave out on either side."""
    return max((cut for cut in range((count + 1) // 2) if _level(count, cut) >= ENOUGH), default=0)


def _level(count: int, inside: int) -> float:
    """Return how often the median lies between these values: 1 - 2 P(Binomial(count, 1/2) <= inside)."""
    return 1 - 2 * sum(math.comb(count, number) for number in range(inside + 1)) * 0.5**count
