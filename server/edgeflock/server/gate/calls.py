"""The service for clients at a gate: their calls go to the coordinator as they are, bytes stay here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

import grpc

from edgeflock.common.errors import CorruptPayload
from edgeflock.common.reason import Reason
from edgeflock.common.wire import chunks
from edgeflock.common.wire.messages import package_from_wire
from edgeflock.common.wire.transport import SMALL_CHUNK
from edgeflock.server.core.refusal import Refused
from edgeflock.server.engine.transfer import CLOSED
from edgeflock.server.files.packages import Broadcast
from edgeflock.server.gate.hand import Hand
from edgeflock.server.gate.stock import GateStock
from edgeflock.server.gate.transit import GateSlot, NotedTraffic, undone
from edgeflock.server.gate.upstream import Ticket, Unattended, Upstream
from edgeflock.server.service import certificates
from edgeflock.server.service.binding import read_delivery, reader
from edgeflock.server.service.download import Fetching
from edgeflock.server.service.flow import CreditPool, Patience
from edgeflock.server.service.refusals import to_wire
from edgeflock.server.service.sessions import Session
from edgeflock.server.service.upload import Delivery, StreamEnded, Uploads, header_of, read_in_time
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import gate_pb2 as gpb

Context = grpc.aio.ServicerContext[Any, Any]

_LOST = "the gate has lost its coordinator: try again, here or elsewhere"
_RETRY_MS = 500
_NO_HEADER = Refused(Reason.MALFORMED, "the first message of a delivery is its header")


class GateService:
    """Answers clients with what the coordinator says. Requests of `unary` calls are bytes, as they came."""

    def __init__(
        self, upstream: Upstream, stock: GateStock, hand: Hand, pool: CreditPool, *, certified: bool
    ) -> None:
        self._upstream, self._stock, self._hand, self._certified = upstream, stock, hand, certified
        self._fetching, self._uploads = Fetching(), Uploads(pool, lambda: float("inf"))
        self._delivering: dict[bytes, Session] = {}  # by the client's session: an upload that goes on

    # ------------------------------------------------------------------------------- what is passed on

    async def Join(self, request: bytes, context: Context) -> bytes:
        names = certificates.names_of(context) if self._certified else ()
        return await self._pass_on(gpb.Asked(join=request, names=names), context)

    async def Report(self, request: bytes, context: Context) -> bytes:
        return await self._pass_on(gpb.Asked(report=request), context)

    async def Leave(self, request: bytes, context: Context) -> bytes:
        return await self._pass_on(gpb.Asked(leave=request), context)

    async def _pass_on(self, asked: gpb.Asked, context: Context) -> bytes:
        try:
            with self._upstream.ticket() as ticket:
                ticket.ask(asked)
                answer = (await ticket.next()).answer
                ticket.ended = True
                return answer
        except Unattended:
            await context.abort(grpc.StatusCode.UNAVAILABLE, _LOST)

    async def Watch(self, request: bytes, context: Context) -> None:
        try:
            with self._upstream.ticket() as ticket:
                ticket.ask(gpb.Asked(watch=request))
                while not (told := await ticket.next()).HasField("end"):
                    await self._write_view(told, ticket.part, context)
        except Unattended:
            await context.abort(grpc.StatusCode.UNAVAILABLE, _LOST)

    async def _write_view(self, told: gpb.Told, part: bytes, context: Context) -> None:
        """Write a client's view; what has a package in it goes to a few at a time."""
        if not told.HasField("view"):
            await context.write(told.answer)
            return
        async with self._fetching.small.one(len(part)):
            await context.write(b"".join((told.view.front, part, told.view.back)))
        self._fetching.small.moved(len(part))

    # ------------------------------------------------------------------------------- down

    async def Fetch(
        self, request: pb.FetchRequest, context: Context
    ) -> AsyncIterator[pb.FetchResponse | bytes]:
        try:
            with self._upstream.ticket() as ticket:
                ticket.ask(gpb.Asked(fetch=request.SerializeToString()))
                told = await ticket.next()
                if told.HasField("end"):
                    raise Unattended("the coordinator cannot answer")
                if not told.HasField("found"):
                    ticket.ended = True
                    yield told.answer
                    return
                async with aclosing(self._send(ticket, request, told.found)) as messages:
                    async for message in messages:
                        yield message
        except Unattended:
            await context.abort(grpc.StatusCode.UNAVAILABLE, _LOST)

    async def _send(
        self, ticket: Ticket, request: pb.FetchRequest, found: gpb.GateFound
    ) -> AsyncGenerator[pb.FetchResponse | bytes]:
        traffic = NotedTraffic(ticket)
        session = Session("", b"", "", {}, traffic=traffic)
        try:
            supplied = await self._supplied(request, found)
        except (OSError, CorruptPayload, StreamEnded) as error:
            yield pb.FetchResponse(refusal=to_wire(_why(error)))
            return
        try:
            async with aclosing(
                self._fetching.messages(session, request, Supplied(supplied, self._stock, traffic))
            ) as messages:
                async for message in messages:
                    yield message
        finally:
            traffic.tell()

    async def _supplied(self, request: pb.FetchRequest, found: gpb.GateFound) -> Broadcast:
        package = package_from_wire(found.package)
        wanted = pb.FetchRequest()
        wanted.CopyFrom(request)
        wanted.digest, wanted.offset, wanted.chunk_bytes = package.digest, 0, 0
        return await self._stock.package(package, found.shared, partial(self._supply, wanted))

    async def _supply(self, wanted: pb.FetchRequest) -> AsyncIterator[bytes]:
        if (stub := self._upstream.stub) is None:
            raise Unattended(_LOST)
        key = self._hand.key
        try:
            async for message in stub.Supply(gpb.SupplyRequest(key=key, fetch=wanted.SerializeToString())):
                if message.HasField("refusal"):
                    raise StreamEnded(Refused(Reason.BUSY, message.refusal.sentence, _RETRY_MS))
                yield message.chunk.data
        except grpc.aio.AioRpcError:
            raise Unattended(_LOST) from None

    # ------------------------------------------------------------------------------- up

    async def Deliver(self, request_iterator: AsyncIterator[pb.DeliverRequest], context: Context) -> None:
        try:
            first = await read_in_time(context, Patience(SMALL_CHUNK))
        except StreamEnded as ended:
            await context.write(pb.DeliverResponse(refusal=to_wire(ended.refused)))
            return
        if not isinstance(first, pb.DeliverRequest):
            await context.write(pb.DeliverResponse(refusal=to_wire(_NO_HEADER)))
            return
        try:
            with self._upstream.ticket() as ticket:
                ticket.ask(gpb.Asked(offer=first.SerializeToString()))
                told = await ticket.next()
                if told.HasField("wanted"):
                    await self._take(ticket, first.header, told.wanted, context)
                elif told.HasField("answer"):
                    ticket.ended = True
                    await context.write(told.answer)
                else:  # let go before it began
                    await context.write(pb.DeliverResponse(refusal=to_wire(Refused(Reason.BUSY, CLOSED))))
        except Unattended:
            await context.abort(grpc.StatusCode.UNAVAILABLE, _LOST)

    async def _take(
        self, ticket: Ticket, header: pb.UpdateHeader, wanted: gpb.GateWanted, context: Context
    ) -> None:
        """Take the bytes of an update, and tell client and coordinator what came of it."""
        traffic, token = NotedTraffic(ticket), header.session
        before = self._delivering.get(token)
        session = Session("", b"", "", {}, traffic=traffic, upload=before.upload if before else None)
        self._delivering[token] = session
        ticket.let_go = partial(_let_go, session)
        delivery = Delivery(
            self._uploads, session, partial(self._slot, ticket, header, wanted, traffic), context
        )
        try:
            refused = await delivery.run()
            if refused is not None:
                await delivery.say(pb.DeliverResponse(refusal=to_wire(refused)))
            traffic.tell()
            gone = gpb.GateGone(refusal=to_wire(refused) if refused else None)
            ticket.ask(gpb.Asked(gone=gone), now=refused is not None)
            ticket.ended = True
        finally:
            if self._delivering.get(token) is session:
                del self._delivering[token]

    async def _slot(
        self, ticket: Ticket, header: pb.UpdateHeader, wanted: gpb.GateWanted, traffic: NotedTraffic
    ) -> GateSlot | Refused:
        try:
            entry = await self._stock.entry(header.round, wanted.seat, wanted.limit_bytes)
        except OSError as error:
            return undone(error)
        return GateSlot(ticket, header_of(header), entry, traffic, self._hand, wanted.held)


