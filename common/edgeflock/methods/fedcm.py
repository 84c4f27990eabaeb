"""FedCM: every local step mixes the batch's gradient with the direction in which all moved last.

Xu et al. 2021 (arXiv:2106.10874). Local: x <- x - lr (alpha g + (1 - alpha) D), alpha is `cm_alpha`, D the
bundle `momentum`. Server: D <- -mean Delta_i / (lr K), w <- w + eta_g mean Delta_i with equal weights; lr is
that of the round whose updates are folded, K the plain mean of their K_i. D is 0 in round 1, hence not sent.
Both rules, sign and scale of D are confirmed in public code (woodenchild95/FL-Simulator, server/FedCM.py and
client/fedcm.py, which divides by client 0's K and clips to norm 10; here `clip` is off unless asked for).
The paper itself was not re-read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

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
    Training,
    Update,
)
from edgeflock.methods.kit.options import Params, above, option, unit
from edgeflock.methods.kit.server_momentum import MomentumServer


@dataclass(frozen=True, kw_only=True)
class FedCMParams(Params):
    """Options of FedCM and of what is built on it."""

    cm_alpha: float = option(
        0.1,
        "share of the client's own gradient in a step, the rest is the direction; 1 is FedAvg",
        unit(low=False),
        symbol="alpha",
    )
    eta_g: float = option(1.0, "step of the server along the mean of the updates", above(0), symbol="eta_g")


C = TypeVar("C", bound=FedCMParams)


class FedCMServer(MomentumServer[C]):
    """Keeps the direction D beside the model, on the scale of a gradient."""

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        super().fold(sums, update, weight)
        sums.count("steps", update.steps)

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        return self.move(state, sums.mean("delta"), sums.scalars["steps"] / sums.updates, round.lr)

    def move(self, state: State, step: Tensor, steps: float, lr: float) -> dict[str, float]:
        """Go along the step; what it was per local step and learning rate is the next direction."""
        direction = state.vectors["momentum"]
        if steps:  # else nobody has moved, and lr may be 0
            torch.mul(step, -1 / (lr * steps), out=direction)
        state.model.add_(step, alpha=self.params.eta_g)
        return {"momentum_norm": norms.norm(direction)}


class FedCMClient(ClientHalf[C]):
    """Mixes the direction into every gradient."""

    def gradient(self, work: Local) -> None:
        alpha, direction = self.params.cm_alpha, work.received.get(Kind.MOMENTUM)
        if direction is None:
            work.grads.mul_(alpha)
        else:
            work.grads.lerp_(direction, 1 - alpha)


def extra_flops(params: FedCMParams, effort: Effort) -> float:
    """Return 3 |w| for every step."""
    return effort.vectors(3)


METHOD = Method(
    name="fedcm",
    summary="local steps mixed with the direction of the last round",
    params=FedCMParams,
    server=FedCMServer,
    client=FedCMClient,
    training=Training(lr=0.1),
    uniform=True,
    extra_flops=extra_flops,
)
