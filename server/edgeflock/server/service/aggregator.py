"""The aggregator's gRPC service: the one place where messages become events and outcomes become messages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from importlib.metadata import version
from typing import Any

import grpc
import structlog

from edgeflock.common.payload.package import Package
from edgeflock.common.wire.chunks import Piece
from edgeflock.common.wire.transport import SMALL_CHUNK
from edgeflock.server.core.events import Offended, Offline, Online, TaskRefused
from edgeflock.server.engine.engine import Engine
from edgeflock.server.service import certificates
from edgeflock.server.service.credit import CreditPool
from edgeflock.server.service.download import Fetching
from edgeflock.server.service.join import OFFENCES, check_data, check_join, check_ready, refusal
from edgeflock.server.service.patience import Patience
from edgeflock.server.service.sessions import DuplicateId, Session
from edgeflock.server.service.stated import of_device, of_round
from edgeflock.server.service.turns import Turns
from edgeflock.server.service.upload import Delivery, Refused, read_in_time
from edgeflock.server.service.views import same, send_once, view_of
from edgeflock.v1 import aggregator_pb2 as pb

log = structlog.get_logger()
Context = grpc.aio.ServicerContext[Any, Any]

UNKNOWN_SESSION = "this server does not know your session: join again"
_SOFTWARE = version("edgeflock")
_RETRY_DRAINING_MS = 1000


class AggregatorService:
    """Answers clients. Nothing that a peer sends raises here."""

    def __init__(self, engine: Engine, run: pb.Run, pool: CreditPool, *, certified: bool = False) -> None:
        self._engine, self._run, self._pool = engine, run, pool
        self._certified = certified  # clients show certificates, with their ids
        self._fetching, self._delivering = Fetching(engine), Turns()
        self.refusals: Counter[tuple[str, str]] = Counter()  # (client or peer, reason)

    # ------------------------------------------------------------------------------------- Join

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinResponse:
        refused = self._refuse_join(request, context)
        if refused is not None:
            self._count(request.client_id or "?", refused)
            return pb.JoinResponse(refusal=refused)
        session = Session(
            client_id=request.client_id,
            instance_id=request.instance_id,
            software=request.software[:40],
            device=of_device(request.device),
        )
        try:
            self._engine.sessions.admit(session)
        except DuplicateId as error:
            refused = refusal(pb.REASON_DUPLICATE_ID, str(error))
            self._count(request.client_id, refused)
            return pb.JoinResponse(refusal=refused)
        self._engine.sessions.forget_strangers(self._engine.machine.roster.seat_of)
        self._engine.journal.note(
            "client_joined", client=session.client_id, software=session.software, **session.device
        )
        log.info("client_joined", client=session.client_id, **session.device)
        return pb.JoinResponse(admission=pb.Admission(session=session.token, run=self._run))

    def _refuse_join(self, request: pb.JoinRequest, context: Context) -> pb.Refusal | None:
        if refused := check_join(request, _SOFTWARE):
            return refused
        if self._certified and not certificates.allows(context, request.client_id):
            names = ", ".join(certificates.names_of(context))[:200] or "nobody"
            sentence = f"your certificate is for {names}, not for a client {request.client_id!r}"
            return refusal(pb.REASON_WRONG_CERTIFICATE, sentence)
        machine = self._engine.machine
        if machine.draining and machine.ending is None:
            return refusal(pb.REASON_DRAINING, "the server is going down", retry_after_ms=_RETRY_DRAINING_MS)
        if machine.rules.central:
            sentence = f"{self._run.method} trains on the server: this run takes no clients"
            return refusal(pb.REASON_ROSTER_FULL, sentence)
        if not machine.roster.has_room_for(request.client_id):
            return self._roster_full()
        return check_data(request, self._run)

    def _roster_full(self) -> pb.Refusal:
        seats = self._engine.machine.rules.clients
        return refusal(pb.REASON_ROSTER_FULL, f"all {seats} seats of this run are taken")

    # ------------------------------------------------------------------------------------ Watch

    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncIterator[pb.WatchResponse]:
        session = self._session(request)
        if session is None:
            yield pb.WatchResponse(refusal=refusal(pb.REASON_UNKNOWN_SESSION, UNKNOWN_SESSION))
            return
        if not self._engine.machine.roster.has_room_for(session.client_id):  # the seats went since it joined
            refused = self._roster_full()
            self._count(session.client_id, refused)
            yield pb.WatchResponse(refusal=refused)
            return
        session.watching += 1
        self._engine.post(Online(session.client_id, time.monotonic()))
        try:
            async for view in self._views(session):
                yield view
        finally:
            self._unwatch(session)

    async def _views(self, session: Session) -> AsyncIterator[pb.WatchResponse]:
        """The view now, and again whenever something in it has changed."""
        last: pb.View | None = None
        while not session.superseded:
            session.changed.clear()
            view = view_of(self._engine, session.client_id)
            if last is None or not same(view, last):
                send_once(view, last)
                response = pb.WatchResponse(view=view)
                payload = sum(len(download.payload) for download in view.task.downloads)
                if payload and not self._engine.accounts.limits.admits(payload):
                    continue  # the round is over, and with it the task
                session.sent(response.ByteSize(), payload, self._inline(payload))
                yield response
                last = view
            if view.HasField("ending"):
                self._engine.told(session.client_id)
                return
            await session.changed.wait()
        yield pb.WatchResponse(
            refusal=refusal(pb.REASON_SUPERSEDED, "a newer session of yours has taken over")
        )

    def _inline(self, payload: int) -> Package | None:
        """Return the package whose payload goes with a view, if one does."""
        opened = self._engine.opened
        return opened.work.shared.package if payload and opened is not None else None

    def _unwatch(self, session: Session) -> None:
        session.watching -= 1
        current = self._engine.sessions.by_id(session.client_id)
        if current is None or current.watching:  # it has said goodbye, or it watches elsewhere
            return
        self._engine.post(Offline(session.client_id, time.monotonic()))
        if session.superseded:  # it is about to watch again, or never will
            return
        if session.client_id in self._engine.heard:  # how the run ended: it says goodbye itself
            return
        log.info("client_left", client=session.client_id)
        self._engine.journal.note("client_left", client=session.client_id)

    # ------------------------------------------------------------------------------------ Fetch

    async def Fetch(
        self, request: pb.FetchRequest, context: Context
    ) -> AsyncIterator[pb.FetchResponse | bytes]:
        session = self._session(request)
        if session is None:
            yield pb.FetchResponse(refusal=refusal(pb.REASON_UNKNOWN_SESSION, UNKNOWN_SESSION))
            return
        broadcast = await self._fetching.find(session, request)
        if broadcast is None:
            refused = refusal(pb.REASON_NO_SUCH_PACKAGE, f"round {request.round} has no such package for you")
            self._count(session.client_id, refused)
            yield pb.FetchResponse(refusal=refused)
            return
        async with aclosing(self._fetching.messages(session, request, broadcast)) as messages:
            async for message in messages:
                yield message

    # ---------------------------------------------------------------------------------- Deliver

    async def Deliver(self, request_iterator: AsyncIterator[pb.DeliverRequest], context: Context) -> None:
        try:
            first = await read_in_time(context, Patience(SMALL_CHUNK))
        except Refused as refused_early:
            self._count("?", refused_early.answer)
            await context.write(pb.DeliverResponse(refusal=refused_early.answer))
            return
        if isinstance(first, Piece) or first is grpc.aio.EOF or first.WhichOneof("message") != "header":
            refused = refusal(pb.REASON_MALFORMED, "the first message of a delivery is its header")
            self._count("?", refused)
            await context.write(pb.DeliverResponse(refusal=refused))
            return
        session = self._session(first.header, first.ByteSize())
        if session is None:
            refused = refusal(pb.REASON_UNKNOWN_SESSION, UNKNOWN_SESSION)
            await context.write(pb.DeliverResponse(refusal=refused))
            return
        seat = self._engine.machine.roster.seat_of.get(session.client_id)
        if seat is not None and first.header.HasField("previous"):
            self._take_cost(seat, first.header.previous)
        delivery = Delivery(self._engine, self._pool, self._delivering, session, first.header, context)
        refused_later = await delivery.run()
        if refused_later is not None:
            self._count(session.client_id, refused_later)
            if seat is not None and refused_later.reason in OFFENCES:
                self._engine.post(Offended(seat, _named(refused_later), time.monotonic()))
            await delivery.say(pb.DeliverResponse(refusal=refused_later))

    # --------------------------------------------------------------------------- Report and Leave

    async def Report(self, request: pb.ReportRequest, context: Context) -> pb.ReportResponse:
        session = self._session(request)
        if session is None:
            return pb.ReportResponse(refusal=refusal(pb.REASON_UNKNOWN_SESSION, UNKNOWN_SESSION))
        seat = self._engine.machine.roster.seat_of.get(session.client_id)
        if seat is None:
            return pb.ReportResponse(refusal=refusal(pb.REASON_MALFORMED, "you have no seat yet"))
        refused: pb.Refusal | None = None
        match request.WhichOneof("report"):
            case "ready":
                refused = self._take_ready(session, seat, request.ready)
            case "progress":
                session.progress = request.progress
            case "cost":
                self._take_cost(seat, request.cost)
            case "refused":
                self._take_refusal(session, seat, request.refused)
            case _:
                refused = refusal(pb.REASON_MALFORMED, "the report is empty")
        if refused is not None:
            self._count(session.client_id, refused)
        answer = pb.ReportResponse(refusal=refused)
        session.sent(answer.ByteSize())
        return answer

    def _take_ready(self, session: Session, seat: int, report: pb.Ready) -> pb.Refusal | None:
        if refused := check_ready(report, self._run):
            return refused
        samples = min(report.samples, 2**62)
        self._engine.ready(session.client_id, seat, samples, report.class_counts)
        return None

    def _take_cost(self, seat: int, cost: pb.RoundCost) -> None:
        """Take what a client states of a round that it has just heard the final word on."""
        if any(round == cost.round for round, _ in self._engine.verdicts.last(seat)):
            self._engine.accounts.add_late(cost.round, seat, of_round(cost))

    def _take_refusal(self, session: Session, seat: int, report: pb.TaskRefused) -> None:
        sentence = report.refusal.sentence[:500]
        log.warning("task_refused", client=session.client_id, round=report.round, reason=sentence)
        self._engine.journal.note(
            "task_refused", client=session.client_id, round=report.round, reason=sentence
        )
        self._engine.post(TaskRefused(report.round, seat, time.monotonic()))

    async def Leave(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveResponse:
        session = self._session(request)
        if session is not None:
            words = {"client": session.client_id, "reason": request.reason[:200]}
            log.info("client_leaving", **words)
            self._engine.journal.note("client_leaving", **words)
            self._engine.sessions.remove(session)
            if session.client_id not in self._engine.machine.roster.seat_of:
                self._engine.sessions.forget_traffic(session)
            session.superseded = True
            session.changed.set()
            self._engine.hearing.set()
            self._engine.post(Offline(session.client_id, time.monotonic()))
        return pb.LeaveResponse()

    # -------------------------------------------------------------------------------------------

    def _session(self, message: Any, size: int | None = None) -> Session | None:
        """Return whose message it is, and note that it came."""
        session = self._engine.sessions.find(message.session)
        if session is not None:
            session.received(message.ByteSize() if size is None else size)
        return session

    def _count(self, who: str, refused: pb.Refusal) -> None:
        """Count a refusal; the 1st, 2nd, 4th, 8th ... of a kind is written down."""
        reason = pb.Reason.Name(refused.reason)
        key = (who[:64] if len(self.refusals) < 10_000 else "others", reason)
        self.refusals[key] += 1
        times = self.refusals[key]
        if times & (times - 1) == 0:
            log.warning("refused", client=key[0], reason=reason, sentence=refused.sentence, times=times)
            fields = {"client": key[0], "reason": reason, "sentence": refused.sentence, "times": times}
            self._engine.journal.note("refused", **fields)


def _named(refused: pb.Refusal) -> str:
    """Return the reason of a refusal in the words of a verdict."""
    return pb.Reason.Name(refused.reason).removeprefix("REASON_").lower()
