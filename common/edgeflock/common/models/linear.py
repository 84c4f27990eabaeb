"""linear: one linear layer; of classes with the squared error on one-hot labels."""

from __future__ import annotations

import math

import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.shapes import Shape


class Linear(Net):
    """Any input, flattened; of classes loss = mean over batch and classes of (logits - one_hot)^2."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.features = math.prod(shape)
        self.head = nn.Linear(self.features, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = x.flatten(1)
        return features, self.head(features)

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        if not self.task.classes:
            return super().loss(logits, y)
        return F.mse_loss(logits, F.one_hot(y, logits.shape[1]).to(logits.dtype))


def make(shape: Shape, classes: int) -> Net:
    return Linear(shape, classes)
