"""alexnet: AlexNet's five convolutions cut down to images around 32x32."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.models.kit.arguments import share, whole
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.layers import MaxPool2, SeededDropout
from edgeflock.common.models.kit.shapes import Shape, image

ARGUMENTS = {"hidden": whole(512), "dropout": share(0.5)}
CHANNELS = (64, 192, 384, 256, 256)


class AlexNet(Net):
    """Kernels 3x3 instead of 11x11 and 5x5, pooling 2x2, two hidden layers of `hidden` instead of 4096."""

    def __init__(self, shape: Shape, classes: int, hidden: int, dropout: float) -> None:
        super().__init__()
        channels, height, width = image("alexnet", shape, smallest=16)
        a, b, c, d, e = CHANNELS
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, a, 3, stride=2, padding=1), MaxPool2(), nn.ReLU(inplace=True)),
            *(nn.Conv2d(a, b, 3, padding=1), MaxPool2(), nn.ReLU(inplace=True)),
            *(nn.Conv2d(b, c, 3, padding=1), nn.ReLU(inplace=True)),
            *(nn.Conv2d(c, d, 3, padding=1), nn.ReLU(inplace=True)),
            *(nn.Conv2d(d, e, 3, padding=1), MaxPool2(), nn.ReLU(inplace=True)),
        )
        self.dropout = SeededDropout(dropout)
        self.fc1 = nn.Linear(e * ((height + 1) // 2 // 8) * ((width + 1) // 2 // 8), hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, classes)
        self.features = hidden

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.dropout(self.body(x).flatten(1))
        x = self.dropout(F.relu(self.fc1(x), inplace=True))
        features = F.relu(self.fc2(x), inplace=True)
        return features, self.head(features)


def make(shape: Shape, classes: int, *, hidden: int, dropout: float) -> Net:
    return AlexNet(shape, classes, hidden, dropout)
