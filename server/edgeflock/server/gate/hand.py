"""Handing over: how the coordinator gets the bytes of an update that is complete at the gate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import structlog

from edgeflock.common.payload.checksum import extend
from edgeflock.common.wire.transport import CHUNK
from edgeflock.server.gate.stock import GateStock, checksum, read_piece
from edgeflock.server.gate.upstream import Ticket, Unattended, Upstream
from edgeflock.v1 import bundle_pb2 as pb
from edgeflock.v1 import gate_pb2 as gpb

log = structlog.get_logger()


class Hand:
    """One stream for all updates, one after the other; none where the coordinator reads the gate's files."""

    def __init__(self, upstream: Upstream, stock: GateStock, key: str, name: str, *, local: bool) -> None:
        self.stock, self._upstream, self._local = stock, upstream, local
        self.key, self._name = key, name
        self._turn = asyncio.Lock()
        self._queue: asyncio.Queue[gpb.HandRequest] = asyncio.Queue(maxsize=2)
        self._streaming: asyncio.Task[None] | None = None

    async def over(self, ticket: Ticket, path: str, start: int, size: int) -> str:
        """Return where the coordinator finds the bytes, empty if those from `start` on have been sent; raises
        Unattended if they cannot be."""
        if self._local:
            return path
        async with self._turn:
            running = await self.stock.write(checksum, path, start)
            for offset in range(start, size, CHUNK):
                data = await self.stock.write(read_piece, path, offset, min(CHUNK, size - offset))
                running = extend(running, data)
                await self._send(ticket, pb.Chunk(offset=offset, data=data, crc32c=running))
        return ""

    async def _send(self, ticket: Ticket, chunk: pb.Chunk) -> None:
        if self._streaming is None or self._streaming.done():
            self._queue = asyncio.Queue(maxsize=2)
            self._streaming = asyncio.create_task(self._stream(self._queue))
        put = asyncio.ensure_future(self._queue.put(gpb.HandRequest(ticket=ticket.number, chunk=chunk)))
        try:
            await asyncio.wait((put, self._streaming), return_when=asyncio.FIRST_COMPLETED)
        finally:
            put.cancel()
        if self._streaming.done():
            raise Unattended("the coordinator is away")

    async def _stream(self, queue: asyncio.Queue[gpb.HandRequest]) -> None:
        """Send what is queued until the stream breaks."""
        if (stub := self._upstream.stub) is None:
            return
        try:
            await stub.Hand(self._requests(queue))
        except grpc.aio.AioRpcError as error:
            log.info("hand_broke", reason=(error.details() or "")[:200])

    async def _requests(self, queue: asyncio.Queue[gpb.HandRequest]) -> AsyncIterator[gpb.HandRequest]:
        yield gpb.HandRequest(key=self.key, name=self._name)
        while True:
            yield await queue.get()
