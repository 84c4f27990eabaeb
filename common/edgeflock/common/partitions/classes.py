"""classes:K: every client holds K classes; a class is cut equally among its holders.

The classes are dealt in turn, so that each has as many holders as any other, give or take one.
With fewer than classes/K clients some classes have no holder, and their samples are not used.
"""

from __future__ import annotations

import numpy as np

from edgeflock.common.command.ranges import at_least
from edgeflock.common.errors import BadValue
from edgeflock.common.partitions.kit.base import Number, Pool, Scheme, Shards


def split(pool: Pool, each: float) -> Shards:
    count, number = len(pool.classes), int(each)
    if number > count:
        raise BadValue("classes per client", number, f"at most the {count} classes that there are")
    random = pool.random("classes")
    order = random.permutation(np.array(pool.classes))
    seats = random.permutation(pool.shards)
    holders: dict[int, list[int]] = {label: [] for label in pool.classes}
    for place, client in enumerate(seats):
        for step in range(number):
            holders[int(order[(place * number + step) % count])].append(int(client))
    return _deal(pool, holders)


def _deal(pool: Pool, holders: dict[int, list[int]]) -> Shards:
    shards: list[Shards] = [[np.zeros(0, np.int64)] for _ in range(pool.shards)]
    for label, clients in holders.items():
        samples = pool.random("classes", label).permutation(pool.of_class(label))
        if clients:
            for client, piece in zip(clients, np.array_split(samples, len(clients)), strict=True):
                shards[client].append(piece)
    return [np.concatenate(pieces) for pieces in shards]


SCHEME = Scheme(
    "classes",
    "K classes per client, each class cut equally among its holders",
    split,
    Number("K", whole=True, range=at_least(1, "a whole number")),
)
