"""cnn-lrn: the CNN of Wang et al. 2019, FedADM's ancestor: conv 5x5 twice, local response normalisation.

430,698 parameters for 1x28x28 and ten classes, 555,178 for 3x32x32. Initial values as in the authors' code:
weights from a normal distribution of deviation .1 cut at two deviations, biases .1.
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.layers import padded
from edgeflock.common.models.kit.shapes import Shape, image

CHANNELS, HIDDEN, DEVIATION, BIAS = 32, 256, 0.1, 0.1


class CnnLrn(Net):
    """conv 5x5, pool, norm, conv 5x5, norm, pool, 256 units."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        channels, height, width = image("cnn-lrn", shape, smallest=4)
        self.conv1 = nn.Conv2d(channels, CHANNELS, 5, padding=2)
        self.conv2 = nn.Conv2d(CHANNELS, CHANNELS, 5, padding=2)
        self.norm = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)
        self.fc = nn.Linear(CHANNELS * -(-height // 4) * -(-width // 4), HIDDEN)
        self.head = nn.Linear(HIDDEN, classes)
        self.features = HIDDEN
        for name, values in self.named_parameters():
            if name.endswith("bias"):
                nn.init.constant_(values, BIAS)
            else:
                nn.init.trunc_normal_(values, std=DEVIATION, a=-2 * DEVIATION, b=2 * DEVIATION)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(self.conv1(x), inplace=True)
        x = self.norm(F.max_pool2d(padded(x, 2, 2), 2))
        x = self.norm(F.relu(self.conv2(x), inplace=True))
        x = F.max_pool2d(padded(x, 2, 2), 2)
        features = F.relu(self.fc(x.flatten(1)), inplace=True)
        return features, self.head(features)


def make(shape: Shape, classes: int) -> Net:
    return CnnLrn(shape, classes)
