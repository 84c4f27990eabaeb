"""logistic: one linear layer with the softmax cross entropy."""

from __future__ import annotations

import math

from torch import Tensor, nn

from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.shapes import Shape


class Logistic(Net):
    """Multinomial logistic regression of any input, flattened."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.features = math.prod(shape)
        self.head = nn.Linear(self.features, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = x.flatten(1)
        return features, self.head(features)


def make(shape: Shape, classes: int) -> Net:
    return Logistic(shape, classes)
