"""orthogonal:C: C clusters of clients with disjoint classes; client i is in cluster i mod C, iid within."""

from __future__ import annotations

import numpy as np

from edgeflock.common.command.ranges import at_least
from edgeflock.common.errors import BadValue
from edgeflock.common.partitions.kit.base import Number, Pool, Scheme, Shards


def split(pool: Pool, wanted: float) -> Shards:
    clusters = int(wanted)
    if clusters > min(len(pool.classes), pool.shards):
        limit = f"at most the {len(pool.classes)} classes and the {pool.shards} clients that there are"
        raise BadValue("clusters of orthogonal", clusters, limit)
    shards: Shards = [np.zeros(0, np.int64)] * pool.shards
    for cluster, labels in enumerate(np.array_split(np.array(pool.classes), clusters)):
        samples = np.flatnonzero(np.isin(pool.labels, labels))
        members = range(cluster, pool.shards, clusters)
        dealt = np.array_split(pool.random("orthogonal", cluster).permutation(samples), len(members))
        for client, piece in zip(members, dealt, strict=True):
            shards[client] = piece
    return shards


SCHEME = Scheme(
    "orthogonal",
    "C clusters of clients, each with classes that no other cluster has",
    split,
    Number("C", whole=True, range=at_least(1, "a whole number")),
)
