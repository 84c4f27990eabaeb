"""fedadm:CASE: the four cases of FedADM's experiments (METHODS 4.3), without any randomness.

1: sample i at client i mod n. 2: label l at client l mod n. 3: every client has everything.
4: the lower half of the labels spread over the first half of the clients, the others by label over the rest.
With more clients than labels L, what 2 and 4 give to client c goes to the least filled of c, c+L, c+2L ...
"""

from __future__ import annotations

import numpy as np

from edgeflock.common.command.ranges import between
from edgeflock.common.partitions.kit.base import Indices, Number, Pool, Scheme, Shards


def split(pool: Pool, case: float) -> Shards:
    everything = np.arange(len(pool))
    if case == 3:
        return [everything] * pool.shards
    clients = {1: _by_position, 2: _by_label, 4: _by_half}[int(case)](pool, everything)
    return [np.flatnonzero(clients == client) for client in range(pool.shards)]


def _by_position(pool: Pool, everything: Indices) -> Indices:
    return everything % pool.shards


def _by_label(pool: Pool, everything: Indices) -> Indices:
    return _spread(pool, _ranks(pool) % pool.shards)


def _by_half(pool: Pool, everything: Indices) -> Indices:
    ranks, width = _ranks(pool), min(pool.shards, _span(pool))
    first = -(-width // 2)
    rest = max(1, width - first)
    lower = ranks < (_span(pool) - 1) / 2
    return _spread(pool, np.where(lower, everything % first, np.minimum(ranks % rest + first, width - 1)))


def _ranks(pool: Pool) -> Indices:
    return pool.labels - pool.classes[0]


def _span(pool: Pool) -> int:
    return pool.classes[-1] - pool.classes[0] + 1


def _spread(pool: Pool, clients: Indices) -> Indices:
    """Deal in turn: that is what always choosing the least filled, the lowest on a tie, comes to."""
    span, spread = _span(pool), clients.copy()
    if pool.shards > span:
        for first in range(span):
            members = np.arange(first, pool.shards, span)
            mine = np.flatnonzero(clients == first)
            spread[mine] = members[np.arange(len(mine)) % len(members)]
    return spread


SCHEME = Scheme(
    "fedadm",
    "FedADM's cases 1 to 4: in turn, by label, everything to everybody, half in turn and half by label",
    split,
    Number("CASE", whole=True, range=between(1, 4, "a whole number")),
)
