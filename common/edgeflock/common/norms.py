"""Norms and dot products that steer a method: float64 sums over fixed blocks, the same bits at both ends."""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor

BLOCK = 1 << 18  # elements; part of the result's bits
_SMALL = 1 << 16  # elements of which a float64 copy is cheap


class _Wide(threading.local):
    """Two float64 blocks of each thread, reused: fresh ones cost large vectors ten times the arithmetic."""

    def __init__(self) -> None:
        self.blocks = torch.empty((2, BLOCK), dtype=torch.float64)

    def of(self, place: int, part: Tensor) -> Tensor:
        return self.blocks[place, : part.numel()].copy_(part)


_wide = _Wide()


def dot(a: Tensor, b: Tensor) -> float:
    """Return the inner product of two flat tensors."""
    total = 0.0
    for left, right in zip(torch.split(a, BLOCK), torch.split(b, BLOCK), strict=True):
        total += torch.dot(_wide.of(0, left), _wide.of(1, right)).item()
    return total


def squared_norm(vector: Tensor) -> float:
    """Return ||vector||^2."""
    if vector.numel() <= _SMALL:  # of a small model: fewer calls count more than memory
        block = vector.double()
        return torch.dot(block, block).item()
    total = 0.0
    for part in torch.split(vector, BLOCK):
        block = _wide.of(0, part)
        total += torch.dot(block, block).item()
    return total


def norm(vector: Tensor) -> float:
    """Return the L2 norm of a flat tensor."""
    return math.sqrt(squared_norm(vector))
