"""FedMom: Nesterov's momentum on the server, over the mean of the clients' models.

Huo, Yang, Gu, Carin, Huang 2020 (arXiv:2002.02090). With D_i = x_i - w and n the samples of ALL clients:
    v+ = w + eta sum_S (n_i / n) D_i,    w <- v+ + beta (v+ - v),    v <- v+,    v_0 = w_0.
eta is `eta`, beta is `beta`. By default eta is N/S, the clients over those that were counted, so that v+ is
in expectation the mean over everybody when S are drawn uniformly; it is 1 with full participation, and beta
0, eta 1 is then FedAvg. Clients without samples are neither in N nor in S: otherwise full participation
would not give 1. n_i / n is the method's own and does not follow `weighting`.

Confirmed by public code (Flower strategies of FedMom): v+ = w - eta (w - mean), w = v+ + beta (v+ - v), v_0
= w_0, beta 0.9; those take n over S with eta 1, which is the same at full participation and for equal
shards. Not confirmed, the paper's listing was not at hand: n over all clients together with eta = N/S.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from edgeflock.methods.kit.base import Accumulators, Kind, Method, Round, ServerHalf, State, Update
from edgeflock.methods.kit.options import Params, above, option, or_none, unit


@dataclass(frozen=True, kw_only=True)
class FedMomParams(Params):
    """Options of FedMom."""

    eta: float | None = option(
        None,
        "server step; none is N/S, the clients of the roster over those that were counted",
        or_none(above(0)),
        symbol="eta",
    )
    beta: float = option(0.9, "server momentum; 0 with eta 1 is FedAvg", unit(high=False), symbol="beta")


class FedMomServer(ServerHalf[FedMomParams]):
    """Keeps v beside the model."""

    def begin(self, state: State) -> None:
        state.vectors["v"] = state.model.clone()

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        sums.add("delta", update, Kind.DELTA, float(update.samples))

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        eta = self.eta(sums, round)
        share = sums.weights["delta"] / sum(round.samples.values())  # n of S over n
        after = sums.mean("delta").mul_(eta * share).add_(state.model)
        torch.lerp(state.vectors["v"], after, 1 + self.params.beta, out=state.model)
        state.vectors["v"].copy_(after)
        return {"eta": eta}

    def eta(self, sums: Accumulators, round: Round) -> float:
        """Return the server step of a round."""
        if self.params.eta is not None:
            return self.params.eta
        return sum(samples > 0 for samples in round.samples.values()) / sums.updates


METHOD = Method(
    name="fedmom",
    summary="FedAvg with Nesterov's momentum on the server",
    params=FedMomParams,
    server=FedMomServer,
    any_optimizer=True,
)
