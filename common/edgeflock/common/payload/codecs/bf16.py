"""bf16: the upper half of float32, rounded to nearest even."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from edgeflock.common.payload.codecs.base import BLOCK, ByteSource, Codec, Encoded, limit_infinite, spans
from edgeflock.common.payload.memory import memory
from edgeflock.v1 import bundle_pb2


class Bf16(Codec):
    name = "bf16"
    wire = bundle_pb2.CODEC_BF16

    def encode(self, flat: Tensor, *, generator: torch.Generator | None, fraction: float = 0.0) -> Encoded:
        out = flat.to(torch.bfloat16)
        clamped = limit_infinite(out, flat) if torch.isinf(out).any() else 0
        return Encoded([memory(out.view(torch.int16))], clamped)

    def blocks(self, source: ByteSource, elements: int) -> Iterator[Tensor]:
        block = torch.empty(min(BLOCK, elements))
        halves = torch.empty(block.numel(), dtype=torch.int16)
        view = memory(halves)
        for _, count in spans(elements):
            source.readinto(view[: count * 2])
            yield block[:count].copy_(halves[:count].view(torch.bfloat16))

    def largest(self, elements: int, fraction: float) -> int:
        return elements * 2
