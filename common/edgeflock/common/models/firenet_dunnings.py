"""firenet-dunnings: FireNet of Dunnings and Breckon 2018, a cut-down AlexNet, which pFedMo cites.

68,342,914 parameters for 3x224x224 images and two classes. As in the authors' code every convolution and
pooling pads what its windows lack, at the end first, and a number is normalised over eleven channels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.models.kit.arguments import share, whole
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.layers import SeededDropout, padded
from edgeflock.common.models.kit.shapes import Shape, image

ARGUMENTS = {"hidden": whole(4096), "dropout": share(0.5)}
CHANNELS = (64, 128, 256)


class DunningsFireNet(Net):
    """conv 5x5 stride 4, conv 4x4 and conv 1x1, each with pooling and normalisation, two hidden layers."""

    def __init__(self, shape: Shape, classes: int, hidden: int, dropout: float) -> None:
        super().__init__()
        channels, height, width = image("firenet-dunnings", shape, smallest=8)
        a, b, c = CHANNELS
        self.conv1 = nn.Conv2d(channels, a, 5, stride=4)
        self.conv2 = nn.Conv2d(a, b, 4)
        self.conv3 = nn.Conv2d(b, c, 1)
        self.norm = nn.LocalResponseNorm(11, alpha=11e-4, beta=0.75, k=1.0)  # 1e-4 for each channel
        self.dropout = SeededDropout(dropout)
        self.fc1 = nn.Linear(c * -(-height // 32) * -(-width // 32), hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, classes)
        self.features = hidden

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for convolution in (self.conv1, self.conv2, self.conv3):
            size, stride = convolution.kernel_size[0], convolution.stride[0]
            x = F.relu(convolution(padded(x, size, stride)), inplace=True)
            x = self.norm(F.max_pool2d(padded(x, 3, 2), 3, 2))  # a zero is never above what a ReLU leaves
        x = self.dropout(torch.tanh(self.fc1(x.flatten(1))))
        features = self.dropout(torch.tanh(self.fc2(x)))
        return features, self.head(features)


def make(shape: Shape, classes: int, *, hidden: int, dropout: float) -> Net:
    return DunningsFireNet(shape, classes, hidden, dropout)
