"""A partition in numbers: what every client would hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgeflock.common.datasets.kit.base import Dataset
from edgeflock.common.partitions.kit.assign import assign, public_split
from edgeflock.common.partitions.kit.coverage import Coverage, coverage


@dataclass(frozen=True)
class ShardRow:
    """One client's shard."""

    client: int
    samples: int
    classes: tuple[int, ...]  # samples per label


@dataclass(frozen=True)
class PartitionRows:
    """A partition in numbers."""

    dataset: str
    partition: str
    seed: int
    pool: int  # samples to be shared out
    unused: int  # held by nobody
    shared: int  # held by more than one client
    rows: tuple[ShardRow, ...]
    coverage: Coverage

    @property
    def classes(self) -> int:
        return len(self.rows[0].classes)

    @property
    def title(self) -> str:
        extra = f", {self.unused} unused" if self.unused else ""
        extra += f", {self.shared} held more than once" if self.shared else ""
        extra += f"; {self.coverage}" if self.coverage.is_told(self.partition) else ""
        clients = f"{len(self.rows)} client{'s' if len(self.rows) > 1 else ''}"
        return f"{self.dataset}, {self.partition}, {clients}, seed {self.seed}: {self.pool} samples{extra}"


def describe(
    dataset: Dataset,
    *,
    partition: str,
    clients: int,
    seed: int,
    samples_per_client: int = 0,
    public_fraction: float = 0.0,
    public_from_shards: float = 0.0,
) -> PartitionRows:
    """Return what every client would hold, of what a server leaves that keeps a share for itself."""
    shards = assign(
        dataset,
        partition=partition,
        seed=seed,
        shards=clients,
        samples_per_client=samples_per_client,
        public_fraction=public_fraction,
        public_from_shards=public_from_shards,
    )
    pool, _ = public_split(len(dataset.train), public_fraction or public_from_shards, seed)
    labels, holders = dataset.train.y, np.zeros(len(dataset.train), np.int64)
    rows = []
    for client, shard in enumerate(shards):
        holders[shard] += 1
        counts = np.bincount(labels[shard], minlength=dataset.classes) if dataset.classes else ()
        rows.append(ShardRow(client, len(shard), tuple(int(count) for count in counts)))
    unused, shared = int((holders[pool] == 0).sum()), int((holders > 1).sum())
    covered = coverage(labels, shards) if dataset.classes else Coverage(0)
    return PartitionRows(dataset.name, partition, seed, len(pool), unused, shared, tuple(rows), covered)
