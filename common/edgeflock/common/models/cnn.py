"""cnn: two convolutions and two fully connected layers for images of any size from 8x8."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.models.kit.arguments import share, whole
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.layers import SeededDropout, max_pool2
from edgeflock.common.models.kit.shapes import Shape, image

ARGUMENTS = {"width": whole(16, high=1024), "hidden": whole(64), "dropout": share(0.0)}


class Cnn(Net):
    """conv 3x3, pool, conv 3x3 with twice the channels, pool, fully connected, head."""

    def __init__(self, shape: Shape, classes: int, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        channels, height, wide = image("cnn", shape, smallest=8)
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.fc = nn.Linear(2 * width * (height // 4) * (wide // 4), hidden)
        self.dropout = SeededDropout(dropout)
        self.head = nn.Linear(hidden, classes)
        self.features = hidden

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(max_pool2(self.conv1(x)), inplace=True)  # ReLU and maximum commute
        x = F.relu(max_pool2(self.conv2(x)), inplace=True)
        features = self.dropout(F.relu(self.fc(x.flatten(1)), inplace=True))
        return features, self.head(features)


def make(shape: Shape, classes: int, *, width: int, hidden: int, dropout: float) -> Net:
    return Cnn(shape, classes, width, hidden, dropout)
