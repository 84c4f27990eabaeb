"""MoFedSAM: FedCM whose gradient is taken where the loss is worse, which prefers flat minima.

Qu et al. 2022 (ICML, arXiv:2206.02618). With g1 the gradient at x, the one that FedCM mixes is taken on the
same batch at x + rho g1 / (||g1|| + 1e-12), rho is `sam_rho`, the norm that of the whole flat vector. Both
passes share the dropout mask; x itself is not moved. Server, D and alpha as in fedcm.py.
Confirmed in public code (woodenchild95/FL-Simulator, client/mofedsam.py and optimizer/ESAM.py): two passes
over one batch, the flat norm, alpha on the second gradient alone, weight decay outside. It differs there:
1e-7 in the denominator, a second pass that moves BatchNorm's statistics too, and clipping to norm 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from edgeflock.common import norms
from edgeflock.methods.fedcm import FedCMClient, FedCMParams, FedCMServer
from edgeflock.methods.kit.base import Batch, Effort, Local, Method, Training
from edgeflock.methods.kit.options import at_least, option

TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class MoFedSAMParams(FedCMParams):
    """Options of MoFedSAM."""

    sam_rho: float = option(
        0.1, "how far from x the second gradient is taken; 0 is FedCM", at_least(0), symbol="rho"
    )


M = TypeVar("M", bound=MoFedSAMParams)


class MoFedSAMServer(FedCMServer[M]):
    """As FedCM."""


class MoFedSAMClient(FedCMClient[M]):
    """Takes the gradient a way uphill."""

    def backward(self, work: Local, batch: Batch) -> Tensor:
        loss = self.first_pass(work, batch)
        rho = self.params.sam_rho
        if rho:
            scale = rho / (norms.norm(work.grads) + TINY)
            uphill = torch.add(work.params, work.grads, alpha=scale, out=work.scratch("uphill"))
            work.compute(batch, at=uphill, repeat=True)
        return loss

    def first_pass(self, work: Local, batch: Batch) -> Tensor:
        """Fill `work.grads` with the gradient at x and return the loss there."""
        return work.compute(batch)


def extra_flops(params: MoFedSAMParams, effort: Effort) -> float:
    """Return FedCM's, and the second gradient uphill with its way there, 4 |w|."""
    return effort.vectors(7) + effort.passes() if params.sam_rho else effort.vectors(3)


METHOD = Method(
    name="mofedsam",
    summary="FedCM with sharpness-aware local gradients",
    params=MoFedSAMParams,
    server=MoFedSAMServer,
    client=MoFedSAMClient,
    training=Training(lr=0.1),
    uniform=True,
    extra_flops=extra_flops,
)
