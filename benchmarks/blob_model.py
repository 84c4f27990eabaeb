"""A model of an exact size in a given number of tensors, whose forward pass costs nothing."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

MIB = 1 << 20


class Blob(nn.Module):
    """Parameters that are only there to be moved."""

    def __init__(self, classes: int, elements: int, tensors: int) -> None:
        super().__init__()
        self.classes = classes
        ends = [elements * number // tensors for number in range(tensors + 1)]
        sizes = [end - start for start, end in pairwise(ends)]
        self.parts = nn.ParameterList(nn.Parameter(torch.full((size,), 1e-3)) for size in sizes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = x.flatten(1)
        return features, features[:, :1] * self.parts[0][: self.classes]


def factory(input_shape: tuple[int, ...], classes: int, mib: str = "1", tensors: str = "1") -> nn.Module:
    """Make a model of `mib` MiB of float32 in `tensors` tensors of nearly equal size."""
    return Blob(classes, math.floor(float(mib) * MIB / 4), int(tensors))
