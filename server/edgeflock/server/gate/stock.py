"""What a gate has on its disk: the updates of its clients until they are complete, and packages to send."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from edgeflock.common.errors import CorruptPayload
from edgeflock.common.payload.checksum import Marks, extend
from edgeflock.common.payload.package import Package
from edgeflock.common.threads import computing
from edgeflock.common.wire.transport import CHUNK
from edgeflock.server.files.packages import Broadcast
from edgeflock.server.files.spool import Spool, SpoolEntry

T = TypeVar("T")

_MOST_PACKAGES = 8
_RUN = "run"  # a file: of which run the updates here are


class GateStock:
    """Files and the threads that work with them."""

    def __init__(self, root: Path) -> None:
        self._root, self._spool = root, Spool(root / "spool")
        self._threads = computing(4, "spool")
        self._opening = computing(1, "opening")  # what a later round does to the spool comes later
        self._entries: dict[tuple[int, int], SpoolEntry] = {}
        self._packages: OrderedDict[bytes, asyncio.Future[Broadcast]] = OrderedDict()

    def begin(self, run_id: str) -> None:
        """Serve this run: what is left of another is nobody's."""
        self._entries.clear()
        (self._root / "spool").mkdir(parents=True, exist_ok=True)
        mark = self._root / _RUN
        if not mark.exists() or mark.read_text("utf-8") != run_id:
            shutil.rmtree(self._root / "spool")
            (self._root / "spool").mkdir()
            mark.write_text(run_id, "utf-8")

    async def write(self, work: Callable[..., T], *arguments: object) -> T:
        """Run in a thread for small disk operations."""
        return await _in_thread(self._threads, work, *arguments)

    # ------------------------------------------------------------------------------- updates

    async def entry(self, round: int, seat: int, limit: int) -> SpoolEntry:
        """Return where an update goes, with what is here of it; raises OSError if there is no room."""
        if (round, seat) not in self._entries:
            made = await _in_thread(self._opening, self._prepare, round, seat, limit)
            self._entries = {key: one for key, one in self._entries.items() if key[0] >= round - 1}
            self._entries.setdefault((round, seat), made)
        return self._entries[round, seat]

    def _prepare(self, round: int, seat: int, limit: int) -> SpoolEntry:
        """Whoever was here two rounds ago is as good as here: their files are used again."""
        before, now = self._root / "spool" / f"{round - 2:06d}", self._root / "spool" / f"{round:06d}"
        if before.exists() and not now.exists():
            known = {int(path.name[:6]) for path in before.glob("*.data")}
            self._spool.prepare(round, known | {seat}, limit)
        return self._spool.prepare(round, (seat,), limit)[seat]

    # ------------------------------------------------------------------------------- packages

    async def package(
        self, package: Package, shared: bool, supply: Callable[[], AsyncIterator[bytes]]
    ) -> Broadcast:
        """Return a package, supplied once for all who ask for it at the same time or later."""
        if not shared:
            return await self._supplied(package, shared, supply)
        digest = package.digest
        if digest not in self._packages:
            made = self._packages[digest] = asyncio.ensure_future(self._supplied(package, shared, supply))
            made.add_done_callback(partial(self._drop_failed, digest))
            while len(self._packages) > _MOST_PACKAGES:
                self._packages.popitem(last=False)
        return await asyncio.shield(self._packages[digest])

    def _drop_failed(self, digest: bytes, made: asyncio.Future[Broadcast]) -> None:
        if (made.cancelled() or made.exception()) and self._packages.get(digest) is made:
            del self._packages[digest]

    async def _supplied(
        self, package: Package, shared: bool, supply: Callable[[], AsyncIterator[bytes]]
    ) -> Broadcast:
        path = self._root / f"{package.digest.hex()}-{os.urandom(4).hex()}"
        marks = Marks()
        try:
            async for piece in supply():
                await self.write(_append, path, piece)
                marks.add(piece)
            if not package.size_bytes:
                await self.write(_append, path, b"")
            if (marks.size, marks.value) != (package.size_bytes, package.crc32c):
                raise CorruptPayload("a package has come otherwise than it was described")
            return Broadcast(package, marks, path, shared=shared)  # which needs no name
        finally:
            path.unlink(missing_ok=True)


def _append(path: Path, piece: bytes) -> None:
    with open(path, "ab", buffering=0) as file:
        file.write(piece)


def read_piece(path: str, offset: int, size: int) -> bytes:
    """Return bytes of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, size, offset)
    finally:
        os.close(descriptor)


def checksum(path: str, end: int) -> int:
    """Return the running checksum of a file's bytes before `end`."""
    running = 0
    for offset in range(0, end, CHUNK):
        running = extend(running, read_piece(path, offset, min(CHUNK, end - offset)))
    return running


async def _in_thread(threads: ThreadPoolExecutor, work: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, partial(work, *arguments))
