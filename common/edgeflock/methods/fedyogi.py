"""FedYogi: Yogi's step on the server, whose rates change by no more than the squares tell.

Reddi et al., ICLR 2021 (arXiv:2003.00295), Algorithm 2 with its v; m, w and the rest: fedadam.py.
    v <- v - (1 - beta2) D^2 sign(v - D^2).
D is the mean delta of the round. v stays above 0: it falls by less than itself where it is above D^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeflock.methods.fedadam import AdaptiveParams, AdaptiveServer
from edgeflock.methods.kit.base import Method
from edgeflock.methods.kit.options import option, unit


@dataclass(frozen=True, kw_only=True)
class FedYogiParams(AdaptiveParams):
    """Options of FedYogi."""

    beta2: float = option(0.99, "share of v that is kept in a round", unit(high=False), symbol="beta_2")


class FedYogiServer(AdaptiveServer[FedYogiParams]):
    """v moves towards the squares by their own size."""

    def spread(self, v: Tensor, squares: Tensor) -> None:
        v.addcmul_(torch.sign(v - squares), squares, value=self.params.beta2 - 1)


METHOD = Method(
    name="fedyogi",
    summary="Yogi's step on the server, over the mean delta",
    params=FedYogiParams,
    server=FedYogiServer,
    any_optimizer=True,
)
