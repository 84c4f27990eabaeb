"""A vector of the model's size that the server keeps and every client gets: D, m_s, m.

It is zero in round 1, hence not sent then; a client finds it in `received` from round 2 on.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgeflock.methods.kit.base import Bundles, Kind, Local, Round, ServerHalf, State
from edgeflock.methods.kit.options import P


class MomentumServer(ServerHalf[P]):
    """Keeps it in `state.vectors["momentum"]`; the method moves it at the commit."""

    def begin(self, state: State) -> None:
        state.vectors["momentum"] = torch.zeros_like(state.model)

    def broadcast(self, state: State, round: Round) -> Bundles:
        bundles = super().broadcast(state, round)
        if round.number > 1:
            bundles[Kind.MOMENTUM] = state.vectors["momentum"]
        return bundles


def add_momentum(work: Local, to: Tensor, factor: float) -> None:
    """Add the factor times the received vector, in place; nothing while it is zero by definition."""
    momentum = work.received.get(Kind.MOMENTUM)
    if momentum is not None:
        to.add_(momentum, alpha=factor)
