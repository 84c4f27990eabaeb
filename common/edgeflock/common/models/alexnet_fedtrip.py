"""alexnet-fedtrip: the AlexNet of FedTrip's experiments on CIFAR-10, as its authors' framework has it.

2,729,290 parameters and 145.9 M multiply-adds for 3x32x32 and ten classes, FedTrip's Table III: a large
first convolution without a stride, one hidden layer, and a mean over what is left of the image.
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.models.kit.arguments import share
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.layers import SeededDropout
from edgeflock.common.models.kit.shapes import Shape, image

ARGUMENTS = {"dropout": share(0.5)}
CHANNELS = (64, 192, 384, 256, 256)
SMALLEST = 12  # 10 after the first convolution, 4 and 1 after the poolings
HIDDEN = 1024


class FedTripAlexNet(Net):
    """conv 7x7, pool, conv 5x5, pool, three conv 3x3, mean, 1024 units."""

    def __init__(self, shape: Shape, classes: int, dropout: float) -> None:
        super().__init__()
        channels, _, _ = image("alexnet-fedtrip", shape, smallest=SMALLEST)
        a, b, c, d, e = CHANNELS
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, a, 7, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(a, b, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(b, c, 3, padding=1), nn.ReLU(inplace=True)),
            *(nn.Conv2d(c, d, 3, padding=1), nn.ReLU(inplace=True)),
            *(nn.Conv2d(d, e, 3, padding=1), nn.ReLU(inplace=True)),
        )
        self.dropout = SeededDropout(dropout)
        self.fc = nn.Linear(e, HIDDEN)
        self.head = nn.Linear(HIDDEN, classes)
        self.features = HIDDEN

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.dropout(self.body(x).mean((2, 3)))
        features = self.dropout(F.relu(self.fc(x), inplace=True))
        return features, self.head(features)


def make(shape: Shape, classes: int, *, dropout: float) -> Net:
    return FedTripAlexNet(shape, classes, dropout)
