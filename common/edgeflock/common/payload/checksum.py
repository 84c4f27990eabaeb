"""Running CRC-32C of a payload, with marks at every granule so that any chunk's checksum is a look-up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import crc32c as _crc32c

Buffer: TypeAlias = bytes | bytearray | memoryview

GRANULE = 256 * 1024  # chunks begin at multiples of this, in bytes


def extend(running: int, data: Buffer) -> int:
    """Return the checksum of everything so far followed by data."""
    return int(_crc32c.crc32c(data, running))


class Marks:
    """The running checksum of a payload at every granule's end and at its own end."""

    def __init__(self) -> None:
        self.size = 0
        self.value = 0
        self._ends: list[int] = []

    @classmethod
    def of(cls, pieces: Iterable[Buffer]) -> Marks:
        marks = cls()
        for piece in pieces:
            marks.add(piece)
        return marks

    def add(self, data: Buffer) -> None:
        """Take the next bytes of the payload, however they are cut."""
        view, start = memoryview(data).cast("B"), 0
        while start < len(view):
            end = min(len(view), start + GRANULE - self.size % GRANULE)
            self.value = extend(self.value, view[start:end])
            self.size += end - start
            if self.size % GRANULE == 0:
                self._ends.append(self.value)
            start = end

    def at(self, offset: int) -> int:
        """Return the checksum of the first `offset` bytes: a multiple of the granule, or the size."""
        if offset == 0:
            return 0
        return self.value if offset == self.size else self._ends[offset // GRANULE - 1]

    def cut(self, offset: int) -> None:
        """Forget all bytes from offset on; offset is a multiple of the granule or the size."""
        self.value, self.size = self.at(offset), offset
        del self._ends[offset // GRANULE :]
