"""DOMO: momentum at the clients and on the server, the server's joined to the clients' steps.

Xu and Huang 2022 (AAAI, arXiv:2102.03970). Client: m <- mu_l m + g, x <- x - lr m, m = 0 at the round's
start. Server: m_s <- mu_s m_s + mean (1/K_i) sum_k m, w <- w - a lr K m_s with the mean K of the K_i; a is
`slow_lr`. Fusion `pre`: a client starts at w - lr beta K_i m_s; `intra` (DOMO-S): x <- x - lr (m + beta m_s)
in every step; `none`: both momenta, not joined. m_s is 0 in round 1.
The delta goes from where the first step starts: -lr sum_k m, with `intra` -lr (sum_k m + K_i beta m_s). The
server takes the sum out of it; an update without a step has no such mean and is left out.
Confirmed from the paper's abstract and a review of it: the two buffers, the reset of the local one, their
fusion, and that the paper's clients infer m_s from two successive models. Here it is sent: that inference
fails for absent clients and lossy codecs. The rules are METHODS 3, DOMO-S and `beta` were not confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgeflock.common import norms
from edgeflock.methods.kit.base import (
    Accumulators,
    ClientHalf,
    Effort,
    Kind,
    Local,
    Method,
    Round,
    State,
    Update,
)
from edgeflock.methods.kit.options import Params, above, one_of, option, unit
from edgeflock.methods.kit.server_momentum import MomentumServer, add_momentum


@dataclass(frozen=True, kw_only=True)
class DOMOParams(Params):
    """Options of DOMO."""

    mu_l: float = option(0.5, "momentum of the clients' steps", unit(high=False), symbol="mu_l")
    mu_s: float = option(0.9, "momentum of the server", unit(high=False), symbol="mu_s")
    slow_lr: float = option(1.0, "step of the server along its momentum", above(0), symbol="alpha")
    beta: float = option(
        0.9,
        "share of the server's momentum that joins the clients' steps",
        unit(high=False),
        symbol="beta",
        when="fusion=pre|intra",
    )
    fusion: str = option(
        "pre",
        "where it joins: in the start (pre), in every step (intra, DOMO-S) or nowhere (none)",
        one_of("pre", "intra", "none"),
    )


class DOMOServer(MomentumServer[DOMOParams]):
    """Keeps m_s beside the model."""

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        sums.count("steps", update.steps)
        if update.steps:
            sums.add("delta", update, Kind.DELTA, weight / update.steps)
            sums.count("weight", weight)

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        momentum, params = state.vectors["momentum"], self.params
        weight = sums.scalars.get("weight", 0.0)
        if weight:  # else nobody has moved, and lr may be 0
            kept = params.mu_s - (params.beta if params.fusion == "intra" else 0.0)
            momentum.mul_(kept).add_(sums.vectors["delta"], alpha=-1 / (round.lr * weight))
            steps = sums.scalars["steps"] / sums.updates
            state.model.add_(momentum, alpha=-params.slow_lr * round.lr * steps)
        return {"momentum_norm": norms.norm(momentum)}


class DOMOClient(ClientHalf[DOMOParams]):
    """Heavy ball of its own, joined by the server's momentum."""

    def begin(self, work: Local) -> None:
        work.plan = replace(work.plan, momentum=self.params.mu_l)
        if self.params.fusion == "pre":
            shifted = work.scratch("start").copy_(work.start)
            add_momentum(work, shifted, -work.lr * self.params.beta * work.steps_total)
            work.start_from(shifted)

    def step(self, work: Local) -> None:
        super().step(work)
        if self.params.fusion == "intra":
            add_momentum(work, work.params, -work.lr * self.params.beta)


def extra_flops(params: DOMOParams, effort: Effort) -> float:
    """Return 2 |w| for every step, or once for the start."""
    if params.fusion == "intra":
        return effort.vectors(2)
    return 2.0 * effort.parameters if params.fusion == "pre" else 0.0


METHOD = Method(
    name="domo",
    summary="momentum at both ends, the server's joined to the clients' steps",
    params=DOMOParams,
    server=DOMOServer,
    client=DOMOClient,
    own_momentum=True,
    extra_flops=extra_flops,
)
