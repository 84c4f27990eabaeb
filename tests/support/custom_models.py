"""Models of a user's own, each with something that goes wrong elsewhere."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn


class Head(nn.Module):
    """One linear layer, and what stands before it."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(math.prod(shape), classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.before(x.flatten(1)))
        return logits

    def before(self, x: Tensor) -> Tensor:
        return x


def plain(shape: tuple[int, ...], classes: int, **_: Any) -> nn.Module:
    return Head(shape, classes)


class Many(Head):
    """As many small tensors as a layout that takes long to travel has."""

    def __init__(self, shape: tuple[int, ...], classes: int, layers: int) -> None:
        super().__init__(shape, classes)
        self.blocks_of_the_encoder = nn.ModuleList(nn.LayerNorm(1) for _ in range(layers))


def many(shape: tuple[int, ...], classes: int, *, layers: str = "2000") -> nn.Module:
    return Many(shape, classes, int(layers))
