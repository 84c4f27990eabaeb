"""The order of a client's batches: a pure function of run seed, client seat, round and step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeflock.common import seeds

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Order:
    """Epochs of shuffled batches; the last one of an epoch may be short.

    `join_single`: a last batch of one sample is joined to the one before it (models with BatchNorm).
    """

    samples: int
    batch_size: int  # 0: one batch, the whole local set
    seed: int
    seat: int
    join_single: bool = False

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """Where the batches of an epoch begin, and its end: batch k is [cuts[k], cuts[k + 1])."""
        size = self.batch_size or self.samples or 1
        starts = list(range(0, self.samples, size))
        if self.join_single and len(starts) > 1 and self.samples - starts[-1] == 1:
            starts.pop()
        return (*starts, self.samples)

    @property
    def batches(self) -> int:
        """Batches of one epoch."""
        return len(self.cuts) - 1

    def steps(self, *, epochs: int, steps: int | None) -> int:
        """Return K, the local steps of a round; 0 without samples."""
        if not self.samples:
            return 0
        return epochs * self.batches if steps is None else steps

    def epoch(self, round: int, number: int) -> Rows:
        """Return the rows of a round's epoch (from 0) in the order in which they are used."""
        generator = seeds.numpy_generator(self.seed, "order", self.seat, round, number)
        return generator.permutation(self.samples)

    def draw(self, round: int, number: int) -> int:
        """Return the seed of what is random in the samples that a round's epoch (from 0) takes."""
        return seeds.derive(self.seed, "draw", self.seat, round, number)

    def rows(self, round: int, step: int) -> Rows:
        """Return the rows of the batch that a round uses at a step (from 0)."""
        number, place = divmod(step, self.batches)
        if self.batches == 1:  # the whole set: its order means nothing
            return np.arange(self.samples)
        return self.epoch(round, number)[self.cuts[place] : self.cuts[place + 1]]
