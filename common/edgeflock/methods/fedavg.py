"""FedAvg: the weighted mean of the clients' models.

McMahan et al. 2017 (arXiv:1602.05629), Algorithm 1: w <- sum_k (n_k / n) w_k, written with deltas.
All hooks are the defaults; the other methods are differences to this file.
"""

from __future__ import annotations

from edgeflock.methods.kit.base import Method

METHOD = Method(
    name="fedavg",
    summary="weighted mean of the clients' models",
    any_optimizer=True,
)
