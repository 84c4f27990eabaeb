"""dirichlet-equal:ALPHA: shards of equal size, each with label weights of its own, no sample held twice.

Hsu, Qi, Brown 2019 (arXiv:1909.06335): client after client, here in an order of chance, draws the labels of
its samples by its weights from Dir(ALPHA) and takes samples of these labels; where a class is used up its
weight goes to the others. ALPHA is that of every class, as in the other schemes; Hsu et al. write ALPHA p
with the prior p, so that theirs is ALPHA times the number of classes.
Only uniform numbers are compared with sums of weights, so that every machine draws the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeflock.common.command.ranges import above
from edgeflock.common.errors import BadValue
from edgeflock.common.partitions.kit.base import Indices, Number, Pool, Scheme, Shards, shares

SMALLEST = np.finfo(np.float64).tiny  # a class of weight 0 is drawn only when nothing else is left


def split(pool: Pool, alpha: float) -> Shards:
    fair = len(pool) // pool.shards
    if pool.samples > fair:
        allowed = f"at most {fair}: {len(pool)} samples for {pool.shards} clients, none of them twice"
        raise BadValue("samples per client", pool.samples, allowed)
    stock = [
        pool.random("dirichlet-equal", "class", label).permutation(pool.of_class(label))
        for label in pool.classes
    ]
    used = np.zeros(len(stock), np.int64)
    shards: Shards = [np.zeros(0, np.int64)] * pool.shards
    for client in pool.random("dirichlet-equal").permutation(pool.shards):
        random = pool.random("dirichlet-equal", "client", int(client))
        weights = np.maximum(shares(random, alpha, len(stock)), SMALLEST)
        left = np.array([len(samples) for samples in stock]) - used
        counts = _counts(random, weights, left, pool.samples or fair)
        parts = [
            samples[first : first + count] for samples, first, count in zip(stock, used, counts, strict=True)
        ]
        shards[client] = np.concatenate(parts)
        used += counts
    return shards


def _counts(random: np.random.Generator, weights: NDArray[np.float64], left: Indices, size: int) -> Indices:
    """Draw how many samples a client takes of each class, of none more than are left."""
    counts = np.zeros(len(left), np.int64)
    while (missing := size - int(counts.sum())) > 0:
        sums = np.cumsum(np.where(counts < left, weights, 0.0))
        drawn = np.searchsorted(sums, random.random(missing) * sums[-1], side="right")
        last = np.flatnonzero(counts < left)[-1]  # a product may be rounded up to the whole sum
        counts = np.minimum(counts + np.bincount(np.minimum(drawn, last), minlength=len(left)), left)
    return counts


SCHEME = Scheme(
    "dirichlet-equal",
    "shards of equal size with label weights of their own from Dir(ALPHA), disjoint",
    split,
    Number("ALPHA", whole=False, range=above(0)),
    sized=True,
)
