"""FedDyn: local losses bent until their stationary points are the global one.

Acar et al., ICLR 2021 (arXiv:2111.04263), Algorithm 1. Client: g - h_i + alpha (x - w), at the end
h_i -= alpha (x+ - w). Server: h -= (alpha/N) sum over S of (x_i - w), then w = mean x_i - h/alpha.
h_i (the paper's local gradient) is the client's vector `h`, h the server's; x_i - w is the decoded delta at
both ends, so that h stays the mean of all h_i whatever the codec. N is everybody who was ready before the
round opened; 1/N stays 1/N under `weighting`, which changes the mean of x_i alone. All start at zero.

Confirmed in the authors' code: local step, both updates, the plain mean over S, 1/N over all clients, the new
h in w; it keeps -h_i/alpha in place of h_i, and divides alpha by n_i N/n where sizes differ (here: not, as in
the paper's algorithm). The paper's pseudocode itself was not within reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from edgeflock.methods.kit.base import (
    Accumulators,
    Bundles,
    ClientHalf,
    Effort,
    Kind,
    Local,
    Method,
    Round,
    State,
)
from edgeflock.methods.kit.mirrors import MirrorServer, own
from edgeflock.methods.kit.options import Params, above, option


@dataclass(frozen=True, kw_only=True)
class FedDynParams(Params):
    """Options of FedDyn."""

    alpha: float = option(0.1, "strength of the regulariser", above(0), symbol="alpha")


class FedDynServer(MirrorServer[FedDynParams]):
    """Keeps h, the mean of all h_i."""

    moves = True

    def begin(self, state: State) -> None:
        super().begin(state)
        state.vectors["h"] = torch.zeros_like(state.model)

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        h, alpha = state.vectors["h"], self.params.alpha
        h.sub_(self.moved(sums), alpha=alpha / len(round.samples))
        state.model.add_(sums.mean("delta")).sub_(h, alpha=1 / alpha)
        return self.lost(state, sums)


class FedDynClient(ClientHalf[FedDynParams]):
    """Adds the gradient of -<h_i, x> + alpha/2 ||x - w||^2."""

    def begin(self, work: Local) -> None:
        pull = work.memo["alpha w + h_i"] = work.scratch("alpha w + h_i")
        torch.mul(work.start, self.params.alpha, out=pull)
        if (mine := own(work, "h")) is not None:
            pull.add_(mine)

    def gradient(self, work: Local) -> None:
        work.grads.add_(work.params, alpha=self.params.alpha).sub_(work.memo["alpha w + h_i"])

    def sent(self, work: Local, decoded: Bundles) -> None:
        moved = torch.mul(decoded[Kind.DELTA], -self.params.alpha, out=work.scratch("moved"))
        mine = work.state.vectors.get("h")
        work.keep("h", moved if mine is None else moved.add_(mine))


def extra_flops(params: FedDynParams, effort: Effort) -> float:
    """Return 4 |w| for every step."""
    return effort.vectors(4)


METHOD = Method(
    name="feddyn",
    summary="dynamic regularisation",
    params=FedDynParams,
    server=FedDynServer,
    client=FedDynClient,
    uniform=True,
    extra_flops=extra_flops,
    any_optimizer=True,
)
