"""The Fetch streams: which package a client means, and its messages, in turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from edgeflock.common.payload.checksum import GRANULE
from edgeflock.common.payload.package import Package, Scope
from edgeflock.common.reason import Reason
from edgeflock.common.wire.messages import SCOPES_BACK, package_to_wire
from edgeflock.common.wire.transport import CHUNK, MAX_CHUNK, SMALL_CHUNK
from edgeflock.server.core.refusal import Refused
from edgeflock.server.engine.intake import Intake
from edgeflock.server.engine.transfer import Download, ResultDownload
from edgeflock.server.service.flow import Turns, small_turns
from edgeflock.server.service.refusals import to_wire
from edgeflock.server.service.sessions import Session
from edgeflock.v1 import aggregator_pb2 as pb

Found = Download | ResultDownload | Refused


class Larder(Protocol):
    """Where the messages of a package come from (engine/transfer.py), here or at a gate."""

    package: Package

    async def message(self, offset: int, size: int) -> bytes | Refused: ...


async def find(intake: Intake, client_id: str, request: pb.FetchRequest, *, counted: bool = True) -> Found:
    """Return the package that is meant, if the client has a task in that round and can ask so for it, or
    the model that it is offered, or why there is none."""
    size = request.chunk_bytes
    if request.offset % GRANULE or size % GRANULE or size > MAX_CHUNK or request.scope not in SCOPES_BACK:
        return _nothing(request)
    scope, round = SCOPES_BACK[request.scope], request.round
    found: Found | None = await intake.download(client_id, round, scope, counted=counted)
    if found is None and scope in (Scope.RESULT, Scope.BASE):
        found = await intake.result(client_id, round, scope, counted=counted)
    if found is None:
        return _nothing(request)
    if not isinstance(found, Refused) and request.digest not in (b"", found.package.digest):
        return _nothing(request)
    return found


def _nothing(request: pb.FetchRequest) -> Refused:
    words = f"there is nothing, or no longer, for you to fetch of round {request.round}"
    return Refused(Reason.NO_SUCH_PACKAGE, words)


class Fetching:
    """What is on its way to clients."""

    def __init__(self) -> None:
        self._turns = Turns()
        self.small = small_turns()

    async def messages(
        self, session: Session, request: pb.FetchRequest, download: Larder
    ) -> AsyncGenerator[pb.FetchResponse | bytes]:
        """Yield the package from the offset on, as long as its round is open and the budget has room.

        Without a turn in small chunks: gRPC holds one or two of each stream, and memory is bounded.
        """
        if not request.digest:
            described = pb.FetchResponse(package=package_to_wire(download.package))
            session.sent(described.ByteSize())
            yield described
        whole = download.package.size_bytes
        turns = self._turns if whole > SMALL_CHUNK else self.small
        async with turns.one(whole) as mine:
            size = request.chunk_bytes or (CHUNK if mine else SMALL_CHUNK)
            try:
                async for message in self._chunks(session, request.offset, download, size, turns):
                    yield message
            finally:
                session.fetching = None

    async def _chunks(
        self, session: Session, start: int, download: Larder, size: int, turns: Turns
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
            turns.moved(payload)
