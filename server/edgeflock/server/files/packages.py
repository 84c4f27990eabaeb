"""Packages that go down: encoded once into a file, or simply the data region of the last checkpoint."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from edgeflock.common.payload.checksum import Buffer, Marks
from edgeflock.common.payload.layout import ModelLayouts
from edgeflock.common.payload.pack import Packed
from edgeflock.common.payload.package import IDENTITY, Kind, Package, Section
from edgeflock.common.payload.tensorfile import Written
from edgeflock.common.wire import chunks
from edgeflock.common.wire.transport import SMALL_CHUNK

INLINE = SMALL_CHUNK  # a package of so many bytes travels with its task: no Fetch is needed
_CACHED_MESSAGES = 8  # clients of a round are near each other: the same chunk is asked for again at once


class Broadcast:
    """One package on disk, read in chunks; safe for several threads."""

    def __init__(
        self, package: Package, marks: Marks, path: Path | str, start: int = 0, *, shared: bool = True
    ) -> None:
        self.package = package
        self._marks = marks
        self._start = start
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDONLY)  # stays good when the file is removed
        self._messages: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self.shared = shared  # what is one client's alone is not kept: memory must not grow with the clients
        small = shared and package.size_bytes <= INLINE
        self.inline = os.pread(self._descriptor, package.size_bytes, start) if small else b""

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def message(self, offset: int, size: int) -> bytes:
        """Return the serialised FetchResponse with the chunk that begins at offset."""
        message = self._make(offset, size)
        if self.shared:
            self._messages[offset, size] = message
            while len(self._messages) > _CACHED_MESSAGES:
                self._messages.popitem(last=False)
        return message

    def cached(self, offset: int, size: int) -> bytes | None:
        """Return the same message if it was made a moment ago."""
        return self._messages.get((offset, size))

    def _make(self, offset: int, size: int) -> bytes:
        size = min(size, self.package.size_bytes - offset)
        data = os.pread(self._descriptor, size, self._start + offset)
        return chunks.write(chunks.IN_FETCH, offset, data, self._marks.at(offset + size))


def of_checkpoint(path: Path | str, written: Written, layouts: ModelLayouts) -> Broadcast:
    """The broadcast of the model as it is: the checkpoint's data region is its payload."""
    named = (
        (Kind.COUNTERS, layouts.counters),
        (Kind.MODEL, layouts.parameters),
        (Kind.BUFFERS, layouts.buffers),
    )
    sections = tuple(
        Section(kind, layout.digest, IDENTITY, layout.elements, layout.size_bytes)
        for kind, layout in named
        if layout.elements
    )
    package = Package(sections, {}, written.marks.value)
    return Broadcast(package, written.marks, path, written.data_start)


def of_pieces(path: str, encoded: Packed, *, shared: bool) -> Broadcast:
    """A package that was encoded for this round; the file is not needed after a crash."""
    _write(path, encoded.pieces)
    return Broadcast(encoded.package, encoded.marks, path, shared=shared)


def _write(path: str, pieces: Sequence[Buffer]) -> None:
    with open(path, "wb", buffering=0) as file:
        for piece in pieces:
            view = memoryview(piece).cast("B")
            while view:
                view = view[file.write(view) :]
