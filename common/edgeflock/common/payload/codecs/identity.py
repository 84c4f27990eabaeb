"""identity: the buffer's own bytes, little endian; the only codec for integers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from edgeflock.common.payload.codecs.base import BLOCK, ByteSource, Codec, Encoded, spans
from edgeflock.common.payload.memory import memory
from edgeflock.v1 import bundle_pb2


class Identity(Codec):
    name = "identity"
    wire = bundle_pb2.CODEC_IDENTITY

    def encode(self, flat: Tensor, *, generator: torch.Generator | None, fraction: float = 0.0) -> Encoded:
        return Encoded([memory(flat)])

    def blocks(self, source: ByteSource, elements: int) -> Iterator[Tensor]:
        return exact(source, elements, torch.float32)

    def largest(self, elements: int, fraction: float) -> int:
        return elements * 4


def exact(source: ByteSource, elements: int, dtype: torch.dtype) -> Iterator[Tensor]:
    """Read numbers of any type straight into one block that is used again."""
    block = torch.empty(min(BLOCK, elements), dtype=dtype)
    view = memory(block)
    for _, count in spans(elements):
        source.readinto(view[: count * dtype.itemsize])
        yield block[:count]
