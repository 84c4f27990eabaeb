"""lenet5: LeCun's LeNet-5 with ReLU and max pooling, the CNN of FedTrip, FedTR and pFedMo.

conv 6@5x5, pool, conv 16@5x5, pool, conv 120 over all that is left, fc 84, fc C.
Inputs: 1x28x28 (61,706 parameters with 10 classes), 3x32x32 (62,006), HAR's 561 numbers as 1x24x24
(44,086 with 6), digits' 8x8 with every pixel doubled; the first convolution pads by 2 below 32x32.
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.layers import max_pool2
from edgeflock.common.models.kit.shapes import AsImage, Shape

SMALLEST = 16  # below it nothing is left after the second pooling
UNPADDED = 32


class LeNet5(Net):
    """Computes ReLU after the pooling and conv3 as a matrix product: the same function in less time."""

    head_name = "fc2"

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.as_image = AsImage("lenet5", shape, smallest=SMALLEST)
        channels, height, width = self.as_image.shape
        padding = 2 if min(height, width) < UNPADDED else 0
        left = tuple(((side + 2 * padding - 4) // 2 - 4) // 2 for side in (height, width))
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=padding)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.conv3 = nn.Conv2d(16, 120, (left[0], left[1]))
        self.fc1 = nn.Linear(120, 84)
        self.fc2 = nn.Linear(84, classes)
        self.features = 84

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.as_image(x)
        x = F.relu(max_pool2(self.conv1(x)), inplace=True)
        x = F.relu(max_pool2(self.conv2(x)), inplace=True)
        x = F.relu(F.linear(x.flatten(1), self.conv3.weight.flatten(1), self.conv3.bias), inplace=True)
        features = F.relu(self.fc1(x), inplace=True)
        return features, self.fc2(features)


def make(shape: Shape, classes: int) -> Net:
    return LeNet5(shape, classes)
