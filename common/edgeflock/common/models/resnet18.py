"""resnet18: He et al. 2016, with torchvision's parameter names but without torchvision, which devices lack.

The stem: 7x7 stride 2 and a 3x3 maximum as torchvision's (`large`), or 3x3 stride 1 without pooling
(`small`), which images below 64x64 get unless told otherwise.
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.models.kit.arguments import choice, whole
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.layers import normalisation
from edgeflock.common.models.kit.shapes import Shape, image

ARGUMENTS = {
    "norm": choice("group", "batch"),
    "groups": whole(32, high=512),
    "stem": choice("auto", "small", "large"),
}


class Residual(nn.Module):
    """Two convolutions 3x3 and a shortcut; names as in torchvision's BasicBlock."""

    def __init__(self, inner: int, outer: int, stride: int, norm: str, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride=stride, padding=1, bias=False)
        self.bn1 = normalisation(norm, outer, groups)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.bn2 = normalisation(norm, outer, groups)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inner != outer:
            shortcut = nn.Conv2d(inner, outer, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, normalisation(norm, outer, groups))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(x)).add_(shortcut), inplace=True)


class ResNet18(Net):
    """Four stages of two blocks, mean over the image, head `fc`."""

    head_name = "fc"

    def __init__(self, shape: Shape, classes: int, norm: str, groups: int, stem: str) -> None:
        super().__init__()
        channels, height, width = image("resnet18", shape, smallest=8)
        self.large = stem == "large" or (stem == "auto" and min(height, width) >= 64)
        kernel, stride = (7, 2) if self.large else (3, 1)
        self.conv1 = nn.Conv2d(channels, 64, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.bn1 = normalisation(norm, 64, groups)
        self.layer1 = nn.Sequential(Residual(64, 64, 1, norm, groups), Residual(64, 64, 1, norm, groups))
        self.layer2 = nn.Sequential(Residual(64, 128, 2, norm, groups), Residual(128, 128, 1, norm, groups))
        self.layer3 = nn.Sequential(Residual(128, 256, 2, norm, groups), Residual(256, 256, 1, norm, groups))
        self.layer4 = nn.Sequential(Residual(256, 512, 2, norm, groups), Residual(512, 512, 1, norm, groups))
        self.fc = nn.Linear(512, classes)
        self.features = 512
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        if self.large:
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        features = x.mean((2, 3))
        return features, self.fc(features)


def make(shape: Shape, classes: int, *, norm: str, groups: int, stem: str) -> Net:
    return ResNet18(shape, classes, norm, groups, stem)
