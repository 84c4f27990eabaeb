"""The Fetch streams: which package a client means, and its messages; chunks are read once for several."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from edgeflock.common.payload.checksum import GRANULE
from edgeflock.common.wire.messages import package_to_wire
from edgeflock.common.wire.transport import CHUNK, MAX_CHUNK, SMALL_CHUNK
from edgeflock.server.engine.engine import Engine
from edgeflock.server.files.packages import Broadcast
from edgeflock.server.service.join import refusal
from edgeflock.server.service.sessions import Session
from edgeflock.server.service.turns import Turns
from edgeflock.v1 import aggregator_pb2 as pb

ROUND_OVER = "the round is over: look at your view again"


class Fetching:
    """What is on its way to clients."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turns = Turns()

    async def find(self, session: Session, request: pb.FetchRequest) -> Broadcast | None:
        """Return the package that is meant, if the client has a task in that round and can ask so for it."""
        size = request.chunk_bytes
        if request.offset % GRANULE or size % GRANULE or size > MAX_CHUNK:
            return None
        found = await self._meant(session, request)
        return found if found is not None and request.digest in (b"", found.package.digest) else None

    async def _meant(self, session: Session, request: pb.FetchRequest) -> Broadcast | None:
        engine, seat = self._engine, self._engine.machine.roster.seat_of.get(session.client_id)
        opened = engine.opened
        if opened is None or seat is None or request.round != opened.number:
            return None
        if not engine.machine.has_task(seat):
            return None
        match request.scope:
            case pb.SCOPE_PERSONAL:
                return await engine.opening.personal(opened, seat) if opened.work.personal else None
            case pb.SCOPE_SHARED:
                return opened.work.shared
            case pb.SCOPE_OPTIONAL:
                return opened.work.optional
            case _:
                return None

    async def messages(
        self, session: Session, request: pb.FetchRequest, broadcast: Broadcast
    ) -> AsyncGenerator[pb.FetchResponse | bytes]:
        """Yield the package from the offset on, as long as its round is open and the budget has room.

        Without a turn in small chunks: gRPC holds one or two of each stream, and memory is bounded.
        """
        if not request.digest:
            described = pb.FetchResponse(package=package_to_wire(broadcast.package))
            session.sent(described.ByteSize())
            yield described
        async with self._turns.one(broadcast.package.size_bytes) as mine:
            size = request.chunk_bytes or (CHUNK if mine else SMALL_CHUNK)
            try:
                async for message in self._chunks(session, request.offset, broadcast, size):
                    yield message
            finally:
                session.fetching = None

    async def _chunks(
        self, session: Session, start: int, broadcast: Broadcast, size: int
    ) -> AsyncGenerator[pb.FetchResponse | bytes]:
        opened, whole = self._engine.opened, broadcast.package.size_bytes
        for offset in range(start, whole, size):
            payload = min(size, whole - offset)
            if self._engine.opened is not opened or not self._engine.accounts.limits.admits(payload):
                yield pb.FetchResponse(refusal=refusal(pb.REASON_BUSY, ROUND_OVER))
                return
            message = broadcast.cached(offset, size)
            if message is None:
                message = await self._engine.write(broadcast.message, offset, size)
            session.sent(len(message), payload, broadcast.package, offset)
            session.fetching = offset + payload, whole
            yield message
            self._turns.moved(payload)
