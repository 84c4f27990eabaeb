"""Partitions: who holds which samples of a named data set, as a function of labels and seed alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from edgeflock.common import seeds
from edgeflock.common.datasets.kit.base import Dataset, Part
from edgeflock.common.errors import BadValue
from edgeflock.common.foreign import foreign
from edgeflock.common.partitions.kit import registry
from edgeflock.common.partitions.kit.base import Indices, Labels, Pool, Scheme, Shards, Value


@dataclass(frozen=True)
class Partition:
    """A scheme with its number or numbers; `str()` gives the text that `parse` understands."""

    name: str  # the scheme's, or where it is a plug-in's the one that finds it
    scheme: Scheme
    value: Value = 0.0

    def __str__(self) -> str:
        value = ",".join(map(str, self.value)) if isinstance(self.value, tuple) else str(self.value)
        return f"{self.name}:{value}" if self.scheme.number else self.name

    def check(self, shards: int) -> None:
        """Raise BadValue if it is one for another number of clients."""
        if isinstance(self.value, tuple) and len(self.value) != shards:
            allowed = f"as many sizes as there are clients, {shards}, here are {len(self.value)}"
            raise BadValue("partition", str(self), allowed)

    def split(
        self,
        labels: Labels,
        groups: Labels | None,
        shards: int,
        seed: int,
        samples_per_client: int = 0,
    ) -> Shards:
        """Return the samples of every client, ascending. A shard may be empty where the scheme makes it so.

        With `samples_per_client` a larger shard is cut down to that many; draws take exactly that many.
        """
        if shards < 1:
            raise BadValue("clients", shards, "a whole number >= 1")
        self.check(shards)
        if samples_per_client < 0:
            raise BadValue("samples per client", samples_per_client, "a whole number >= 0 (0: all)")
        if len(labels) == 0:
            return [np.zeros(0, np.int64)] * shards
        pool = Pool(labels, groups, shards, seed, samples_per_client)
        cut = self._cut(pool)
        if samples_per_client and not self.scheme.sized:
            cut = [_limited(pool, index, shard) for index, shard in enumerate(cut)]
        return [np.sort(shard).astype(np.int64) for shard in cut]

    def _cut(self, pool: Pool) -> Shards:
        if self.name in registry.schemes():
            return self.scheme.split(pool, self.value)
        with foreign(f"the partition {self}"):
            cut = [np.asarray(shard) for shard in self.scheme.split(pool, self.value)]
            told = f"it makes {len(cut)} arrays, wanted are {pool.shards} of whole numbers below {len(pool)}"
            sound = [shard.ndim == 1 and (not len(shard) or _rows(shard, len(pool))) for shard in cut]
        if len(cut) != pool.shards or not all(sound):
            raise BadValue("partition", str(self), f"a plug-in that shares out all samples ({told})")
        return cut


def _rows(shard: Indices, samples: int) -> bool:
    return shard.dtype.kind in "iu" and int(shard.min()) >= 0 and int(shard.max()) < samples


def parse(text: str) -> Partition:
    """Return the partition that the operator names, as `dirichlet:0.5`. Raises UnknownName or BadValue."""
    name, scheme, number = registry.scheme(text)
    usage = scheme.called(name)
    if scheme.number is None:
        if text != name:
            raise BadValue("partition", text, usage)
        return Partition(name, scheme)
    words = f"{usage} with {scheme.number.range.words}"
    try:
        return Partition(name, scheme, scheme.number.read(number))
    except ValueError:
        raise BadValue("partition", text, words) from None


def public_split(samples: int, fraction: float, seed: int) -> tuple[Indices, Indices]:
    """Return the clients' samples and the server's public ones, both ascending (METHODS 2.4 d)."""
    if not 0 <= fraction < 1:
        raise BadValue("public fraction", fraction, "a number in [0, 1)")
    order = seeds.numpy_generator(seed, "partition", "public").permutation(samples)
    public = math.floor(samples * fraction + 0.5)
    return np.sort(order[public:]), np.sort(order[:public])


@lru_cache(maxsize=8)
def assign(
    dataset: Dataset,
    *,
    partition: str,
    seed: int,
    shards: int,
    samples_per_client: int = 0,
    public_fraction: float = 0.0,
    public_from_shards: float = 0.0,
) -> tuple[Indices, ...]:
    """Return every client's samples as rows of the training part; computed once per process.

    No client has any of the server's public samples. `public_from_shards` takes them out of the shards that
    the same run has without them; `public_fraction` holds them back before the cut, which makes other shards.
    """
    train = dataset.train
    pool, _ = public_split(len(train), public_fraction, seed)
    _, taken = public_split(len(train), public_from_shards, seed)
    groups = None if train.groups is None else train.groups[pool]
    split = parse(partition).split(train.y[pool], groups, shards, seed, samples_per_client)
    return tuple(rows[~np.isin(rows, taken)] for rows in (pool[shard] for shard in split))


def cut(
    dataset: Dataset,
    *,
    partition: str,
    seed: int,
    shards: int,
    samples_per_client: int = 0,
    public_fraction: float = 0.0,
    public_from_shards: float = 0.0,
    index: int,
) -> Part:
    """Return one client's shard, ready to train on."""
    if not 0 <= index < shards:
        raise BadValue("index of the shard", index, f"0 to {shards - 1}")
    assigned = assign(
        dataset,
        partition=partition,
        seed=seed,
        shards=shards,
        samples_per_client=samples_per_client,
        public_fraction=public_fraction,
        public_from_shards=public_from_shards,
    )
    return dataset.ready(dataset.train.take(assigned[index]))


