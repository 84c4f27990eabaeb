"""The floor of a round: bare grpcio that does the least that the promises ask, and nothing else.

As bare_grpc, and besides: the client checks what it fetched, puts it into place, writes its update to
a file with checksums and sends from there; the server checks each chunk, writes it to a file used before,
folds each update as soon as it is there, and writes and syncs the result when the last one is.
Both ends keep the pages of their buffers, as the product does.
No credit, no resumption, no order, no messages, no journal.
`python -m benchmarks.promised_grpc server|client FOLDER --clients N --mib SIZE --rounds R [--number I]`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import torch

from benchmarks import bare_grpc
from benchmarks.bare_grpc import CHUNK
from edgeflock.common.allocator import keep_pages
from edgeflock.common.payload.checksum import Buffer, extend

Floats = npt.NDArray[np.float32]


def seconds_per_round(folder: Path, clients: int, mib: float, rounds: int) -> list[float]:
    """Run server and clients and return the seconds of every round but the first."""
    return bare_grpc.seconds_per_round(folder, clients, mib, rounds, "benchmarks.promised_grpc")


class File:
    """A payload on disk, written over again and again."""

    def __init__(self, path: Path, size: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.write(bytes(size), 0)

    def write(self, data: Buffer, offset: int) -> None:
        view = memoryview(data)
        while view:
            count = os.pwrite(self._descriptor, view, offset)
            view, offset = view[count:], offset + count

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, offset)

    def read_into(self, room: memoryview, offset: int) -> None:
        os.preadv(self._descriptor, [room], offset)

    def sync(self) -> None:
        os.fsync(self._descriptor)


class Promised(bare_grpc.Bare):
    """The bare server, but what arrives is kept and added up before the round is over."""

    def __init__(self, folder: Path, clients: int, payload: list[bytes], rounds: int) -> None:
        super().__init__(clients, payload, rounds)
        self._size = sum(map(len, payload))
        self._spool = [File(folder / f"spool-{number}", self._size) for number in range(clients)]
        self._results = [File(folder / f"result-{turn}", self._size) for turn in range(2)]
        self._sum: Floats = np.zeros(self._size // 4, np.float32)
        self._block: Floats = np.empty(CHUNK // 4, np.float32)
        self._arithmetic = ThreadPoolExecutor(1)

    async def up(self, chunks: AsyncIterator[bytes], context: Any) -> bytes:
        messages = aiter(chunks)
        file, offset, checksum = self._spool[int(await anext(messages))], 0, 0
        async for chunk in messages:
            checksum = extend(checksum, chunk)
            file.write(chunk, offset)
            offset += len(chunk)
        await self._compute(self._fold, file)
        return await self.arrived()

    async def settle(self) -> None:
        await self._compute(self._commit)

    async def _compute(self, work: Callable[..., None], *arguments: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._arithmetic, work, *arguments)

    def _fold(self, file: File) -> None:
        for offset in range(0, self._size, CHUNK):
            part = slice(offset // 4, min(offset + CHUNK, self._size) // 4)
            block = self._block[: part.stop - part.start]
            file.read_into(block.data, offset)
            torch.from_numpy(self._sum[part]).add_(torch.from_numpy(block), alpha=0.1)

    def _commit(self) -> None:
        result = self._results[len(self.at) % 2]
        extend(0, self._sum.data.cast("B"))
        result.write(self._sum.data.cast("B"), 0)
        result.sync()
        self._sum[:] = 0


def call(folder: Path, number: int, payload: list[bytes], rounds: int) -> None:
    size = sum(map(len, payload))
    room, outbox = memoryview(bytearray(size)), File(folder / f"outbox-{number}", size)

    def pieces() -> Iterator[bytes]:
        yield str(number).encode()
        for offset in range(0, size, CHUNK):
            yield outbox.read(offset, min(CHUNK, size - offset))

    with grpc.insecure_channel(bare_grpc.address(folder)) as channel:
        down: Any = channel.unary_stream("/bare/Down")
        up: Any = channel.stream_unary("/bare/Up")
        for _ in range(rounds):
            _take(down(b"", wait_for_ready=True), room)
            _leave(room, outbox)
            up(pieces())


def _take(chunks: Iterator[bytes], room: memoryview) -> None:
    offset = checksum = 0
    for chunk in chunks:
        checksum = extend(checksum, chunk)
        room[offset : offset + len(chunk)] = chunk
        offset += len(chunk)


def _leave(room: memoryview, outbox: File) -> None:
    checksum = 0
    for offset in range(0, len(room), CHUNK):
        checksum = extend(checksum, room[offset : offset + CHUNK])
        outbox.write(room[offset : offset + CHUNK], offset)


def main() -> None:
    asked, payload = bare_grpc.asked()
    keep_pages()
    if asked.role == "server":
        torch.set_num_threads(1)
        bare = Promised(asked.folder, asked.clients, payload, asked.rounds)
        asyncio.run(bare_grpc.serve(bare, asked.folder))
    else:
        call(asked.folder, asked.number, payload, asked.rounds)


if __name__ == "__main__":
    main()
