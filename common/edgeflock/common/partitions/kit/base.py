"""What a partition scheme is: a name, perhaps a number, and a function from a pool of labels to shards."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.common import seeds
from edgeflock.common.command.ranges import Range
from edgeflock.common.errors import BadData

Indices = NDArray[np.int64]
Labels = NDArray[Any]
Shards = list[Indices]
Value = float | tuple[float, ...]  # what stands after the colon


@dataclass(frozen=True, eq=False)
class Pool:
    """The samples to be shared out."""

    labels: Labels
    groups: Labels | None
    shards: int
    seed: int
    samples: int  # per client; 0: as many as the scheme gives

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def classes(self) -> list[int]:
        """The labels that occur, ascending. Raises BadData if labels are no classes."""
        if self.labels.ndim != 1 or self.labels.dtype.kind not in "iu":
            found = f"{self.labels.dtype} {self.labels.shape[1:]}"
            raise BadData(
                f"labels are {found} for each sample and no classes, by which this partition cuts: "
                "iid, quantity:ALPHA and sizes:N,... cut without them"
            )
        return [int(label) for label in np.unique(self.labels)]

    def of_class(self, label: int) -> Indices:
        """Return the samples of a class, in order."""
        return np.flatnonzero(self.labels == label)

    def random(self, *words: str | int) -> np.random.Generator:
        """Return a generator for one purpose of this partition."""
        return seeds.numpy_generator(self.seed, "partition", *words)


@dataclass(frozen=True)
class Number:
    """The number that stands after the colon, or several with commas."""

    name: str  # as in the usage line: ALPHA
    whole: bool
    range: Range
    many: bool = False

    def read(self, text: str) -> Value:
        """Return what a text says. Raises ValueError."""
        return tuple(map(self._one, text.split(","))) if self.many else self._one(text)

    def _one(self, text: str) -> float:
        value = int(text) if self.whole else float(text)
        if not (self.whole or math.isfinite(value)) or not self.range.accepts(value):
            raise ValueError
        return value


@dataclass(frozen=True)
class Scheme:
    """One way to share out a pool. `split` returns one array of positions per shard, in any order."""

    name: str
    summary: str
    split: Callable[[Pool, Any], Shards]  # the second is the Value, as its number says
    number: Number | None = None
    sized: bool = False  # `split` itself obeys the samples per client
    leaves_out: bool = False  # by chance a class may be held by nobody

    @property
    def usage(self) -> str:
        return self.called(self.name)

    def called(self, name: str) -> str:
        """Return how it is written, under the name that finds it."""
        return f"{name}:{self.number.name}" if self.number else name


def shares(random: np.random.Generator, alpha: float, parts: int) -> NDArray[np.float64]:
    """Draw weights from Dir(alpha); where alpha is too small for floats, one part has all."""
    drawn = random.dirichlet(np.full(parts, alpha))
    if np.isfinite(drawn).all() and drawn.sum() > 0:
        return drawn
    single = np.zeros(parts)
    single[random.integers(parts)] = 1.0
    return single


def cut_by(samples: Indices, weights: NDArray[np.float64]) -> Shards:
    """Cut an array into consecutive pieces in proportion to the weights; nothing is lost."""
    ends = np.floor(np.cumsum(weights)[:-1] / weights.sum() * len(samples) + 0.5).astype(np.int64)
    return list(np.split(samples, np.minimum(ends, len(samples))))
