"""top-k: the largest entries with their positions; what is not sent is the residual, kept by the sender.

Per cell of 2^16 numbers: count (uint32), positions inside the cell (uint16, ascending), values (float32).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edgeflock.common.errors import BadValue, CorruptPayload
from edgeflock.common.payload.checksum import Buffer
from edgeflock.common.payload.codecs.base import BLOCK, ByteSource, Codec, Encoded, spans
from edgeflock.v1 import bundle_pb2

CELL = 1 << 16
ENTRY_BYTES = 2 + 4

Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]


class TopK(Codec):
    name = "topk"
    wire = bundle_pb2.CODEC_TOPK

    def encode(self, flat: Tensor, *, generator: torch.Generator | None, fraction: float = 0.0) -> Encoded:
        values: Floats = flat.numpy()
        places = largest_places(values, kept(flat.numel(), fraction))
        pieces: list[Buffer] = []
        for start, count in spans(flat.numel(), CELL):
            first, last = np.searchsorted(places, (start, start + count))
            inside = places[first:last]
            pieces.append(len(inside).to_bytes(4, "little"))
            pieces.append((inside - start).astype("<u2").tobytes() + values[inside].tobytes())
        return Encoded([b"".join(pieces)])

    def blocks(self, source: ByteSource, elements: int) -> Iterator[Tensor]:
        block = torch.empty(min(BLOCK, elements))
        dense: Floats = block.numpy()
        for _, count in spans(elements):
            dense[:count] = 0
            for start, length in spans(count, CELL):
                _fill(source, dense[start : start + length])
            yield block[:count]

    def largest(self, elements: int, fraction: float) -> int:
        return kept(elements, fraction) * ENTRY_BYTES + -(-elements // CELL) * 4


def kept(elements: int, fraction: float) -> int:
    """Return how many entries are sent at most: the fraction, rounded up."""
    if not 0 < fraction <= 1:
        raise BadValue("fraction", fraction, "a number in (0, 1]")
    return math.ceil(elements * fraction)


def largest_places(values: Floats, count: int) -> Places:
    """Return the positions of the largest magnitudes, ascending.

    Of equal ones the first win, zeros are left out, NaN counts as infinite.
    """
    sizes = np.abs(values)
    sizes[np.isnan(sizes)] = np.inf
    border = np.float32(0)
    if 0 < count < len(sizes):
        border = np.partition(sizes, len(sizes) - count)[len(sizes) - count]
    above = np.flatnonzero(sizes > border)
    equal = np.flatnonzero(sizes == border)[: count - len(above)] if border > 0 else above[:0]
    return np.sort(np.concatenate([above, equal]))


def _fill(source: ByteSource, cell: Floats) -> None:
    """Put the entries of one cell into place."""
    count = int.from_bytes(source.read(4), "little")
    if count > len(cell):
        raise CorruptPayload(f"top-k cell of {len(cell)} numbers states {count} entries")
    places = np.frombuffer(source.read(count * 2), dtype="<u2").astype(np.int64)
    if count and (places[-1] >= len(cell) or (np.diff(places) <= 0).any()):
        raise CorruptPayload("top-k positions are not ascending inside their cell")
    cell[places] = np.frombuffer(source.read(count * 4), dtype="<f4")
