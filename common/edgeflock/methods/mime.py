"""Mime: MimeLite whose local gradients are corrected as in SVRG.

Karimireddy et al. 2020 (arXiv:2008.03606), Algorithm 1 with SGDm as base:
x -= lr ((1 - b) g' + b m), g' = g(x) - g_w + c, where g_w is the gradient of the same batch at w and c the
mean full gradient. c is that of the round before (that of this round would cost one more exchange), so
round 1 has no correction: g' = g. The rest is in `mimelite.py`.

Confirmed in public code (FedJAX, FedML): g(x) - g_w + c on the same batch, m fixed. FedJAX takes c from this
round's cohort, in a second exchange; FedML, as here, from the round before.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgeflock.methods.kit.base import Accumulators, Batch, Bundles, Effort, Kind, Local, Method, Round, State
from edgeflock.methods.mimelite import MimeLiteClient, MimeLiteServer, MimeParams, caution


class MimeServer(MimeLiteServer):
    """Keeps c beside m."""

    def begin(self, state: State) -> None:
        super().begin(state)
        state.vectors["control"] = torch.zeros_like(state.model)

    def broadcast(self, state: State, round: Round) -> Bundles:
        bundles = super().broadcast(state, round)
        if round.number > 1:
            bundles[Kind.CONTROL] = state.vectors["control"]
        return bundles

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        metrics = super().commit(state, sums, round)
        state.vectors["control"].copy_(sums.vectors["gradient"])  # divided by now
        return metrics


class MimeClient(MimeLiteClient):
    """Corrects each gradient before the momentum joins it."""

    def begin(self, work: Local) -> None:
        if (c := work.received.get(Kind.CONTROL)) is not None:
            b, fixed = self.params.b, work.scratch("(1 - b) c + b m")
            work.memo["fixed"] = torch.lerp(c, work.zero_or(Kind.MOMENTUM), b, out=fixed)

    def backward(self, work: Local, batch: Batch) -> Tensor:
        loss = super().backward(work, batch)
        if "fixed" in work.memo:
            work.grads.sub_(work.gradient_at(work.start, batch))
        return loss

    def gradient(self, work: Local) -> None:
        if (fixed := work.memo.get("fixed")) is None:
            super().gradient(work)
        else:
            torch.add(fixed, work.grads, alpha=1 - self.params.b, out=work.grads)


def extra_flops(params: MimeParams, effort: Effort) -> float:
    """Return MimeLite's, and a second gradient in every step."""
    return effort.vectors(6) + effort.passes() + effort.walk(backward=True)


METHOD = Method(
    name="mime",
    summary="the server's momentum and an SVRG correction in every local step",
    params=MimeParams,
    server=MimeServer,
    client=MimeClient,
    uniform=True,
    extra_flops=extra_flops,
    caution=caution,
)
