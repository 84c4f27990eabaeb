"""svm: the smooth linear support vector machine of Wang et al. 2019, even against odd labels."""

from __future__ import annotations

import math

from torch import Tensor, nn

from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.shapes import Shape

PENALTY = 0.1  # lambda of lambda/2 ||w||^2


class SupportVectorMachine(Net):
    """Squared hinge 1/2 mean max(0, 1 - s w.x)^2 + 0.1/2 ||w||^2 with s = +1 for even labels, -1 for odd.

    No bias, w_0 = 0 (METHODS section 4); the logit is w.x.
    """

    tasks = ("classification",)

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.features = math.prod(shape)
        self.head = nn.Linear(self.features, 1, bias=False)
        nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = x.flatten(1)
        return features, self.head(features)

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        signs = 1 - 2 * (y % 2).to(logits.dtype)
        hinge = (1 - signs * logits[:, 0]).clamp_min(0)
        return 0.5 * hinge.square().mean() + 0.5 * PENALTY * self.head.weight.square().sum()

    def hits(self, logits: Tensor, y: Tensor) -> Tensor:
        """Count by parity; a logit of exactly 0 says odd."""
        return ((logits[:, 0] > 0) == (y % 2 == 0)).sum()

    def answer(self, logits: Tensor) -> Tensor:
        """Return the parity: 0 for an even label, 1 for an odd one."""
        return (logits[:, 0] <= 0).long()


def make(shape: Shape, classes: int) -> Net:
    return SupportVectorMachine(shape)
