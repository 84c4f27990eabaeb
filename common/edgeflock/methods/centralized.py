"""Centralized: plain SGD on the union of all shards, on the server; what federated training is held against.

FedADM plots it as its reference. Both halves are the defaults: one round is a FedAvg round with one client in
seat 0, whose data are the union (each sample once, also where shards overlap): w <- w + (x_K - w) = x_K.
Momentum begins at zero in every round, as everywhere.
`central` makes the server give that seat to itself (server/central.py): nobody is contacted, no byte crosses
a wire, and codecs have nothing to encode. Clients with data of their own are refused.
"""

from __future__ import annotations

from edgeflock.methods.kit.base import Method

METHOD = Method(
    name="centralized",
    summary="SGD on the union of the shards, on the server",
    central=True,
    any_optimizer=True,
)
