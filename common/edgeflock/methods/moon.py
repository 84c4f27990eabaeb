"""MOON: features kept like the global model's and unlike those of the client's own last model.

Li, He, Song, CVPR 2021 (arXiv:2103.16257), Algorithm 1. For a batch with features z of the trained model,
z_g of the received and z_p of the previous local one:
    loss = CE + mu mean(-log(e^{cos(z, z_g) / T} / (e^{cos(z, z_g) / T} + e^{cos(z, z_p) / T}))),
computed as softplus((cos(z, z_p) - cos(z, z_g)) / T); mu is `mu`, T is `temperature`. The server is
FedAvg's. z are the model's features (the input of its head): the paper's projection head of 256 outputs is
the model's matter, not the method's. Both frozen models run in eval mode, each with its own BatchNorm
statistics.

At a first participation (also after a lost state) the previous model is the received one: the term is the
constant mu log 2 without a gradient, so no frozen forward is done.

Confirmed against QinbinLi/MOON (main.py, train_net_fedcon): cross entropy over the two similarities divided
by T, target 0, batch mean, times mu, added to CE; `CosineSimilarity` with its eps; both frozen nets in eval
mode; mu 1 and T 0.5 are its defaults, momentum 0.9 is fixed there. It differs in the first round only:
there the previous model list is empty and the term 0, and a later newcomer's previous model is its own
random net.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from edgeflock.methods.kit.base import Batch, Bundles, ClientHalf, Effort, Local, Method
from edgeflock.methods.kit.options import Params, above, at_least, option


@dataclass(frozen=True, kw_only=True)
class MoonParams(Params):
    """Options of MOON."""

    mu: float = option(1.0, "strength of the contrastive term; 0 is FedAvg", at_least(0), symbol="mu")
    temperature: float = option(
        0.5, "temperature of the similarities; small is sharp", above(0), symbol="tau"
    )


class MoonClient(ClientHalf[MoonParams]):
    """Adds the contrastive term and keeps the final model with its buffers."""

    def loss(self, work: Local, batch: Batch, features: Tensor, logits: Tensor) -> Tensor | None:
        if not self.params.mu:
            return None
        previous = work.state.vectors.get("model")
        if previous is None:
            return features.new_tensor(self.params.mu * math.log(2))
        own_buffers = work.state.vectors.get("buffers")
        alike = F.cosine_similarity(features, work.features_at(work.start, batch))
        unlike = F.cosine_similarity(features, work.features_at(previous, batch, own_buffers))
        return F.softplus((unlike - alike) / self.params.temperature).mean() * self.params.mu

    def end(self, work: Local) -> Bundles:
        work.keep("model", work.params)
        if work.model.buffers.numel():
            work.keep("buffers", work.model.buffers)
        return super().end(work)


def extra_flops(params: MoonParams, effort: Effort) -> float:
    """Return two frozen forward passes for every sample of a step."""
    return effort.forwards(2) if params.mu else 0.0


METHOD = Method(
    name="moon",
    summary="features like the global model's, unlike the client's own last ones",
    params=MoonParams,
    client=MoonClient,
    extra_flops=extra_flops,
    any_optimizer=True,
)
