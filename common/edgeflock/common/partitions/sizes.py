"""sizes:N,N,...: i.i.d. shards of the sizes that are written, one for each client; the rest is not used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeflock.common.command.ranges import at_least
from edgeflock.common.errors import BadValue
from edgeflock.common.partitions.kit.base import Number, Pool, Scheme, Shards


def split(pool: Pool, sizes: Sequence[int]) -> Shards:
    if sum(sizes) > len(pool):
        allowed = f"sizes that add up to at most the {len(pool)} samples that there are, not {sum(sizes)}"
        raise BadValue("partition", f"sizes:{','.join(map(str, sizes))}", allowed)
    order = pool.random("sizes").permutation(len(pool))
    return list(np.split(order, np.cumsum(sizes))[:-1])


SCHEME = Scheme(
    "sizes",
    "i.i.d. shards of these sizes, one for each client",
    split,
    Number("N,N,...", whole=True, range=at_least(1, "whole numbers"), many=True),
)