class Supplied:
    """A package that lies at the gate, on its way to a client."""

    def __init__(self, broadcast: Broadcast, stock: GateStock, traffic: NotedTraffic) -> None:
        self.package = broadcast.package
        self._broadcast, self._stock, self._traffic = broadcast, stock, traffic

    async def message(self, offset: int, size: int) -> bytes | Refused:
        """Return the message with the bytes from there on, at most so many, or why there is none."""
        message = self._broadcast.cached(offset, size)
        if message is None:
            try:
                message = await self._stock.write(self._broadcast.message, offset, size)
            except OSError as error:
                return _why(error)
        payload = min(size, self.package.size_bytes - offset)
        self._traffic.sent(len(message), payload, self.package, offset)
        return message


def _let_go(session: Session) -> None:
    if session.upload is not None:
        session.upload.cancel(CLOSED)


def _why(error: Exception) -> Refused:
    if isinstance(error, StreamEnded):
        return error.refused
    return Refused(Reason.BUSY, f"the gate cannot bring your package: {error}", _RETRY_MS)


def handlers(service: GateService) -> dict[str, Any]:
    """Return the methods of the clients' service, by name."""
    unary, down, both = (
        grpc.unary_unary_rpc_method_handler,
        grpc.unary_stream_rpc_method_handler,
        grpc.stream_stream_rpc_method_handler,
    )
    return {
        "Join": unary(service.Join, None, None),
        "Watch": down(service.Watch, None, None),
        "Fetch": down(service.Fetch, reader(pb.FetchRequest), chunks.serialise),
        "Deliver": both(service.Deliver, read_delivery, chunks.serialise),
        "Report": unary(service.Report, None, None),
        "Leave": unary(service.Leave, None, None),
    }
