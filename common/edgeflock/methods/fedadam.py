"""FedAdam: Adam's step on the server, over the mean of the clients' deltas.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan, ICLR 2021 (arXiv:2003.00295), Algorithm 2.
With D the mean delta of the round:
    m <- beta1 m + (1 - beta1) D,    v <- beta2 v + (1 - beta2) D^2,    w <- w + eta m / (sqrt(v) + tau),
m_0 = 0, v_0 = tau^2. Adam as most libraries have it corrects the bias of m and v; the algorithm does not. D
has the run's weights, by samples unless told otherwise, where the listing has equal ones. FedYogi and
FedAdagrad are the same with other v.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from edgeflock.common import norms
from edgeflock.methods.kit.base import Accumulators, Method, Round, ServerHalf, State
from edgeflock.methods.kit.options import Params, above, option, unit


@dataclass(frozen=True, kw_only=True)
class AdaptiveParams(Params):
    """Options of server steps that adapt."""

    eta: float = option(0.01, "server step", above(0), symbol="eta")
    beta1: float = option(0.9, "share of m that is kept in a round", unit(high=False), symbol="beta_1")
    tau: float = option(
        1e-3,
        "what sqrt(v) begins with and is added to: the larger, the less it adapts",
        above(0),
        symbol="tau",
    )


A = TypeVar("A", bound=AdaptiveParams)


class AdaptiveServer(ServerHalf[A]):
    """Keeps m and v beside the model."""

    def begin(self, state: State) -> None:
        state.vectors["m"] = torch.zeros_like(state.model)
        state.vectors["v"] = torch.full_like(state.model, self.params.tau**2)

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        m, v, mean = state.vectors["m"], state.vectors["v"], sums.mean("delta")
        m.lerp_(mean, 1 - self.params.beta1)
        self.spread(v, mean.square_())
        root = torch.sqrt(v, out=mean).add_(self.params.tau)
        state.model.addcdiv_(m, root, value=self.params.eta)
        return {"m_norm": norms.norm(m), "v_norm": norms.norm(v)}

    def spread(self, v: Tensor, squares: Tensor) -> None:
        """Move v by the squares of the mean delta, in place; they may be written over."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class FedAdamParams(AdaptiveParams):
    """Options of FedAdam."""

    beta2: float = option(0.99, "share of v that is kept in a round", unit(high=False), symbol="beta_2")


class FedAdamServer(AdaptiveServer[FedAdamParams]):
    """v follows the squares with the rate 1 - beta2."""

    def spread(self, v: Tensor, squares: Tensor) -> None:
        v.lerp_(squares, 1 - self.params.beta2)


METHOD = Method(
    name="fedadam",
    summary="Adam's step on the server, over the mean delta",
    params=FedAdamParams,
    server=FedAdamServer,
    any_optimizer=True,
)
