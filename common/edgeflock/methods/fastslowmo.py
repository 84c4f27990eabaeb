"""FastSlowMo: FedNAG whose server has a Nesterov momentum of its own.

Yang et al. 2022 ("Federated Learning with Combined Worker and Aggregator Momenta", IEEE TAI):
y_- = mean y_i, y_+ = mean x_i, x_+ = y_+ + gamma_a (y_+ - y_+ of the round before); clients start at
(x_+, y_-). y_+ begins at the initial model and is the server's vector `average`; x_+ is the model.
`carry=y` is as written: v = x_+ - y_-, so the server's jump enters the clients' momentum. `carry=buffer`
sends the mean of the v_i alone, y_- jumping along.

Confirmed in public code by others: y_+, x_+ and the mean of the clients' momentum buffers (`carry=buffer`).
That y_- is sent without the jump is from memory of the paper, which was not within reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from edgeflock.methods.fednag import FedNagServer
from edgeflock.methods.kit.base import Accumulators, Method, Round, State, Training
from edgeflock.methods.kit.nesterov import NesterovClient, NesterovParams, caution, extra_flops
from edgeflock.methods.kit.options import one_of, option, unit


@dataclass(frozen=True, kw_only=True)
class FastSlowMoParams(NesterovParams):
    """Options of FastSlowMo."""

    gamma_a: float = option(0.5, "momentum of the server; 0 is FedNAG", unit(high=False), symbol="gamma_a")
    carry: str = option(
        "y",
        "what the clients go on with: the mean y, or the mean of their momentum buffers",
        one_of("y", "buffer"),
    )


class FastSlowMoServer(FedNagServer[FastSlowMoParams]):
    """Keeps y_+."""

    def begin(self, state: State) -> None:
        super().begin(state)
        state.vectors["average"] = state.model.clone()

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        metrics = super().commit(state, sums, round)
        before, jump = state.vectors["average"], sums.vectors["delta"]  # the latter is used up
        torch.sub(state.model, before, out=jump)
        before.copy_(state.model)
        state.model.add_(jump, alpha=self.params.gamma_a)
        if self.params.carry == "y":
            state.vectors["momentum"].add_(jump, alpha=self.params.gamma_a)
        return metrics


METHOD = Method(
    name="fastslowmo",
    summary="FedNAG with a momentum of the server",
    params=FastSlowMoParams,
    server=FastSlowMoServer,
    client=NesterovClient,
    training=Training(lr=0.01, batch_size=64),
    full_participation=True,
    own_momentum=True,
    extra_flops=extra_flops,
    caution=caution,
)
