"""The interface of a codec: numbers to bytes in pieces, bytes to numbers in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from edgeflock.common.payload.checksum import Buffer

BLOCK = 1 << 18  # numbers: 1 MiB of float32


class ByteSource(Protocol):
    """Encoded bytes in order, with an end."""

    def readinto(self, view: memoryview) -> None:
        """Fill the view, or raise CorruptPayload if fewer bytes are left."""
        ...

    def read(self, n: int) -> memoryview:
        """Return exactly n bytes, valid until the next call, or raise CorruptPayload."""
        ...

    def take(self, limit: int) -> memoryview:
        """Return 1 to limit bytes, valid until the next call; none at the end."""
        ...


class Encoded(NamedTuple):
    """What an encoder made of a flat tensor."""

    pieces: list[Buffer]  # one after the other they are the encoded bytes; none is empty
    clamped: int = 0  # finite numbers too large for the codec, sent as the largest it has


class Codec(ABC):
    """Turns a contiguous flat CPU tensor into bytes and back.

    NaN and infinity stay visible: where the input holds one, some decoded number is not finite.
    """

    name: str
    wire: int  # value of the wire's Codec enum
    stochastic = False  # True: encode needs a generator

    @abstractmethod
    def encode(self, flat: Tensor, *, generator: torch.Generator | None, fraction: float = 0.0) -> Encoded:
        """Return the encoded bytes; identity returns the tensor's own memory."""

    @abstractmethod
    def blocks(self, source: ByteSource, elements: int) -> Iterator[Tensor]:
        """Yield consecutive decoded float32 blocks of at most BLOCK numbers, each valid until the next.

        Raises CorruptPayload, and nothing else, for bytes that no encoder has written.
        """

    @abstractmethod
    def largest(self, elements: int, fraction: float) -> int:
        """Return the most bytes that so many float32 numbers can become."""


def spans(elements: int, size: int = BLOCK) -> Iterator[tuple[int, int]]:
    """Cut a range of numbers into (first, count) pairs of at most `size`."""
    for start in range(0, elements, size):
        yield start, min(size, elements - start)


def limit_infinite(narrow: Tensor, wide: Tensor) -> int:
    """Replace infinities in `narrow` that are finite in `wide` by its largest number; return how many."""
    over = torch.isinf(narrow) & torch.isfinite(wide)
    largest = torch.finfo(narrow.dtype).max
    narrow[over] = torch.sign(wide[over]).mul_(largest).to(narrow.dtype)
    return int(over.sum())
