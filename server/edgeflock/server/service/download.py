"""The Fetch streams: which package a client means, and its messages, in turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from edgeflock.common.payload.checksum import GRANULE
from edgeflock.common.payload.package import Scope
from edgeflock.common.wire.messages import SCOPES_BACK, package_to_wire
from edgeflock.common.wire.transport import CHUNK, MAX_CHUNK, SMALL_CHUNK
from edgeflock.server.core.refusal import Refused
from edgeflock.server.engine.intake import Intake
from edgeflock.server.engine.transfer import Download, ResultDownload
from edgeflock.server.service.flow import Turns
from edgeflock.server.service.refusals import to_wire
from edgeflock.server.service.sessions import Session
from edgeflock.v1 import aggregator_pb2 as pb

Found = Download | ResultDownload | Refused | None


class Fetching:
    """What is on its way to clients."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._turns = Turns()

    async def find(self, session: Session, request: pb.FetchRequest) -> Found:
        """Return the package that is meant, if the client has a task in that round and can ask so for it, or
        the model that it is offered, or why it cannot be had now."""
        size = request.chunk_bytes
        if request.offset % GRANULE or size % GRANULE or size > MAX_CHUNK or request.scope not in SCOPES_BACK:
            return None
        scope, client_id = SCOPES_BACK[request.scope], session.client_id
        found: Found = await self._intake.download(client_id, request.round, scope)
        if found is None and scope in (Scope.RESULT, Scope.BASE):
            found = await self._intake.result(client_id, request.round, scope)
        if isinstance(found, (Download, ResultDownload)) and request.digest not in (
            b"",
            found.package.digest,
        ):
            return None
        return found

    async def messages(
        self, session: Session, request: pb.FetchRequest, download: Download | ResultDownload
    ) -> AsyncGenerator[pb.FetchResponse | bytes]:
        """Yield the package from the offset on, as long as its round is open and the budget has room.

        Without a turn in small chunks: gRPC holds one or two of each stream, and memory is bounded.
        """
        if not request.digest:
            described = pb.FetchResponse(package=package_to_wire(download.package))
            session.sent(described.ByteSize())
            yield described
        async with self._turns.one(download.package.size_bytes) as mine:
            size = request.chunk_bytes or (CHUNK if mine else SMALL_CHUNK)
            try:
                async for message in self._chunks(session, request.offset, download, size):
                    yield message
            finally:
                session.fetching = None

    async def _chunks(
        self, session: Session, start: int, download: Download | ResultDownload, size: int
    ) -> AsyncGenerator[pb.FetchResponse | bytes]:
        whole = download.package.size_bytes
        for offset in range(start, whole, size):
            message = await download.message(offset, size)
            if isinstance(message, Refused):
                yield pb.FetchResponse(refusal=to_wire(message))
                return
            payload = min(size, whole - offset)
            session.fetching = offset + payload, whole
            yield message
            self._turns.moved(payload)
