"""fp16: half precision with a power-of-two scale per block, for deltas are subnormal as they are.

Per block of 2^18 numbers: the exponent e (int16), then the numbers times 2^e as float16.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from edgeflock.common.errors import CorruptPayload
from edgeflock.common.payload.codecs.base import BLOCK, ByteSource, Codec, Encoded, limit_infinite, spans
from edgeflock.common.payload.memory import memory
from edgeflock.v1 import bundle_pb2

TOP = 16  # the largest of a block lies in [2^15, 2^16), what would round up to 2^16 is clamped
LOW, HIGH = TOP - 128, 126  # 2^e and 2^-e are normal in float32


class Fp16(Codec):
    name = "fp16"
    wire = bundle_pb2.CODEC_FP16

    def encode(self, flat: Tensor, *, generator: torch.Generator | None, fraction: float = 0.0) -> Encoded:
        out = torch.empty(self.largest(flat.numel(), 0) // 2, dtype=torch.int16)
        position = clamped = 0
        for start, count in spans(flat.numel()):
            halves = out[position + 1 : position + 1 + count].view(torch.float16)
            exponent, over = _shrink(flat[start : start + count], halves)
            out[position] = exponent
            position, clamped = position + 1 + count, clamped + over
        return Encoded([memory(out)], clamped)

    def blocks(self, source: ByteSource, elements: int) -> Iterator[Tensor]:
        block = torch.empty(min(BLOCK, elements))
        halves = torch.empty(block.numel(), dtype=torch.float16)
        view = memory(halves)
        for _, count in spans(elements):
            exponent = int.from_bytes(source.read(2), "little", signed=True)
            if not LOW <= exponent <= HIGH:
                raise CorruptPayload(f"fp16 exponent is {exponent}, allowed is {LOW} to {HIGH}")
            source.readinto(view[: count * 2])
            yield block[:count].copy_(halves[:count]).mul_(2.0**-exponent)

    def largest(self, elements: int, fraction: float) -> int:
        return elements * 2 + -(-elements // BLOCK) * 2


def _shrink(block: Tensor, halves: Tensor) -> tuple[int, int]:
    """Write the scaled block; return its exponent and how many numbers were clamped."""
    peak = _peak(block)
    exponent = min(HIGH, TOP - math.frexp(peak)[1]) if peak else 0
    scaled = block * 2.0**exponent
    halves.copy_(scaled)
    over = peak * 2.0**exponent > torch.finfo(torch.float16).max
    return exponent, limit_infinite(halves, scaled) if over else 0


def _peak(block: Tensor) -> float:
    """Return the largest finite magnitude."""
    low, high = (float(end) for end in torch.aminmax(block))
    if math.isfinite(low) and math.isfinite(high):
        return max(-low, high)
    finite = block[torch.isfinite(block)]
    return float(finite.abs().max()) if finite.numel() else 0.0
