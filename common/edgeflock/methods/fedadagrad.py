"""FedAdagrad: Adagrad's step on the server, whose rates only ever fall.

Reddi et al., ICLR 2021 (arXiv:2003.00295), Algorithm 2 with its v; m, w and the rest: fedadam.py.
    v <- v + D^2.
D is the mean delta of the round. By default without momentum, beta1 0: then m is D.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from edgeflock.methods.fedadam import AdaptiveParams, AdaptiveServer
from edgeflock.methods.kit.base import Method
from edgeflock.methods.kit.options import above, option, unit


@dataclass(frozen=True, kw_only=True)
class FedAdagradParams(AdaptiveParams):
    """Options of FedAdagrad."""

    beta1: float = option(0.0, "share of m that is kept in a round", unit(high=False), symbol="beta_1")
    eta: float = option(0.1, "server step", above(0), symbol="eta")


class FedAdagradServer(AdaptiveServer[FedAdagradParams]):
    """v is the sum of all squares."""

    def spread(self, v: Tensor, squares: Tensor) -> None:
        v.add_(squares)


METHOD = Method(
    name="fedadagrad",
    summary="Adagrad's step on the server, over the mean delta",
    params=FedAdagradParams,
    server=FedAdagradServer,
    any_optimizer=True,
)
