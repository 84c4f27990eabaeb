"""Where encoded bytes come from: a piece of memory or a part of a file."""

from __future__ import annotations

import os

from edgeflock.common.errors import CorruptPayload
from edgeflock.common.payload.checksum import Buffer


class MemorySource:
    """Bytes that lie in memory."""

    def __init__(self, data: Buffer) -> None:
        self._left = memoryview(data).cast("B")

    def readinto(self, view: memoryview) -> None:
        view[:] = self.read(len(view))

    def read(self, n: int) -> memoryview:
        if n > len(self._left):
            raise too_short(n, len(self._left))
        return self.take(n)

    def take(self, limit: int) -> memoryview:
        taken, self._left = self._left[:limit], self._left[limit:]
        return taken


class FileSource:
    """A part of an open file, read with positions of its own: the descriptor may be shared."""

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        self._descriptor = descriptor
        self._position = offset
        self._left = size
        self._buffer = bytearray()

    def readinto(self, view: memoryview) -> None:
        if len(view) > self._left:
            raise too_short(len(view), self._left)
        filled = 0
        while filled < len(view):  # a read may return less than asked for
            count = os.preadv(self._descriptor, [view[filled:]], self._position)
            if not count:
                raise CorruptPayload(f"the file ends {self._left} bytes before its payload does")
            filled += count
            self._position += count
            self._left -= count

    def read(self, n: int) -> memoryview:
        if len(self._buffer) < n:
            self._buffer = bytearray(n)
        view = memoryview(self._buffer)[:n]
        self.readinto(view)
        return view

    def take(self, limit: int) -> memoryview:
        return self.read(min(limit, self._left))


def too_short(wanted: int, left: int) -> CorruptPayload:
    return CorruptPayload(f"the encoded bytes end too early: {wanted} wanted, {left} left")
