"""firenet-jadon: FireNet, the small fire-detection CNN of Jadon et al. 2019 (arXiv:1905.11922).

646,818 parameters for 3x64x64 images and two classes.
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.layers import SeededDropout
from edgeflock.common.models.kit.shapes import Shape, image

SMALLEST = 22  # three times: minus 2, halved


class FireNet(Net):
    """Three convolutions 3x3 with average pooling and dropout, 256 and 128 hidden units."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        channels, height, width = image("firenet-jadon", shape, smallest=SMALLEST)
        for _ in range(3):
            height, width = (height - 2) // 2, (width - 2) // 2
        self.conv1 = nn.Conv2d(channels, 16, 3)
        self.conv2 = nn.Conv2d(16, 32, 3)
        self.conv3 = nn.Conv2d(32, 64, 3)
        self.drop_maps = SeededDropout(0.5)
        self.fc1 = nn.Linear(64 * height * width, 256)
        self.drop_units = SeededDropout(0.2)
        self.fc2 = nn.Linear(256, 128)
        self.head = nn.Linear(128, classes)
        self.features = 128

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for convolution in (self.conv1, self.conv2, self.conv3):
            x = self.drop_maps(F.avg_pool2d(F.relu(convolution(x), inplace=True), 2))
        x = self.drop_units(F.relu(self.fc1(x.flatten(1)), inplace=True))
        features = F.relu(self.fc2(x), inplace=True)
        return features, self.head(features)


def make(shape: Shape, classes: int) -> Net:
    return FireNet(shape, classes)
