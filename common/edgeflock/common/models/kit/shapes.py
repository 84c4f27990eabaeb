"""Input shapes: what a model makes of a vector or an image, and the refusal of what it cannot take."""

from __future__ import annotations

import math

import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.errors import BadValue

Shape = tuple[int, ...]


def text(shape: Shape) -> str:
    """Return a shape as people write it: 3x32x32."""
    return "x".join(map(str, shape)) or "a single number"


def refuse(model: str, shape: Shape, allowed: str) -> BadValue:
    """Return the sentence about an input shape that the model does not take."""
    return BadValue(f"input shape of {model}", text(shape), allowed)


def image(model: str, shape: Shape, *, smallest: int) -> tuple[int, int, int]:
    """Return (channels, height, width) of an image at least `smallest` wide and high."""
    allowed = f"channels x height x width with sides of at least {smallest}"
    if len(shape) != 3 or min(shape) < 1 or min(shape[1:]) < smallest:
        raise refuse(model, shape, allowed)
    return shape[0], shape[1], shape[2]


class AsImage(nn.Module):
    """Vectors become square images, zeros at the end (561 -> 24x24); images too small for two k5 convolutions
    are enlarged by whole factors, every pixel repeated (8x8 -> 16x16)."""

    def __init__(self, model: str, shape: Shape, *, smallest: int) -> None:
        super().__init__()
        if len(shape) not in (1, 3) or min(shape) < 1:
            raise refuse(model, shape, "a vector or channels x height x width")
        self.side = math.isqrt(shape[0] - 1) + 1 if len(shape) == 1 else 0  # of a vector's square
        self.zeros = self.side * self.side - shape[0]
        channels, height, width = (1, self.side, self.side) if self.side else image(model, shape, smallest=1)
        self.scale = max(1, math.ceil(smallest / min(height, width)))
        self.shape = (channels, height * self.scale, width * self.scale)

    def forward(self, x: Tensor) -> Tensor:
        if self.side:
            x = F.pad(x, (0, self.zeros)).view(-1, 1, self.side, self.side)
        if self.scale > 1:
            x = x.repeat_interleave(self.scale, 2).repeat_interleave(self.scale, 3)
        return x
