"""The service for gates: who attends, one stream for each; a newer one of the same name takes its place.

Whatever a stream says that has been replaced is not read any more: that is the fence.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator, AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
import structlog

from edgeflock.common.reason import Reason
from edgeflock.common.wire.chunks import serialise
from edgeflock.common.wire.transport import CHUNK
from edgeflock.server.core.refusal import Refused
from edgeflock.server.engine.intake import Intake
from edgeflock.server.gates.attendance import Attendance, read
from edgeflock.server.service.aggregator import AggregatorService
from edgeflock.server.service.download import find
from edgeflock.server.service.gate_book import GateBook
from edgeflock.server.service.refusals import UNKNOWN_SESSION, to_wire
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import gate_pb2 as gpb

Context = grpc.aio.ServicerContext[Any, Any]

log = structlog.get_logger()

# A gate says every second that it lives; its clients notice before this that it does not, and go elsewhere.
SILENT_S = 40.0
_HELLO_S = 10.0
_SOFTWARE = version("edgeflock")
_UNKNOWN_KEY = "this fl-server does not know a gate of that key: give fl-gate the file of its --gate-key"
_NO_HELLO = Refused(Reason.MALFORMED, "the first word of a gate is its hello")


class GatesService:
    """Answers gates that know the key."""

    def __init__(
        self,
        clients: AggregatorService,
        intake: Intake,
        book: GateBook,
        key: str,
        run_id: str,
        folder: Path,
    ) -> None:
        """Gates that were started here keep their files below that folder."""
        self._clients, self._intake, self._book = clients, intake, book
        self._key, self._run_id = key, run_id
        self._folder, self._closing = folder, False
        self._here: dict[str, Attendance] = {}
        self._streams: dict[str, asyncio.Task[Any]] = {}

    async def Attend(self, request_iterator: AsyncIterator[gpb.AttendRequest], context: Context) -> None:
        try:
            async with asyncio.timeout(_HELLO_S):
                first = await context.read()
        except TimeoutError:
            return
        hello = first.asked[0].hello if isinstance(first, gpb.AttendRequest) and first.asked else None
        if (refused := self._refuse(hello)) is not None or hello is None:
            refused = refused or _NO_HELLO
            await context.write(gpb.AttendResponse(told=[gpb.Told(refused=to_wire(refused))]))
            return
        attendance = Attendance(hello, self._clients, self._intake, self._spool_of(hello))
        await self._take_the_place_of(hello.name)
        me = self._streams[hello.name] = asyncio.ensure_future(self._serve(attendance, context))
        self._here[hello.name] = attendance
        self._book.come(hello.name, hello.address)
        self._note("gate_came", attendance, address=hello.address)
        try:
            await me
        except asyncio.CancelledError:
            me.cancel()
        finally:
            if self._here.get(hello.name) is attendance:
                del self._here[hello.name], self._streams[hello.name]
                self._book.go(hello.name)
            if not self._closing:
                self._note("gate_left", attendance, calls=len(attendance.calls))
            await attendance.close()

    def _refuse(self, hello: gpb.GateHello | None) -> Refused | None:
        if hello is None:
            return _NO_HELLO
        if not hmac.compare_digest(hello.key.encode(), self._key.encode()):
            return Refused(Reason.WRONG_CERTIFICATE, _UNKNOWN_KEY)
        if hello.software != _SOFTWARE:
            theirs = hello.software[:40]
            words = f"this fl-server is of edgeflock {_SOFTWARE}, the gate of {theirs!r}: give both the same"
            return Refused(Reason.VERSION, words)
        return None

    def _spool_of(self, hello: gpb.GateHello) -> Path | None:
        """Return where a gate that this server has started keeps updates; None: it is another's."""
        own = Path(hello.spool)
        return own / "spool" if hello.spool and own.parent == self._folder else None

    async def _take_the_place_of(self, name: str) -> None:
        """End the stream of a gate of that name that has hung, or lives a former life."""
        if (old := self._streams.pop(name, None)) is not None:
            self._here.pop(name)
            old.cancel()
            await asyncio.wait([old])

    async def close(self) -> None:
        """Let all go."""
        self._closing = True
        for name in tuple(self._streams):
            await self._take_the_place_of(name)

    def _note(self, event: str, attendance: Attendance, **fields: object) -> None:
        told = {"gate": attendance.name, **fields}
        log.info(event, **told)
        self._intake.note(event, **told)

    async def _serve(self, attendance: Attendance, context: Context) -> None:
        attendance.tell(gpb.Told(welcome=gpb.GateWelcome(run_id=self._run_id)))
        writing = asyncio.create_task(_write(attendance, context))
        try:
            while True:
                async with asyncio.timeout(SILENT_S):
                    message = await context.read()
                if not isinstance(message, gpb.AttendRequest):
                    return
                self._book.hear(attendance.name)
                for asked in message.asked:
                    attendance.hear(asked)
        except TimeoutError:
            log.warning("gate_silent", gate=attendance.name, seconds=SILENT_S)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def Supply(
        self, request: gpb.SupplyRequest, context: Context
    ) -> AsyncGenerator[gpb.SupplyResponse | bytes]:
        fetch = read(pb.FetchRequest, request.fetch)
        session = self._clients.known(fetch.session)
        if session is None or not hmac.compare_digest(request.key.encode(), self._key.encode()):
            yield gpb.SupplyResponse(refusal=to_wire(UNKNOWN_SESSION))
            return
        found = await find(self._intake, session.client_id, fetch, counted=False)
        size = 0 if isinstance(found, Refused) else found.package.size_bytes
        for offset in range(0, size, CHUNK):
            assert not isinstance(found, Refused)
            message = await found.message(offset, CHUNK)
            if isinstance(message, Refused):
                found = message
                break
            yield message
        if isinstance(found, Refused):
            yield gpb.SupplyResponse(refusal=to_wire(found))

    async def Hand(
        self, request_iterator: AsyncIterator[gpb.HandRequest], context: Context
    ) -> gpb.HandResponse:
        attendance: Attendance | None = None
        async for message in request_iterator:
            if attendance is None:
                if not hmac.compare_digest(message.key.encode(), self._key.encode()):
                    break
                attendance = self._here.get(message.name)
            call = attendance.calls.get(message.ticket) if attendance else None
            if call is not None and call.slot is not None and call.refused is None:
                chunk = message.chunk
                call.refused = await call.slot.append(chunk.offset, chunk.data, chunk.crc32c)
                call.moved.set()
        return gpb.HandResponse()


async def _write(attendance: Attendance, context: Context) -> None:
    async for answer in attendance.answers():
        await context.write(answer)


def add_gates(server: grpc.aio.Server, hall: GatesService) -> None:
    """Let the server answer gates."""
    service: str = gpb.DESCRIPTOR.services_by_name["Gates"].full_name
    methods: dict[str, Any] = {
        "Attend": grpc.stream_stream_rpc_method_handler(
            hall.Attend, gpb.AttendRequest.FromString, gpb.AttendResponse.SerializeToString
        ),
        "Supply": grpc.unary_stream_rpc_method_handler(hall.Supply, gpb.SupplyRequest.FromString, serialise),
        "Hand": grpc.stream_unary_rpc_method_handler(
            hall.Hand, gpb.HandRequest.FromString, gpb.HandResponse.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
