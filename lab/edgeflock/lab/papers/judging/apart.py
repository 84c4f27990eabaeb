"""Two rows held against each other over the seeds that both have, with an interval. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from edgeflock.common.command.units import decimals, signed
from edgeflock.lab.findings.bounded import Bounded, Middle, exactly, middle, ratios
from edgeflock.lab.findings.paired import difference
from edgeflock.lab.papers.judging.sheet import BySeed

_FEWEST = 3  # pairs that a median is worth something of: all of them on one side is no accident of two


@dataclass(frozen=True)
class Apart:
    """How far two rows are apart: a ratio, of which 1 is nothing, or a difference, of which 0 is."""

    value: Bounded
    low: float
    high: float
    count: int
    nothing: float
    interval: bool  # False: too few pairs for one
    level: bool = False  # one row alone: a number, no difference

    @property
    def side(self) -> int:
        """1 if the first has more, -1 if it has less, 0 if it has the same, or if that is not known."""
        return (self.value.low > self.nothing) - (self.value.high < self.nothing)

    @property
    def sure(self) -> int:
        """The same where the interval says so too, else 0."""
        if not self.interval:
            return 0
        return (self.low > self.nothing) - (self.high < self.nothing)

    def holds(self, value: float) -> bool:
        """Whether the interval holds a value."""
        return self.interval and self.low <= value <= self.high

    def __str__(self) -> str:
        shown = _ratio if self.level or self.nothing else _difference
        value = bounded_text(self.value, shown)
        return f"{value} {interval_text(self.low, self.high, shown)}" if self.interval else value


def _ratio(value: float) -> str:
    return decimals(value, 2)


def _difference(value: float) -> str:
    return signed(value, 2)


def interval_text(low: float, high: float, shown: Callable[[float], str]) -> str:
    """Return an interval for people; an open end is said so."""
    return f"[{shown(low)}, {'...' if math.isinf(high) else shown(high)}]"


def bounded_text(value: Bounded, shown: Callable[[float], str]) -> str:
    """Return a number for people, or what it is more or less than."""
    if value.exact:
        return shown(value.low)
    if math.isinf(value.high):
        return f"> {shown(value.low)}" if value.low > 0 else "unknown"
    return f"< {shown(value.high)}" if value.low == 0 else f"{shown(value.low)} ... {shown(value.high)}"


def apart(mine: BySeed, other: BySeed, *, cost: bool) -> Apart | None:
    """Return how far one row is from another, None if no seed is in both: a cost by its median ratio, else
    by the mean difference."""
    return _by_ratio(ratios(mine, other)) if cost else _by_difference(mine, other)


def _by_ratio(found: Middle | None) -> Apart | None:
    if found is None:
        return None
    return Apart(found.value, found.low, found.high, found.count, 1.0, found.count >= _FEWEST)


def _by_difference(mine: BySeed, other: BySeed) -> Apart | None:
    first, second = ({seed: one.low for seed, one in row.items() if one.exact} for row in (mine, other))
    found = difference(first, second)
    if found is None:
        return None
    low, high = (found.mean if end is None else end for end in (found.low, found.high))
    return Apart(exactly(found.mean), low, high, found.count, 0.0, found.low is not None)


def mean_of(rows: Sequence[BySeed]) -> dict[str, Bounded]:
    """Return the mean of several rows, of every seed that all of them have."""
    seeds = set[str].intersection(*(set(row) for row in rows)) if rows else set[str]()
    known = {seed: [row[seed] for row in rows] for seed in sorted(seeds)}
    return {
        seed: Bounded(fmean(one.low for one in found), fmean(one.high for one in found))
        for seed, found in known.items()
    }


def level_of(row: BySeed, *, cost: bool) -> Apart | None:
    """Return where a row stands: the median of a cost, else the mean, with its interval."""
    if not cost:
        mean = _by_difference(row, dict.fromkeys(row, exactly(0.0)))
        return None if mean is None else replace(mean, level=True)
    found = middle(list(row.values()))
    return (
        None
        if found is None
        else Apart(found.value, found.low, found.high, found.count, 0.0, found.count >= _FEWEST, level=True)
    )


def worth(rows: Mapping[str, BySeed], *, cost: bool, less: bool) -> list[str]:
    """Return the rows that have numbers, the best first: by the median of a cost, else by the mean."""
    levels = {name: level_of(row, cost=cost) for name, row in rows.items()}
    known = {name: level.value for name, level in levels.items() if level is not None}
    return sorted(known, key=lambda name: known[name].low if less else -known[name].high)
