"""What a FedADM client measures on its first batch: F_i, its gradient, rho_i and beta_i."""

from __future__ import annotations

import math

import torch

from edgeflock.common import norms
from edgeflock.methods.fedadm.control import LEAST, LEAST_BETA, RESOLUTION
from edgeflock.methods.kit.base import Batch, Kind, Local


def measure(work: Local, batch: Batch, loss: float, *, adaptive: bool) -> None:
    """Note F_i at the w received and at w_best; with an adaptive tau its gradient and how both differ, too.

    `params` is one of the two, its loss and gradient are known.
    """
    received, anchor = work.received[Kind.MODEL], work.memo["anchor"]
    f = f_best = loss
    gradient, other = work.grads, work.scratch("gradient elsewhere")
    if anchor is not received and work.start is received:
        f_best = float(work.compute(batch, at=anchor, repeat=True, out=other))
    elif anchor is not received:
        f, gradient = float(work.compute(batch, at=received, repeat=True, out=other)), other
    work.scalars |= {"f": f, "f_best": f_best}
    if adaptive:
        work.memo["gradient"] = work.scratch("gradient at w").copy_(gradient)
        _compare(work, batch, f)


def _compare(work: Local, batch: Batch, f: float) -> None:
    """Note rho_i and beta_i: how F_i and its gradient differ between w_i(last) and w."""
    last, received = work.state.vectors.get("last"), work.received[Kind.MODEL]
    if last is None:
        return
    other, apart = work.scratch("gradient elsewhere"), work.scratch("apart")
    change = abs(float(work.compute(batch, at=last, repeat=True, out=other)) - f)
    turn = norms.norm(other.sub_(work.memo["gradient"]))
    distance = norms.norm(torch.sub(last, received, out=apart))
    least = max(LEAST, RESOLUTION * norms.norm(received))
    rho, beta = (change / distance, turn / distance) if distance > least else (0.0, 0.0)
    work.scalars["rho"] = 0.0 if math.isnan(rho) else rho
    work.scalars["beta"] = beta if beta > LEAST_BETA else LEAST_BETA
