"""The aggregator's gRPC service: the one place where messages become events and outcomes become messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from functools import partial
from importlib.metadata import version
from typing import Any

import grpc
import structlog

from edgeflock.common.reason import Reason
from edgeflock.common.run import RunDescription
from edgeflock.common.wire.messages import run_to_wire
from edgeflock.common.wire.transport import SMALL_CHUNK
from edgeflock.server.core.refusal import Refused
from edgeflock.server.engine.intake import Intake, Settled
from edgeflock.server.engine.transfer import Slot
from edgeflock.server.engine.views import ClientView
from edgeflock.server.service import certificates
from edgeflock.server.service.download import Fetching, find
from edgeflock.server.service.flow import CreditPool, Patience
from edgeflock.server.service.gate_book import GateBook
from edgeflock.server.service.join import (
    Differing,
    check_code,
    check_data,
    check_join,
    check_ready,
    code_differences,
    revision,
)
from edgeflock.server.service.refusals import OFFENCES, UNKNOWN_SESSION, RefusalCount, to_wire
from edgeflock.server.service.sessions import DuplicateId, Session, Sessions
from edgeflock.server.service.stated import of_device, of_progress, of_round
from edgeflock.server.service.upload import Delivery, StreamEnded, Uploads, header_of, read_in_time
from edgeflock.server.service.views import Parted, inline, view_to_wire, view_with_payload
from edgeflock.v1 import aggregator_pb2 as pb

log = structlog.get_logger()
Context = grpc.aio.ServicerContext[Any, Any]

_LIFE_BYTES = 16  # at most
_LONGEST_WISH = 16  # characters
_SOFTWARE = version("edgeflock")
_SUPERSEDED = Refused(Reason.SUPERSEDED, "a newer session of yours has taken over")
_NO_SEAT = Refused(Reason.MALFORMED, "you have no seat yet")
_NO_HEADER = Refused(Reason.MALFORMED, "the first message of a delivery is its header")


class AggregatorService:
    """Answers clients. Nothing that a peer sends raises here."""

    def __init__(
        self,
        intake: Intake,
        sessions: Sessions,
        run: RunDescription,
        pool: CreditPool,
        *,
        gates: GateBook | None = None,
        certified: bool = False,
        same_code: bool = False,
    ) -> None:
        self._intake, self._sessions, self.pool = intake, sessions, pool
        self._gates = gates or GateBook()
        self._run, self._message, self._brief = run, run_to_wire(run), run_to_wire(run, whole=False)
        self._certified = certified  # clients show certificates, with their ids
        self._same_code, self._differing = same_code, Differing(intake.note)
        self._fetching, self._uploads = Fetching(), Uploads(pool, intake.bytes_left)
        self.refusals = RefusalCount(intake.note)

    # ------------------------------------------------------------------------------------- Join

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinResponse:
        return self.join(request, certificates.names_of(context) if self._certified else ())

    def join(self, request: pb.JoinRequest, names: Sequence[str], *, gate: str = "") -> pb.JoinResponse:
        """Take a client in, which shows a certificate of these names; `gate`: by way of which it comes."""
        session = Session(
            client_id=request.client_id,
            instance_id=request.instance_id,
            life=request.life[:_LIFE_BYTES],
            saves=request.saves[:_LONGEST_WISH],
            software=request.software[:40],
            device=of_device(request.device),
            gate=gate,
        )
        if refused := self._refuse_join(request, names) or self._admit(session):
            self.refusals.add(request.client_id or "?", refused)
            return pb.JoinResponse(refusal=to_wire(refused))
        self._sessions.forget_strangers(self._intake.seated, self._intake.free)
        best = self._gates.home(session.client_id, gate) if request.moves else ""
        if gate or not best:  # else it joins once more, there
            self._note_join(session, code_differences(request, self._run))
        run = self._brief if request.digests else self._message
        admission = pb.Admission(session=session.token, run=run, protocol=revision(request) or 0)
        admission.gates.extend(self._gates.addresses)
        admission.gate = best
        return pb.JoinResponse(admission=admission)

    def _note_join(self, session: Session, differing: list[str]) -> None:
        client = session.client_id
        self._intake.note("client_joined", client=client, software=session.software, **session.device)
        log.info("client_joined", client=client, **session.device)
        self._differing.tell(client, differing)

    def _refuse_join(self, request: pb.JoinRequest, shown: Sequence[str]) -> Refused | None:
        if refused := check_join(request, _SOFTWARE):
            return refused
        if self._certified and not certificates.allow(shown, request.client_id):
            names = ", ".join(shown)[:200] or "nobody"
            sentence = f"your certificate is for {names}, not for a client {request.client_id!r}"
            return Refused(Reason.WRONG_CERTIFICATE, sentence)
        return (
            self._intake.join(request.client_id)
            or check_data(request, self._run)
            or check_code(request, self._run, same=self._same_code)
        )

    def _admit(self, session: Session) -> Refused | None:
        try:
            self._sessions.admit(session, over=self._intake.over)
        except DuplicateId as error:
            return Refused(Reason.DUPLICATE_ID, str(error))
        return None

    # ------------------------------------------------------------------------------------ Watch

    async def Watch(self, request: pb.WatchRequest, context: Context) -> None:
        """Write what there is to tell. Nothing of it is held until there is more: a package in every stream
        would be as many copies of the model as there are clients."""
        async with aclosing(self.watch(request)) as views:
            with suppress(grpc.aio.InternalError):  # its client is gone
                async for view in views:
                    await context.write(b"".join(view) if isinstance(view, tuple) else view)
                    del view

    async def watch(self, request: pb.WatchRequest) -> AsyncGenerator[pb.WatchResponse | Parted]:
        """Yield what a client is told of the run, until there is no more to tell."""
        session = self.session(request)
        if session is None:
            yield pb.WatchResponse(refusal=to_wire(UNKNOWN_SESSION))
            return
        if refused := self._intake.online(session.client_id):
            self.refusals.add(session.client_id, refused)
            yield pb.WatchResponse(refusal=to_wire(refused))
            return
        self._sessions.watch(session)
        try:
            async for view in self._views(session):
                yield view
                del view
        finally:
            self._unwatch(session)

    async def _views(self, session: Session) -> AsyncIterator[pb.WatchResponse | Parted]:
        """The view now, and again whenever something in it has changed."""
        last: ClientView | None = None
        while not session.superseded:
            session.changed.clear()
            if refused := self._intake.dismissed(session.client_id):
                self._sessions.let_go([session.client_id])
                yield pb.WatchResponse(refusal=to_wire(refused))
                return
            view = self._intake.view(session.client_id, session.saves)
            if view != last:
                payload = 0 if last is not None and last.work is view.work else inline(view)
                here = 0 if session.gate else payload  # at a gate it is there once for all
                async with self._fetching.small.one(here) as mine:
                    if session.changed.is_set():
                        continue  # while it waited for its turn there was news
                    if (payload := payload if mine else 0) and not self._intake.admits(payload):
                        continue  # the round is over, and with it the task
                    yield self._answer(session, view, payload)
                self._fetching.small.moved(here)
                last = view
            if view.ending is not None:
                self._intake.told(session.client_id)
                return
            await session.changed.wait()
        yield pb.WatchResponse(refusal=to_wire(_SUPERSEDED))

    def _answer(self, session: Session, view: ClientView, payload: int) -> pb.WatchResponse | Parted:
        """Return what a client is told, with so many bytes of a package."""
        if not payload or view.work is None:
            response = pb.WatchResponse(view=view_to_wire(view))
            session.sent(response.ByteSize())
            return response
        whole = view_with_payload(view)
        session.sent(sum(map(len, whole)), payload, view.work.shared.package)
        return whole

    def _unwatch(self, session: Session) -> None:
        current = self._sessions.unwatch(session)
        if current is None or current.watching:  # it has said goodbye, or it watches elsewhere
            return
        self._intake.offline(session.client_id, replaced=session.superseded)

    # ------------------------------------------------------------------------------------ Fetch

    async def Fetch(
        self, request: pb.FetchRequest, context: Context
    ) -> AsyncIterator[pb.FetchResponse | bytes]:
        session = self.session(request)
        if session is None:
            yield pb.FetchResponse(refusal=to_wire(UNKNOWN_SESSION))
            return
        download = await find(self._intake, session.client_id, request)
        if isinstance(download, Refused):
            self.refusals.add(session.client_id, download)
            yield pb.FetchResponse(refusal=to_wire(download))
            return
        async with aclosing(self._fetching.messages(session, request, download)) as messages:
            async for message in messages:
                yield message

    # ---------------------------------------------------------------------------------- Deliver

    async def Deliver(self, request_iterator: AsyncIterator[pb.DeliverRequest], context: Context) -> None:
        with suppress(grpc.aio.InternalError):  # its client is gone: nobody is left to be answered
            await self._deliver(context)

    async def _deliver(self, context: Context) -> None:
        first = await self._first(context)
        if isinstance(first, Refused):
            self.refusals.add("?", first)
            await context.write(pb.DeliverResponse(refusal=to_wire(first)))
            return
        header = first.header
        session = self.session(header, first.ByteSize())
        if session is None:
            await context.write(pb.DeliverResponse(refusal=to_wire(UNKNOWN_SESSION)))
            return
        delivery = Delivery(self._uploads, session, partial(self.offer, session, header), context)
        if refused := await delivery.run():
            self.refuse_update(session, refused)
            await delivery.say(pb.DeliverResponse(refusal=to_wire(refused)))

    async def offer(
        self, session: Session, header: pb.UpdateHeader, *, counted: bool = True
    ) -> Slot | Settled | Refused:
        """Return where an update goes, or the final word on it; raises MalformedMessage."""
        if header.HasField("previous"):
            self._intake.stated(session.client_id, header.previous.round, of_round(header.previous))
        return await self._intake.offer(session.client_id, header_of(header), counted=counted)

    def refuse_update(self, session: Session, refused: Refused) -> None:
        """Note that an update was refused, and whether that was an offence."""
        self.refusals.add(session.client_id, refused)
        if refused.reason in OFFENCES:
            self._intake.offended(session.client_id, refused.reason)

    async def _first(self, context: Context) -> pb.DeliverRequest | Refused:
        """Return the message with the header that a delivery begins with, or why it ends."""
        try:
            message = await read_in_time(context, Patience(SMALL_CHUNK))
        except StreamEnded as ended:
            return ended.refused
        if isinstance(message, pb.DeliverRequest) and message.WhichOneof("message") == "header":
            return message
        return _NO_HEADER

    # --------------------------------------------------------------------------- Report and Leave

    async def Report(self, request: pb.ReportRequest, context: Context) -> pb.ReportResponse:
        return self.report(request)

    def report(self, request: pb.ReportRequest) -> pb.ReportResponse:
        """Take what a client says of itself."""
        session = self.session(request)
        if session is None:
            return pb.ReportResponse(refusal=to_wire(UNKNOWN_SESSION))
        if not self._intake.seated(session.client_id):
            return pb.ReportResponse(refusal=to_wire(_NO_SEAT))
        answer = pb.ReportResponse()
        if refused := self._take(session, request):
            self.refusals.add(session.client_id, refused)
            answer.refusal.CopyFrom(to_wire(refused))
        session.sent(answer.ByteSize())
        return answer

    def _take(self, session: Session, request: pb.ReportRequest) -> Refused | None:
        """Take a report, or return why not."""
        client_id = session.client_id
        match request.WhichOneof("report"):
            case "ready":
                ready = request.ready
                if refused := check_ready(ready, self._run):
                    return refused
                self._intake.ready(client_id, min(ready.samples, 2**62), ready.class_counts)
            case "progress":
                session.progress = of_progress(request.progress)
            case "cost":
                self._intake.stated(client_id, request.cost.round, of_round(request.cost))
            case "refused":
                sentence = request.refused.refusal.sentence[:500]
                self._intake.refused(client_id, request.refused.round, sentence)
            case _:
                return Refused(Reason.MALFORMED, "the report is empty")
        return None

    async def Leave(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveResponse:
        return self.leave(request)

    def leave(self, request: pb.LeaveRequest) -> pb.LeaveResponse:
        """Let a client go that says so."""
        session = self.session(request)
        if session is not None:
            self._sessions.remove(session)
            session.superseded = True
            session.changed.set()
            self._intake.leave(session.client_id, request.reason)
        return pb.LeaveResponse()

    # -------------------------------------------------------------------------------------------

    def known(self, token: bytes) -> Session | None:
        """Return the session of that token."""
        return self._sessions.find(token)

    def session(self, message: Any, size: int | None = None) -> Session | None:
        """Return whose message it is, and note that it came."""
        session = self._sessions.find(message.session)
        if session is not None:
            session.received(message.ByteSize() if size is None else size)
        return session
