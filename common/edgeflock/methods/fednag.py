"""FedNAG: Nesterov's accelerated gradient at the clients, models and momenta averaged.

Yang et al. 2020 (arXiv:2009.08716): clients step as in `nesterov.py`, and every round sets
x <- mean x_i, y <- mean y_i, by samples. The wire carries v = x - y, whose mean is that of x less that of y.
gamma is the paper's; the first y is x. Every client takes part in every round.

Confirmed: the abstract (NAG at the workers, model and momentum aggregated), and public code by others that
averages torch's Nesterov buffers by samples: the same while the lr is constant, as v = -gamma eta buffer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from edgeflock.common.payload.layout import Layout
from edgeflock.methods.kit.base import (
    Accumulators,
    Kind,
    Method,
    Round,
    State,
    Training,
    Update,
)
from edgeflock.methods.kit.nesterov import NesterovClient, NesterovParams, caution, extra_flops
from edgeflock.methods.kit.server_momentum import MomentumServer

N = TypeVar("N", bound=NesterovParams)


class FedNagServer(MomentumServer[N]):
    """Keeps the mean v."""

    def uploads(self, round: Round) -> tuple[Kind, ...]:
        return (Kind.DELTA, Kind.MOMENTUM)

    def sums(self) -> Mapping[str, Layout]:
        return {**super().sums(), "momentum": self.setting.layout}

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        super().fold(sums, update, weight)
        sums.add("momentum", update, Kind.MOMENTUM, weight)

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        state.vectors["momentum"].copy_(sums.mean("momentum"))
        return super().commit(state, sums, round)


METHOD = Method(
    name="fednag",
    summary="Nesterov's momentum at the clients, averaged like the model",
    params=NesterovParams,
    server=FedNagServer,
    client=NesterovClient,
    training=Training(lr=0.01, batch_size=64),
    full_participation=True,
    own_momentum=True,
    extra_flops=extra_flops,
    caution=caution,
)
