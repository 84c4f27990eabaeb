"""dirichlet-draws:ALPHA: every client draws from the whole pool with label weights of its own.

Plato's sampler, which FedTrip's experiments used: every client has weights q ~ Dir(ALPHA) over the classes;
its samples are drawn one after the other, without replacement, each with the weight of its label.
Two clients may hold the same sample.
"""

from __future__ import annotations

import numpy as np

from edgeflock.common.command.ranges import above
from edgeflock.common.errors import BadValue
from edgeflock.common.partitions.kit.base import Indices, Number, Pool, Scheme, Shards, shares

SMALLEST = np.finfo(np.float64).tiny  # a class of weight 0 is drawn only when nothing else is left


def split(pool: Pool, alpha: float) -> Shards:
    size = pool.samples or len(pool) // pool.shards
    if size > len(pool):
        raise BadValue("samples per client", size, f"at most the {len(pool)} that there are")
    position = np.searchsorted(np.array(pool.classes), pool.labels)
    return [_draw(pool, alpha, index, size, position) for index in range(pool.shards)]


def _draw(pool: Pool, alpha: float, index: int, size: int, position: Indices) -> Indices:
    random = pool.random("dirichlet-draws", index)
    weights = np.maximum(shares(random, alpha, len(pool.classes)), SMALLEST)
    # The `size` largest of log weight + Gumbel noise are a weighted draw without replacement.
    keys = np.log(weights)[position] + random.gumbel(size=len(pool))
    return np.argpartition(-keys, size - 1)[:size] if size else np.zeros(0, np.int64)


SCHEME = Scheme(
    "dirichlet-draws",
    "every client draws from all samples with label weights of its own from Dir(ALPHA); clients may overlap",
    split,
    Number("ALPHA", whole=False, range=above(0)),
    sized=True,
)
