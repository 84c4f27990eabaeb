"""autoencoder: the samples themselves are what the model is to give; mean squared error, no y."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from edgeflock.common.scores import Metric, Sums
from edgeflock.common.tasks.kit import histogram
from edgeflock.common.tasks.kit.base import Array, LearningTask, Shape, ratio

_SHARES = {"error_p50": 0.5, "error_p95": 0.95, "error_p99": 0.99}


class Autoencoder(LearningTask):
    """The error of a sample is the mean square over its numbers; quantiles of it are those of a histogram."""

    name = "autoencoder"
    summary = "the sample itself, no labels; reconstruction error, its mean and quantiles"
    metrics = tuple(Metric(name, higher=False, share=False) for name in ("error", *_SHARES))
    flippable = False

    def labels(self, y: Array) -> Array:
        return y

    def count(self, x: Array, y: Array) -> int:
        return math.prod(x.shape[1:])

    def asked_by(self, shape: Shape) -> int:
        return math.prod(shape)

    def tensors(self, x: Array, y: Array, *, tokens: bool = False) -> tuple[Tensor, Tensor]:
        samples = self.inputs(x)
        return samples, samples

    def example(self, shape: Shape, count: int = 1, *, tokens: bool = False) -> tuple[Tensor, Tensor]:
        x, _ = super().example(shape, count)
        return x, x

    def misfit(self, outputs: Shape, shape: Shape) -> str:
        fits = outputs[:1] == (1,) and math.prod(outputs) == self.outputs
        return "" if fits else f"{self.outputs} numbers for each sample, as many as it has"

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(outputs.flatten(1), y.flatten(1))

    def sums(self, outputs: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        errors = (outputs.flatten(1) - y.flatten(1)).cpu().double().square().mean(1)
        return {"error": errors.sum(), "errors": histogram.of_errors(errors)}

    def values(self, sums: Sums) -> Mapping[str, float]:
        found = {name: histogram.quantile(sums["errors"], share) for name, share in _SHARES.items()}
        known = {name: value for name, value in found.items() if value is not None}
        return {"error": ratio(sums["error"][0], sums["samples"][0]), **known}


TASK = Autoencoder
