"""vgg16: Simonyan and Zisserman 2015, configuration D; `body.N` is what torchvision calls `features.N`.

The classifier has two hidden layers of 512 units instead of 4096, after a mean over what is left
of the image.
"""

from __future__ import annotations

from torch import Tensor, nn

from edgeflock.common.models.kit.arguments import choice, share, whole
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.layers import MaxPool2, SeededDropout, normalisation
from edgeflock.common.models.kit.shapes import Shape, image

ARGUMENTS = {
    "norm": choice("group", "batch", "none"),
    "groups": whole(32, high=512),
    "hidden": whole(512),
    "dropout": share(0.5),
}
STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # channels, convolutions before the pooling


class Vgg16(Net):
    """Thirteen convolutions in five stages, each followed by a 2x2 maximum."""

    head_name = "classifier.6"

    def __init__(
        self, shape: Shape, classes: int, norm: str, groups: int, hidden: int, dropout: float
    ) -> None:
        super().__init__()
        channels, _, _ = image("vgg16", shape, smallest=32)
        self.features = hidden
        self.body = nn.Sequential(*_convolutions(channels, norm, groups))
        self.classifier = nn.Sequential(
            *(nn.Linear(512, hidden), nn.ReLU(inplace=True), SeededDropout(dropout)),
            *(nn.Linear(hidden, hidden), nn.ReLU(inplace=True), SeededDropout(dropout)),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(x).mean((2, 3))
        features = self.classifier[:6](x)
        return features, self.classifier[6](features)


def _convolutions(channels: int, norm: str, groups: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for width, count in STAGES:
        for _ in range(count):
            convolution = nn.Conv2d(channels, width, 3, padding=1)
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
            between = [] if norm == "none" else [normalisation(norm, width, groups)]
            layers += [convolution, *between, nn.ReLU(inplace=True)]
            channels = width
        layers.append(MaxPool2())
    return layers


def make(shape: Shape, classes: int, *, norm: str, groups: int, hidden: int, dropout: float) -> Net:
    return Vgg16(shape, classes, norm, groups, hidden, dropout)
