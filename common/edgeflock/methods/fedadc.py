"""FedADC: the server's momentum is spread over the clients' steps, to speed them up and hold them together.

Ozfatura et al. 2021 (ISIT, arXiv:2012.09102). Client: mbar = beta_l m / K_i, x <- x - lr (g + mbar); g is the
gradient at x (variant `heavy`) or where mbar leads, at x - lr mbar (`nesterov`).
Server: Dbar = mean (w - x_i) / lr, m <- Dbar + (beta_g - beta_l) m, w <- w - a lr m; a is `slow_lr`.
The clients' ends hold beta_l m already, hence the difference: with beta_g = beta_l, m is Dbar.
m is 0 in round 1. Weight decay (at x), clip and the run's momentum act on g + mbar, as on every direction.
Confirmed from the paper's abstract: acceleration and drift control by one momentum, which costs no other
change. The rules are METHODS 3, from code presumed to be the author's (equal weights there, and beta_l 1).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from edgeflock.common import norms
from edgeflock.methods.kit.base import (
    Accumulators,
    Batch,
    ClientHalf,
    Effort,
    Local,
    Method,
    Round,
    State,
)
from edgeflock.methods.kit.options import Params, above, one_of, option, unit
from edgeflock.methods.kit.server_momentum import MomentumServer, add_momentum


@dataclass(frozen=True, kw_only=True)
class FedADCParams(Params):
    """Options of FedADC."""

    beta_g: float = option(0.9, "momentum of the server", unit(), symbol="beta_global")
    beta_l: float = option(
        0.9, "share of the server's momentum that a client's steps bring in", unit(), symbol="beta_local"
    )
    slow_lr: float = option(1.0, "step of the server along its momentum", above(0), symbol="alpha")
    variant: str = option(
        "heavy",
        "whether the momentum joins the gradient (heavy) or is gone before it is taken (nesterov)",
        one_of("heavy", "nesterov"),
    )


class FedADCServer(MomentumServer[FedADCParams]):
    """Keeps m beside the model."""

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        momentum, params = state.vectors["momentum"], self.params
        if round.lr:  # else there was no step
            momentum.mul_(params.beta_g - params.beta_l).sub_(sums.mean("delta"), alpha=1 / round.lr)
            state.model.sub_(momentum, alpha=params.slow_lr * round.lr)
        return {"momentum_norm": norms.norm(momentum)}


class FedADCClient(ClientHalf[FedADCParams]):
    """Brings the K-th part of beta_l m into every step."""

    def backward(self, work: Local, batch: Batch) -> Tensor:
        if self.params.variant == "heavy":
            return work.compute(batch)
        ahead = work.scratch("ahead").copy_(work.params)
        add_momentum(work, ahead, -work.lr * self._share(work))
        return work.compute(batch, at=ahead)

    def gradient(self, work: Local) -> None:
        add_momentum(work, work.grads, self._share(work))

    def _share(self, work: Local) -> float:
        """Return what part of m is mbar."""
        return self.params.beta_l / work.steps_total


def extra_flops(params: FedADCParams, effort: Effort) -> float:
    """Return 2 |w| for every step, twice where the momentum is gone first."""
    return effort.vectors(2 if params.variant == "heavy" else 4)


METHOD = Method(
    name="fedadc",
    summary="the server's momentum spread over the clients' steps",
    params=FedADCParams,
    server=FedADCServer,
    client=FedADCClient,
    extra_flops=extra_flops,
)
