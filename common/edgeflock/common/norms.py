"""Norms and dot products that steer a method: float64 sums over fixed blocks, the same bits at both ends."""

from __future__ import annotations

import math

import torch
from torch import Tensor

BLOCK = 1 << 16  # elements; part of the result's bits


def dot(a: Tensor, b: Tensor) -> float:
    """Return the inner product of two flat tensors."""
    total = 0.0
    for start in range(0, a.numel(), BLOCK):
        left, right = a[start : start + BLOCK], b[start : start + BLOCK]
        total += float(torch.dot(left.double(), right.double()))
    return total


def squared_norm(vector: Tensor) -> float:
    """Return ||vector||^2."""
    total = 0.0
    for start in range(0, vector.numel(), BLOCK):
        block = vector[start : start + BLOCK].double()
        total += float(torch.dot(block, block))
    return total


def norm(vector: Tensor) -> float:
    """Return the L2 norm of a flat tensor."""
    return math.sqrt(squared_norm(vector))
