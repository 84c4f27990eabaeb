"""Many clients: up to how many each is shown, and of more who stands out and how they spread. Pure.

What people read, on a page, in a terminal or in a picture, is bounded here, and says what it leaves out.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

EVERYBODY = 50  # up to so many are shown one by one
STEPS = 200  # of a picture of more
NAMED = 4  # in a sentence about more
KINDS = 12  # of what differs from one to the next, as versions do
STANDING_OUT = 3  # by each of the things that are looked at


def is_crowd(members: Collection[object]) -> bool:
    """Whether there are more than can be shown one by one."""
    return len(members) > EVERYBODY


def some(names: Sequence[str], most: int = NAMED) -> str:
    """Name so many at most, and count the others."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def everybody(names: Sequence[str]) -> str:
    """Name all of them, of a crowd a few."""
    return some(names) if is_crowd(names) else ", ".join(names)


def each_with(words: Mapping[str, object]) -> str:
    """Name all of them with what is said of each, as `a (late)`; of a crowd count who has the same."""
    if is_crowd(words):
        return ", ".join(f"{times:,} {word}" for word, times in by_number(map(str, words.values())))
    return ", ".join(f"{name} ({word})" for name, word in words.items())


def by_number(words: Iterable[str]) -> list[tuple[str, int]]:
    """Return how often each word was said, the most frequent first; the rare ones of many together."""
    found = sorted(Counter(words).items(), key=lambda one: (-one[1], one[0]))
    if (rare := found[KINDS:]) and len(rare) > 1:
        return [*found[:KINDS], (f"{len(rare):,} others", sum(times for _, times in rare))]
    return found


@dataclass(frozen=True)
class Quantiles:
    """How the values of a crowd lie."""

    known: int  # of how many there is a value
    least: float
    tenth: float  # a tenth of them is not above
    median: float
    ninetieth: float
    most: float
    mean: float

    @property
    def places(self) -> tuple[float, ...]:
        """Return what they are, ascending."""
        return self.least, self.tenth, self.median, self.ninetieth, self.most


def quantiles(values: Iterable[float | None]) -> Quantiles | None:
    """Return how these lie; None if nothing is known of anybody."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return None
    last = len(found) - 1
    least, tenth, median, ninetieth, most = (found[round(share * last)] for share in (0, 0.1, 0.5, 0.9, 1))
    return Quantiles(len(found), least, tenth, median, ninetieth, most, sum(found) / len(found))


def standing_out(
    members: Iterable[T], by: Mapping[str, Callable[[T], float | None]], each: int = STANDING_OUT
) -> list[tuple[T, list[str]]]:
    """Return who has most of something, with the names of what; first those of the first thing.

    Nobody stands out by what is not known, or is nothing.
    """
    everyone = list(members)
    found: dict[int, list[str]] = {}
    for name, value_of in by.items():
        known = [(value, place) for place, one in enumerate(everyone) if (value := value_of(one))]
        for _, place in heapq.nsmallest(each, known, key=lambda one: (-one[0], one[1])):
            found.setdefault(place, []).append(name)
    return [(everyone[place], names) for place, names in found.items()]
