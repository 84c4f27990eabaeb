"""natural: one client per group of the data (uci-har: subject); fewer clients get the groups in turn."""

from __future__ import annotations

import numpy as np

from edgeflock.common.errors import BadValue
from edgeflock.common.partitions.kit.base import Pool, Scheme, Shards


def split(pool: Pool, _: float) -> Shards:
    if pool.groups is None:
        raise BadValue(
            "partition", "natural", "another one: this data set does not say whom a sample is from"
        )
    names, member = np.unique(pool.groups, return_inverse=True)
    if pool.shards > len(names):
        raise BadValue(
            "clients", pool.shards, f"at most {len(names)} with the partition 'natural': one per group"
        )
    return [np.flatnonzero(member % pool.shards == client) for client in range(pool.shards)]


SCHEME = Scheme("natural", "one client per group of the data, as the subjects of uci-har", split)
