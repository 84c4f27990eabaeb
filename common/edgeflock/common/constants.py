"""What the constants of a model are, as one end tells the other: digests, and weighted sums."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from edgeflock.common.payload.constant import Constant
from edgeflock.common.payload.layout import DIGEST_BYTES

_GOLDEN = 0.6180339887498949


def described(constants: Mapping[str, Tensor]) -> tuple[Constant, ...]:
    return tuple(_described(name, tensor.detach().cpu()) for name, tensor in sorted(constants.items()))


def _described(name: str, tensor: Tensor) -> Constant:
    flat = tensor.reshape(-1)
    numbers = flat.double()
    codes = torch.isnan(numbers) * 1 + torch.isposinf(numbers) * 2 + torch.isneginf(numbers) * 3
    finite = torch.where(codes == 0, numbers, 0.0)
    weights = (torch.arange(1, flat.numel() + 1, dtype=torch.float64) * _GOLDEN).frac() + 0.5
    total, scale = math.fsum((finite * weights).tolist()), math.fsum((finite.abs() * weights).tolist())
    kind = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    digest, special = _digest(kind + _bytes(flat)), _digest(_bytes(codes.to(torch.int8)))
    return Constant(name, tuple(tensor.shape), digest, special, total, scale)


def _bytes(flat: Tensor) -> bytes:
    return flat.contiguous().view(torch.uint8).numpy().tobytes()


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:DIGEST_BYTES]
