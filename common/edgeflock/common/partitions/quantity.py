"""quantity:ALPHA: the same label distribution everywhere, sizes from Dir(ALPHA)."""

from __future__ import annotations

from edgeflock.common.command.ranges import above
from edgeflock.common.partitions.kit.base import Number, Pool, Scheme, Shards, cut_by, shares


def split(pool: Pool, alpha: float) -> Shards:
    random = pool.random("quantity")
    return cut_by(random.permutation(len(pool)), shares(random, alpha, pool.shards))


SCHEME = Scheme(
    "quantity",
    "i.i.d. shards whose sizes follow Dir(ALPHA)",
    split,
    Number("ALPHA", whole=False, range=above(0)),
)
