"""One gate while it attends: the calls of its clients, answered by the service for clients.

A gate decides nothing: what it is not told it does not do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from edgeflock.common.errors import MalformedMessage
from edgeflock.common.payload.package import Package
from edgeflock.common.reason import Reason
from edgeflock.common.wire.chunks import serialise
from edgeflock.common.wire.messages import package_to_wire
from edgeflock.server.core.refusal import Refused
from edgeflock.server.engine.intake import Intake, Settled
from edgeflock.server.engine.transfer import ResultDownload, Slot
from edgeflock.server.gates.pacing import Pacing
from edgeflock.server.service.aggregator import AggregatorService
from edgeflock.server.service.download import find
from edgeflock.server.service.refusals import UNKNOWN_SESSION, from_wire, to_wire
from edgeflock.server.service.sessions import Session
from edgeflock.server.service.upload import NEWER, settled_to_wire
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import gate_pb2 as gpb

log = structlog.get_logger()
M = TypeVar("M", bound=Message)

_MOST_TOLD = 512  # answers in one message


@dataclass(eq=False)
class Call:
    """One call of a client that a gate serves itself: whose it is, and what its bytes are of."""

    session: Session
    package: Package
    slot: Slot | None = None  # of an upload that is not complete
    result: ResultDownload | None = None  # a model that the client keeps
    over: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    moved: asyncio.Event = field(default_factory=asyncio.Event)  # bytes of it came by Hand, or will not
    refused: Refused | None = None  # why they were not taken


class Attendance:
    """One gate while it attends."""

    def __init__(
        self, hello: gpb.GateHello, clients: AggregatorService, intake: Intake, spool: Path | None
    ) -> None:
        """Its updates are read in that folder, if it is one of this machine, and nowhere else."""
        self.name, self.local = hello.name, spool is not None
        self._spool = spool
        self._clients, self._intake = clients, intake
        self._told: list[gpb.Told] = []
        self._part = b""  # the one that the gate has
        self._news = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()
        self._watches: dict[int, asyncio.Task[None]] = {}
        self.calls: dict[int, Call] = {}

    # ------------------------------------------------------------------------------- what it is told

    def tell(self, told: gpb.Told) -> None:
        self._told.append(told)
        self._news.set()

    def answer(self, ticket: int, message: Message | bytes) -> None:
        """Give a client's call a message, which goes out as it is."""
        self.tell(gpb.Told(ticket=ticket, answer=serialise(message)))

    def _tell_parted(self, ticket: int, front: bytes, part: bytes, back: bytes) -> None:
        """Give a client's watch a view of which the gate has the greatest part, or has it from now on."""
        if part is not self._part:
            self._part = part
            self.tell(gpb.Told(part=gpb.GatePart(bytes=part)))
        self.tell(gpb.Told(ticket=ticket, view=gpb.GateView(front=front, back=back)))

    async def answers(self) -> AsyncIterator[gpb.AttendResponse]:
        """Yield what is to be told, as much at a time as there is."""
        pace = Pacing()
        while True:
            await self._news.wait()
            await pace.wait()
            told, self._told = self._told[:_MOST_TOLD], self._told[_MOST_TOLD:]
            if not self._told:
                self._news.clear()
            yield gpb.AttendResponse(told=told)

    # ------------------------------------------------------------------------------- what it asks

    def hear(self, asked: gpb.Asked) -> None:
        """Begin what a client asks."""
        ticket = asked.ticket
        match asked.WhichOneof("what"):
            case "join":
                join = read(pb.JoinRequest, asked.join)
                self.answer(ticket, self._clients.join(join, list(asked.names), gate=self.name))
            case "report":
                self.answer(ticket, self._clients.report(read(pb.ReportRequest, asked.report)))
            case "leave":
                self.answer(ticket, self._clients.leave(read(pb.LeaveRequest, asked.leave)))
            case "watch":
                watching = self._start(ticket, self._watch(ticket, read(pb.WatchRequest, asked.watch)))
                self._watches[ticket] = watching
            case "fetch":
                self._start(ticket, self._fetch(ticket, read(pb.FetchRequest, asked.fetch)))
            case "offer":
                self._start(ticket, self._offer(ticket, read(pb.DeliverRequest, asked.offer)))
            case "complete":
                self._start(ticket, self._complete(ticket, asked.complete.path))
            case "moved":
                self._count(ticket, asked.moved)
            case "gone":
                self._gone(ticket, asked.gone)
            case _:
                log.warning("gate_not_understood", gate=self.name)

    def _start(self, ticket: int, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(self._guard(ticket, work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def _guard(self, ticket: int, work: Coroutine[Any, Any, None]) -> None:
        """A bug costs one call, as where there is no gate, and no other client's."""
        try:
            await work
        except Exception:
            log.exception("call_failed", gate=self.name)
            self.tell(gpb.Told(ticket=ticket, end=gpb.GateEnd(reason="the coordinator cannot answer")))

    async def _watch(self, ticket: int, request: pb.WatchRequest) -> None:
        try:
            async with aclosing(self._clients.watch(request)) as views:
                async for view in views:
                    if isinstance(view, tuple):
                        self._tell_parted(ticket, *view)
                    else:
                        self.answer(ticket, view)
            self.tell(gpb.Told(ticket=ticket, end=gpb.GateEnd()))
        finally:
            self._watches.pop(ticket, None)

    async def _fetch(self, ticket: int, request: pb.FetchRequest) -> None:
        session = self._clients.session(request)
        if session is None:
            self._refuse_fetch(ticket, UNKNOWN_SESSION)
            return
        found = await find(self._intake, session.client_id, request, counted=False)
        if isinstance(found, Refused):
            self._clients.refusals.add(session.client_id, found)
            session.sent(self._refuse_fetch(ticket, found))
            return
        result = found if isinstance(found, ResultDownload) else None
        self.calls[ticket] = Call(session, found.package, result=result)
        described = gpb.GateFound(round=request.round, shared=found.shared)
        described.package.CopyFrom(package_to_wire(found.package))
        self.tell(gpb.Told(ticket=ticket, found=described))

    def _refuse_fetch(self, ticket: int, refused: Refused) -> int:
        answer = pb.FetchResponse(refusal=to_wire(refused))
        self.answer(ticket, answer)
        return answer.ByteSize()

    async def _offer(self, ticket: int, request: pb.DeliverRequest) -> None:
        header = request.header
        session = self._clients.session(header, request.ByteSize())
        if session is None:
            self.answer(ticket, pb.DeliverResponse(refusal=to_wire(UNKNOWN_SESSION)))
            return
        try:
            found = await self._clients.offer(session, header, counted=False)
        except MalformedMessage as error:
            found = Refused(Reason.MALFORMED, str(error))
        match found:
            case Refused():
                self._clients.refuse_update(session, found)
                self._last_word(ticket, session, pb.DeliverResponse(refusal=to_wire(found)))
            case Settled():
                self._last_word(ticket, session, settled_to_wire(found))
            case Slot() if found.full:
                self._last_word(ticket, session, pb.DeliverResponse(received=pb.Received()))
            case Slot():
                await self._await_bytes(ticket, session, found)

    def _last_word(self, ticket: int, session: Session, answer: pb.DeliverResponse) -> None:
        session.sent(answer.ByteSize())
        self.answer(ticket, answer)

    async def _await_bytes(self, ticket: int, session: Session, slot: Slot) -> None:
        """Let the gate take an update; who delivered it before for the same client steps aside."""
        call = self.calls[ticket] = Call(session, slot.package, slot)
        old, session.upload = session.upload, call.over
        if old is not None and not old.done():
            old.cancel(NEWER)
        if not self.local and (refused := await slot.begin()):
            call.refused = refused  # heard of when it is complete
        call.over.add_done_callback(lambda over: self._let_go(ticket, over))
        wanted = gpb.GateWanted(seat=slot.seat, limit_bytes=slot.limit, held=slot.held)
        self.tell(gpb.Told(ticket=ticket, wanted=wanted))

    def _let_go(self, ticket: int, over: asyncio.Future[None]) -> None:
        """Nobody waits for these bytes any more, if it was not the gate that said so."""
        if over.cancelled() and (call := self.calls.get(ticket)) is not None:
            call.moved.set()
            self.tell(gpb.Told(ticket=ticket, end=gpb.GateEnd(reason="let go")))

    async def _complete(self, ticket: int, path: str) -> None:
        call = self.calls.get(ticket)
        if call is None or call.slot is None:
            return
        if path and self._spool is not None and Path(path).parent.parent == self._spool:
            refused = call.slot.lies_at(path)
        else:
            refused = await self._handed(call, call.slot)
        if not call.over.done():
            call.over.set_result(None)
        answer = pb.DeliverResponse(received=pb.Received())
        self.answer(ticket, pb.DeliverResponse(refusal=to_wire(refused)) if refused else answer)

    async def _handed(self, call: Call, slot: Slot) -> Refused | None:
        """Wait for the last of the bytes that the gate has handed over."""
        while slot.held < slot.size and call.refused is None and not call.over.done():
            call.moved.clear()
            await call.moved.wait()
        return call.refused or await slot.complete()

    def _count(self, ticket: int, moved: gpb.GateMoved) -> None:
        call = self.calls.get(ticket)
        if call is None:
            return
        for one in moved.down:
            if call.result is not None:
                call.result.passed(call.session.traffic, one.message_bytes, one.payload)
                continue
            call.session.sent(one.message_bytes, one.payload, call.package, one.offset)
        for one in moved.up:
            call.session.received(one.message_bytes, one.payload, call.package, one.offset)

    def _gone(self, ticket: int, gone: gpb.GateGone) -> None:
        if (watch := self._watches.pop(ticket, None)) is not None:
            watch.cancel()
        if (call := self.calls.pop(ticket, None)) is None:
            return
        if not call.over.done():
            call.over.set_result(None)
            call.moved.set()
        if gone.HasField("refusal"):
            self._clients.refuse_update(call.session, from_wire(gone.refusal))

    async def close(self) -> None:
        """The gate attends no more: its clients are as good as cut off."""
        for call in self.calls.values():
            call.over.cancel()
        self.calls.clear()
        work = tuple(self._work)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


def read(kind: type[M], message: bytes) -> M:
    """Return the message; bytes that are none become an empty one, which is refused."""
    try:
        return kind.FromString(message)
    except DecodeError:
        return kind()
