"""zstd level 1 around any codec, inflated only as far as the codec asks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, cast

import zstandard

from edgeflock.common.errors import CorruptPayload
from edgeflock.common.payload.checksum import Buffer
from edgeflock.common.payload.codecs.base import ByteSource
from edgeflock.common.payload.codecs.sources import too_short

LEVEL = 1
SLICE = 1 << 20  # bytes given to the compressor at once
READ = 1 << 17  # bytes taken from the source at once
WINDOW = 1 << 23  # the most a frame may ask us to remember


def deflate(pieces: Iterable[Buffer]) -> list[Buffer]:
    """Return the compressed bytes of all pieces as one frame; the same bytes for the same content."""
    views = [memoryview(piece).cast("B") for piece in pieces]
    frame = zstandard.ZstdCompressor(level=LEVEL).compressobj(size=sum(map(len, views)))
    found = [
        frame.compress(view[start : start + SLICE]) for view in views for start in range(0, len(view), SLICE)
    ]
    return [piece for piece in [*found, frame.flush()] if piece]


def bound(size: int) -> int:
    """Return the most bytes that `deflate` can make of so many: zstd's own bound, generously."""
    return size + (size >> 8) + 1024


class Inflated:
    """The decompressed bytes of another source; never more of them in memory than were asked for."""

    def __init__(self, source: ByteSource) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW)
        self._stream = decompressor.stream_reader(
            cast("IO[bytes]", _SourceFile(source)), read_size=READ, read_across_frames=True
        )
        self._buffer = bytearray()

    def readinto(self, view: memoryview) -> None:
        filled = 0
        while filled < len(view):
            count = self._some(view[filled:])
            if not count:
                raise too_short(len(view), filled)
            filled += count

    def read(self, n: int) -> memoryview:
        view = self._room(n)
        self.readinto(view)
        return view

    def take(self, limit: int) -> memoryview:
        view = self._room(limit)
        return view[: self._some(view)]

    def _room(self, n: int) -> memoryview:
        if len(self._buffer) < n:
            self._buffer = bytearray(n)
        return memoryview(self._buffer)[:n]

    def _some(self, view: memoryview) -> int:
        try:
            return self._stream.readinto(view)
        except zstandard.ZstdError as error:
            raise CorruptPayload(f"the bytes are not what zstd writes: {error}") from None


class _SourceFile:
    """The one method of a file that zstandard calls."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source

    def read(self, n: int) -> bytes:
        return bytes(self._source.take(n))