def union(
    dataset: Dataset,
    *,
    partition: str,
    seed: int,
    shards: int,
    samples_per_client: int = 0,
    public_fraction: float = 0.0,
    public_from_shards: float = 0.0,
) -> Part:
    """Return all samples that any client holds, each once, ready to train on (the centralized baseline)."""
    assigned = assign(
        dataset,
        partition=partition,
        seed=seed,
        shards=shards,
        samples_per_client=samples_per_client,
        public_fraction=public_fraction,
        public_from_shards=public_from_shards,
    )
    return dataset.ready(dataset.train.take(np.unique(np.concatenate(assigned))))


def public(dataset: Dataset, *, public_fraction: float, seed: int) -> Part:
    """Return the training samples that are held back for the server, ready to train on."""
    return dataset.ready(dataset.train.take(public_split(len(dataset.train), public_fraction, seed)[1]))


def local_test(dataset: Dataset, shard: Part, *, seed: int, index: int) -> Part:
    """Return test samples with the label distribution of a client's shard, ready to evaluate on.

    As many as there can be without taking one twice; classes that the test part lacks are left out. All of
    them where labels are no classes.
    """
    if not dataset.classes:
        return dataset.ready(dataset.test)
    held = np.bincount(shard.y, minlength=dataset.classes).astype(np.float64)
    there = np.bincount(dataset.test.y, minlength=dataset.classes)
    held[there == 0] = 0
    if held.sum() == 0:
        return dataset.ready(dataset.test.take(np.zeros(0, np.int64)))
    parts = held / held.sum()
    total = (there[parts > 0] / parts[parts > 0]).min()
    counts = np.minimum(np.floor(parts * total + 0.5).astype(np.int64), there)
    random = seeds.numpy_generator(seed, "partition", "local-test", index)
    rows = [random.permutation(np.flatnonzero(dataset.test.y == label))[:n] for label, n in enumerate(counts)]
    return dataset.ready(dataset.test.take(np.sort(np.concatenate(rows))))


def _limited(pool: Pool, index: int, shard: Indices) -> Indices:
    if len(shard) <= pool.samples:
        return shard
    chosen: Indices = pool.random("limit", index).choice(shard, pool.samples, replace=False)
    return chosen
