"""Norms and dot products that steer a method: float64 sums over fixed blocks, the same bits at both ends."""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor

BLOCK = 1 << 18  # elements; part of the result's bits
_SMALL = 1 << 16  # elements of which a float64 copy is cheap
_ROW = 1 << 10  # elements whose squares are summed in float32
_TRUSTED = (1e-25, 1e30)  # sums of squares that float32 has neither lost below nor above


def has_float64(device: torch.device) -> bool:
    """Whether a device knows such numbers; Apple's GPUs do not."""
    return device.type != "mps"


def precise(tensor: Tensor) -> Tensor:
    """Return the tensor where it can be made float64: itself, or a copy on the CPU."""
    return tensor if has_float64(tensor.device) else tensor.cpu()


class _Wide(threading.local):
    """Blocks of each thread, reused: fresh ones cost large vectors ten times the arithmetic."""

    def __init__(self) -> None:
        self.blocks = torch.empty((2, BLOCK), dtype=torch.float64)

    def of(self, place: int, part: Tensor) -> Tensor:
        return self.blocks[place, : part.numel()].copy_(precise(part))


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
        block = precise(vector).double()
        return torch.dot(block, block).item()
    total = 0.0
    for part in torch.split(vector, BLOCK):
        block = _wide.of(0, part)
        total += torch.dot(block, block).item()
    return total


def quick_squared_norm(vector: Tensor) -> float:
    """Return ||vector||^2 to eight digits for a fifth of the price: for the fold, which must keep up.

    Squares are summed in float32 within a short row, in float64 over the rows.
    """
    total = 0.0
    for part in torch.split(vector, BLOCK):
        even = part.numel() // _ROW * _ROW
        rows = torch.linalg.vector_norm(part[:even].view(-1, _ROW), dim=1)
        rows, rest = precise(rows).double(), precise(part[even:]).double()
        found = torch.dot(rows, rows).item()
        found += torch.dot(rest, rest).item()
        total += found if _TRUSTED[0] < found < _TRUSTED[1] else squared_norm(part)
    return total


def norm(vector: Tensor) -> float:
    """Return the L2 norm of a flat tensor."""
    return math.sqrt(squared_norm(vector))
