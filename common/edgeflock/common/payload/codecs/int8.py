"""int8: 8 bits with a scale per row of 1024 numbers, rounded stochastically, hence unbiased.

Per block of 2^18 numbers: one float32 scale per row, then one int8 per number; number = int8 * scale.
A row with NaN or infinity has a scale that is not finite.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from edgeflock.common.payload.codecs.base import BLOCK, ByteSource, Codec, Encoded, spans
from edgeflock.common.payload.memory import memory
from edgeflock.v1 import bundle_pb2

ROW = 1024
STEPS = 127
TINY = torch.finfo(torch.float32).tiny  # a smaller scale could be zero
HUGE = torch.finfo(torch.float32).max / 127.001  # with a larger one, 127 steps could be infinite


class Int8(Codec):
    name = "int8"
    wire = bundle_pb2.CODEC_INT8
    stochastic = True

    def encode(self, flat: Tensor, *, generator: torch.Generator | None, fraction: float = 0.0) -> Encoded:
        if generator is None:
            raise ValueError("int8 rounds stochastically and needs a generator")
        out = torch.empty(self.largest(flat.numel(), 0), dtype=torch.int8)
        scratch = torch.empty(min(BLOCK, _rows(flat.numel()) * ROW))
        position = 0
        for start, count in spans(flat.numel()):
            scales, steps = _quantise(flat[start : start + count], scratch, generator)
            head = position + scales.numel() * 4
            out[position:head] = scales.view(torch.int8)
            out[head : head + count].copy_(steps)
            position = head + count
        return Encoded([memory(out)])

    def blocks(self, source: ByteSource, elements: int) -> Iterator[Tensor]:
        rows = min(BLOCK // ROW, _rows(elements))
        block, scales = torch.empty(rows, ROW), torch.empty(rows, 1)
        steps = torch.zeros(rows, ROW, dtype=torch.int8)
        scales_view, steps_view = memory(scales), memory(steps)
        for _, count in spans(elements):
            used = _rows(count)
            source.readinto(scales_view[: used * 4])
            source.readinto(steps_view[:count])
            torch.mul(steps[:used], scales[:used], out=block[:used])
            yield block.view(-1)[:count]

    def largest(self, elements: int, fraction: float) -> int:
        return elements + _rows(elements) * 4


def _rows(elements: int) -> int:
    return -(-elements // ROW)


def _quantise(block: Tensor, scratch: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the scale of every row and the block in whole steps (as floats, in the scratch)."""
    count, rows = block.numel(), _rows(block.numel())
    steps = scratch[: rows * ROW]
    steps[count:] = 0
    torch.abs(block, out=steps[:count])
    scales = steps.view(rows, ROW).amax(1).div_(STEPS)
    scales = torch.where(torch.isfinite(scales), scales.clamp(TINY, HUGE), scales)
    steps[:count] = block
    steps.view(rows, ROW).div_(scales.view(rows, 1))
    if not torch.isfinite(scales).all():
        steps.nan_to_num_(0.0)  # what NaN becomes as an integer differs between machines
    steps.add_(_noise(steps.numel(), generator)).floor_().clamp_(-STEPS, STEPS)
    return scales, steps[:count]


def _noise(count: int, generator: torch.Generator) -> Tensor:
    """Return numbers uniform over the 2^16 middles of (0, 1), four from each draw: draws are what costs."""
    draws = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return draws.view(torch.int16)[:count].to(torch.float32).add_(32768.5).mul_(2.0**-16)
