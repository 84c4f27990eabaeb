"""Coverage: how many of the classes of a data set somebody holds, and whether people are told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from edgeflock.common.partitions.kit.assign import parse
from edgeflock.common.partitions.kit.base import Indices, Labels

NAMED = 12  # of those that nobody holds


@dataclass(frozen=True)
class Coverage:
    """The classes of the training samples, and those of them that nobody holds."""

    classes: int
    missing: tuple[int, ...] = ()

    @property
    def held(self) -> int:
        return self.classes - len(self.missing)

    def __str__(self) -> str:
        share = f"{self.held} of {self.classes} classes are held by somebody"
        named = ", ".join(map(str, self.missing[:NAMED]))
        more = f" and {len(self.missing) - NAMED} more" if len(self.missing) > NAMED else ""
        return f"{share}, nobody holds {named}{more}" if self.missing else share

    def is_told(self, partition: str) -> bool:
        """Whether it is worth a word: some are missing, or might have been."""
        return bool(self.missing) or parse(partition).scheme.leaves_out


def coverage(labels: Labels, shards: Iterable[Indices]) -> Coverage:
    """Return what shards cover, which are rows of these labels."""
    held = np.concatenate([np.zeros(0, np.int64), *(labels[shard] for shard in shards)])
    there = np.unique(labels)
    return Coverage(len(there), tuple(map(int, np.setdiff1d(there, held))))
