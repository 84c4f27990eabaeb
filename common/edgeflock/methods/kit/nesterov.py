"""Nesterov's step, which FedNAG, FastSlowMo and pFedMo share: y follows the gradient, x runs ahead of it.

y' = x - eta g; x' = y' + gamma (y' - y). The gradient is taken at x, eta is the round's lr.
The wire carries v = x - y as `momentum`, both ways: small and centred at zero, where y is neither.
Equals torch's SGD(nesterov=True) with the buffer -v / (gamma eta). x' is lerp(y, y', 1 + gamma): two passes
a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch

from edgeflock.methods.kit.base import Bundles, ClientHalf, Effort, Kind, Local, Outlook
from edgeflock.methods.kit.options import Params, option, unit


@dataclass(frozen=True, kw_only=True)
class NesterovParams(Params):
    """Options of every method whose clients step like this."""

    gamma: float = option(
        0.5, "momentum of the clients' Nesterov steps; 0 is plain SGD", unit(high=False), symbol="gamma"
    )


N = TypeVar("N", bound=NesterovParams)


class NesterovClient(ClientHalf[N]):
    """Starts at the received x and y = x - v, and sends both back."""

    def begin(self, work: Local) -> None:
        y = work.memo["y"] = work.scratch("y")
        work.memo["spare"] = work.scratch("y of the step before")
        v = work.received.get(Kind.MOMENTUM)
        if v is None:  # zero by definition in round 1
            y.copy_(work.start)
        else:
            torch.sub(work.start, v, out=y)

    def step(self, work: Local) -> None:
        y, after = work.memo["y"], work.memo["spare"]
        torch.add(work.params, work.grads, alpha=-work.lr, out=after)
        torch.lerp(y, after, 1 + self.params.gamma, out=work.params)
        work.memo["y"], work.memo["spare"] = after, y

    def end(self, work: Local) -> Bundles:
        return {
            Kind.DELTA: work.delta(),
            Kind.MOMENTUM: torch.sub(work.params, work.memo["y"], out=work.memo["spare"]),
        }


FEW_STEPS, SMALL_LR = 20, 0.01  # the fewest of the papers' tau, and their learning rate


def caution(params: NesterovParams, outlook: Outlook) -> str:
    """Say that hardly anything is trained with the papers' learning rate and fewer steps than theirs."""
    steps = outlook.steps
    if steps is None or steps >= FEW_STEPS or outlook.lr > SMALL_LR:
        return ""
    return (
        f"with lr {outlook.lr:g} and {steps:.0f} steps a round it hardly trains: its papers have 20 and 40 "
        "steps with lr 0.01; give --steps 20, more --epochs, or a larger --lr"
    )


def extra_flops(params: NesterovParams, effort: Effort) -> float:
    """Return 3 |w| for every step, those of the leap from y to x."""
    return effort.vectors(3)
