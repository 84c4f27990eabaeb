"""FedNTD: the global model's opinion of the classes that a sample does not belong to is kept.

Lee et al., NeurIPS 2022 (arXiv:2106.03097). With the logits of trained and received model without the true
class,
    loss = CE + beta T^2 KL(softmax(z_g / T) || softmax(z / T)),    mean over the batch,
beta is `beta`, T is `temperature` (the paper's tau). The received model is frozen, in eval mode, with the
received BatchNorm statistics. The server is FedAvg's. With fewer than two such classes the term is zero.

Confirmed against Lee-Gihun/FedNTD (algorithms/fedntd): KLDivLoss with `batchmean` of log_softmax against
softmax, the true class removed from both, added to CE with beta; its later version multiplies by tau^2, its
first one did not (the same at tau = 1); config/fedntd.json has tau 1 and beta 1, the class's own default is
tau 3; lr 0.01, momentum 0.9, weight decay 1e-5, lr decay 0.99 there are training options of a run here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from edgeflock.methods.kit.base import Batch, ClientHalf, Effort, Local, Method
from edgeflock.methods.kit.options import Params, above, at_least, option


@dataclass(frozen=True, kw_only=True)
class FedNtdParams(Params):
    """Options of FedNTD."""

    beta: float = option(1.0, "strength of the distillation; 0 is FedAvg", at_least(0), symbol="beta")
    temperature: float = option(1.0, "temperature of both opinions", above(0), symbol="tau")


class FedNtdClient(ClientHalf[FedNtdParams]):
    """Adds the distillation of the not-true classes."""

    def loss(self, work: Local, batch: Batch, features: Tensor, logits: Tensor) -> Tensor | None:
        beta, heat = self.params.beta, self.params.temperature
        if not beta or logits.shape[1] < 3:
            return None
        places = not_true(batch.y, logits.shape[1])
        own, frozen = (
            F.log_softmax(all_classes.gather(1, places) / heat, 1)
            for all_classes in (logits, work.logits_at(work.start, batch))
        )
        return F.kl_div(own, frozen, reduction="batchmean", log_target=True) * (beta * heat**2)


def not_true(y: Tensor, classes: int) -> Tensor:
    """Return for every sample the classes that it does not belong to, ascending."""
    places = torch.arange(classes - 1, device=y.device)
    return places + (places >= y.unsqueeze(1))


def extra_flops(params: FedNtdParams, effort: Effort) -> float:
    """Return one frozen forward pass for every sample of a step."""
    return effort.forwards() if params.beta else 0.0


METHOD = Method(
    name="fedntd",
    summary="distils the global model's opinion of the not-true classes",
    classes="distils the classes that a sample is not of",
    params=FedNtdParams,
    client=FedNtdClient,
    extra_flops=extra_flops,
    any_optimizer=True,
)
