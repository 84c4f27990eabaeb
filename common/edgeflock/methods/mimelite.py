"""MimeLite: local steps with the server's momentum, that of the full gradients, fixed within a round.

Karimireddy et al. 2020 (arXiv:2008.03606), Algorithm 1 without the correction, with SGDm as
base: x -= lr ((1 - b) g + b m); m <- (1 - b) Gbar + b m, where Gbar is the mean over S of the clients'
full gradients at w (eval mode, no weight decay); w <- mean x_i. b is the paper's beta, m starts at zero.
The full gradient is the bundle `gradient`: one more pass over the local set in each round.

Confirmed in public code (Google's FedJAX): m fixed in the round and moved once by the
full gradients at the received w, the plain step; there both means are by samples (`weighting=weighted`).
FedML's takes a clipped gradient at the END of local training: not followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from edgeflock.common.payload.layout import Layout
from edgeflock.methods.kit.base import (
    Accumulators,
    Bundles,
    ClientHalf,
    Effort,
    Kind,
    Local,
    Method,
    Outlook,
    Round,
    State,
    Update,
)
from edgeflock.methods.kit.options import Params, option, unit
from edgeflock.methods.kit.server_momentum import MomentumServer


@dataclass(frozen=True, kw_only=True)
class MimeParams(Params):
    """Options of MimeLite and Mime."""

    b: float = option(
        0.9, "share of the server's momentum in a step; 0 is plain SGD", unit(high=False), symbol="beta"
    )


class MimeLiteServer(MomentumServer[MimeParams]):
    """Keeps m."""

    def uploads(self, round: Round) -> tuple[Kind, ...]:
        return (Kind.DELTA, Kind.GRADIENT)

    def sums(self) -> Mapping[str, Layout]:
        return {**super().sums(), "gradient": self.setting.layout}

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        super().fold(sums, update, weight)
        sums.add("gradient", update, Kind.GRADIENT, weight)

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        metrics = super().commit(state, sums, round)
        b = self.params.b
        state.vectors["momentum"].mul_(b).add_(sums.mean("gradient"), alpha=1 - b)
        return metrics


class MimeLiteClient(ClientHalf[MimeParams]):
    """Steps with (1 - b) g + b m and reports its full gradient at w."""

    def gradient(self, work: Local) -> None:
        b, momentum = self.params.b, work.received.get(Kind.MOMENTUM)
        if momentum is None:
            work.grads.mul_(1 - b)
        else:
            torch.lerp(work.grads, momentum, b, out=work.grads)

    def end(self, work: Local) -> Bundles:
        return {**super().end(work), Kind.GRADIENT: work.full_gradient(work.start)}


def extra_flops(params: MimeParams, effort: Effort) -> float:
    """Return 3 |w| for every step, and one gradient over the local set."""
    return effort.vectors(3) + effort.walk(backward=True)


LARGE_LR = 0.05


def caution(params: MimeParams, outlook: Outlook) -> str:
    """Say that the momentum, which stands still through all steps of a round, carries too far."""
    if outlook.lr < LARGE_LR or not params.b:
        return ""
    return (
        f"lr {outlook.lr:g} is beyond what it bears on skewed data: the server's momentum stands still "
        "through all steps of a round and carries it too far; give a smaller --lr, such as 0.01"
    )


METHOD = Method(
    name="mimelite",
    summary="the server's momentum in every local step",
    params=MimeParams,
    server=MimeLiteServer,
    client=MimeLiteClient,
    uniform=True,
    extra_flops=extra_flops,
    caution=caution,
)
