"""SCAFFOLD: control variates that take the clients' drift out of their steps.

Karimireddy et al., ICML 2020 (arXiv:1910.06378), Algorithm 1 with option II. Clients step with g - c_i + c;
then c_i+ = c_i - c + (w - x+)/(K eta_l), w += eta_g mean D_i, c += (1/N) sum over S of (c_i+ - c_i).
c_i is the client's vector `control`, c the server's; K and eta_l are the client's own steps and the round's
lr, N is everybody who was ready before the round opened. Both start at zero, hence round 1 is FedAvg.

With the run's momentum m the K steps count as (K - m (1 - m^K)/(1 - m)) / (1 - m). What is sent is the
increment -c - D_i/(K eta_l); the client adopts c_i + decoded(increment), so c is the mean of all c_i
whatever the codec. Weight decay and clip are part of the movement, hence of c_i.

Confirmed in public code: the step, option II, 1/N over all clients and the plain mean of D_i (FedDyn's
authors' SCAFFOLD, which also scales by n_i where sizes differ: the paper's algorithm does not), the count of
steps under momentum (FedNTD's authors). The paper's pseudocode itself was not within reach.
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
    Round,
    State,
    Update,
)
from edgeflock.methods.kit.mirrors import MirrorServer, own
from edgeflock.methods.kit.options import P, Params, above, option

CONTROL = "control"
SHIFT = "c - c_i"


@dataclass(frozen=True, kw_only=True)
class ScaffoldParams(Params):
    """Options of SCAFFOLD."""

    eta_g: float = option(1.0, "step of the server along the mean delta", above(0), symbol="eta_g")


class ControlServer(MirrorServer[P]):
    """Keeps c, the mean of all c_i; whoever derives from it moves the model."""

    def begin(self, state: State) -> None:
        super().begin(state)
        state.vectors[CONTROL] = torch.zeros_like(state.model)

    def broadcast(self, state: State, round: Round) -> Bundles:
        bundles = super().broadcast(state, round)
        if round.number > 1:  # zero in round 1, hence not sent
            bundles[Kind.CONTROL] = state.vectors[CONTROL]
        return bundles

    def uploads(self, round: Round) -> tuple[Kind, ...]:
        return (Kind.DELTA, Kind.CONTROL)

    def sums(self) -> Mapping[str, Layout]:
        return {**super().sums(), CONTROL: self.setting.layout}

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        super().fold(sums, update, weight)
        sums.add(CONTROL, update, Kind.CONTROL, 1.0)

    def turn(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        """Call at the commit: move c, return what the log should say."""
        state.vectors[CONTROL].add_(sums.vectors[CONTROL], alpha=1 / len(round.samples))
        return self.lost(state, sums)


class ScaffoldServer(ControlServer[ScaffoldParams]):
    """Goes along the mean delta."""

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        state.model.add_(sums.mean("delta"), alpha=self.params.eta_g)
        return self.turn(state, sums, round)


class ControlClient(ClientHalf[P]):
    """Steps with g - c_i + c."""

    def begin(self, work: Local) -> None:
        mine, all_of_us = own(work, CONTROL), work.received.get(Kind.CONTROL)
        if mine is None and all_of_us is None:
            return
        shift = work.memo[SHIFT] = work.scratch(SHIFT)
        shift.copy_(work.zero_or(Kind.CONTROL))
        if mine is not None:
            shift.sub_(mine)

    def gradient(self, work: Local) -> None:
        if (shift := work.memo.get(SHIFT)) is not None:
            work.grads.add_(shift)

    def end(self, work: Local) -> Bundles:
        delta, length = work.delta(), effective(work.steps_done, work.plan.momentum) * work.lr
        increment = torch.mul(delta, -1 / length, out=work.scratch("increment"))
        if (c := work.received.get(Kind.CONTROL)) is not None:
            increment.sub_(c)
        return {Kind.DELTA: delta, Kind.CONTROL: increment}

    def sent(self, work: Local, decoded: Bundles) -> None:
        mine, moved = work.state.vectors.get(CONTROL), decoded[Kind.CONTROL]
        if mine is not None:
            moved = torch.add(mine, moved, out=work.scratch(SHIFT))
        work.keep(CONTROL, moved)


def effective(steps: int, momentum: float) -> float:
    """Return how many plain steps K steps of heavy ball from rest are worth."""
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def extra_flops(params: ScaffoldParams, effort: Effort) -> float:
    """Return 2 |w| for every step, and for the increment."""
    return effort.vectors(2) + 2.0 * effort.parameters


METHOD = Method(
    name="scaffold",
    summary="control variates against client drift",
    params=ScaffoldParams,
    server=ScaffoldServer,
    client=ControlClient,
    uniform=True,
    extra_flops=extra_flops,
)
