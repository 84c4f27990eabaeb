"""dirichlet:ALPHA: every class is cut among the clients by weights from Dir(ALPHA); disjoint."""

from __future__ import annotations

import numpy as np

from edgeflock.common.command.ranges import above
from edgeflock.common.partitions.kit.base import Number, Pool, Scheme, Shards, cut_by, shares


def split(pool: Pool, alpha: float) -> Shards:
    pieces: list[Shards] = []
    for label in pool.classes:
        random = pool.random("dirichlet", label)
        samples = random.permutation(pool.of_class(label))
        pieces.append(cut_by(samples, shares(random, alpha, pool.shards)))
    return [np.concatenate(mine) for mine in zip(*pieces, strict=True)]


SCHEME = Scheme(
    "dirichlet",
    "every class cut among the clients by weights from Dir(ALPHA), disjoint",
    split,
    Number("ALPHA", whole=False, range=above(0)),
)
