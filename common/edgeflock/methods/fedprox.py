"""FedProx: local steps pulled back towards the global model.

Li et al. 2020 (arXiv:1812.06127), Algorithm 2: every client minimises F_k(w) + mu/2 ||w - w^t||^2.
w^t is `work.start`, mu is `FedProxParams.mu`; the gradient of the term is mu (w - w^t).
"""

from __future__ import annotations

from dataclasses import dataclass

from edgeflock.methods.kit.base import ClientHalf, Effort, Local, Method
from edgeflock.methods.kit.options import Params, at_least, option


@dataclass(frozen=True, kw_only=True)
class FedProxParams(Params):
    """Options of FedProx."""

    mu: float = option(0.1, "strength of the proximal term; 0 is FedAvg", at_least(0), symbol="mu")


class FedProxClient(ClientHalf[FedProxParams]):
    """Adds the closed-form gradient of the proximal term."""

    def gradient(self, work: Local) -> None:
        mu = self.params.mu
        work.grads.add_(work.params, alpha=mu).sub_(work.start, alpha=mu)


def extra_flops(params: FedProxParams, effort: Effort) -> float:
    """Return 2 |w| for every step, as FedTrip's Table V counts it."""
    return effort.vectors(2) if params.mu else 0.0


METHOD = Method(
    name="fedprox",
    summary="FedAvg with a proximal term",
    params=FedProxParams,
    client=FedProxClient,
    extra_flops=extra_flops,
    any_optimizer=True,
)
