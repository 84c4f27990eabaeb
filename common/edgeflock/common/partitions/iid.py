"""iid: a shuffled deal in equal parts."""

from __future__ import annotations

import numpy as np

from edgeflock.common.partitions.kit.base import Pool, Scheme, Shards


def split(pool: Pool, _: float) -> Shards:
    return list(np.array_split(pool.random("iid").permutation(len(pool)), pool.shards))


SCHEME = Scheme("iid", "a shuffled deal in equal parts", split)
