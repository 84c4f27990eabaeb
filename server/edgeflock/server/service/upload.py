"""One Deliver stream: the answer to its header, its chunks under credit, in turn and in time, RECEIVED."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from edgeflock.common.errors import MalformedMessage
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.layout import DIGEST_BYTES
from edgeflock.common.reason import Reason
from edgeflock.common.wire.chunks import Piece
from edgeflock.common.wire.messages import package_from_wire, score_from_wire
from edgeflock.common.wire.transport import CHUNK, MAX_CHUNK, SMALL_CHUNK
from edgeflock.server.core.refusal import Refused
from edgeflock.server.costs.budget import credible
from edgeflock.server.engine.intake import Settled
from edgeflock.server.engine.transfer import CLOSED, Header, Landing
from edgeflock.server.service.flow import CreditPool, Patience, Stream, Turns, small_turns
from edgeflock.server.service.sessions import Session
from edgeflock.server.service.stated import of_training
from edgeflock.server.service.views import outcome_to_wire
from edgeflock.v1 import aggregator_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]

_STEP_ASIDE_S = 1.0  # for a replaced stream to say so; its connection may be dead
NEWER = "a newer stream of yours delivers this update"


class StreamEnded(Exception):
    """The stream ends with this refusal."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.sentence)
        self.refused = refused


async def read_in_time(context: Context, patience: Patience) -> Any:
    """Read a stream's next message; raises StreamEnded if its sender makes too little progress."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(patience.left_s):
            return await context.read()
    except TimeoutError:
        sentence = f"too little came within {patience.most_s:g} s although more was due"
        raise StreamEnded(Refused(Reason.TOO_SLOW, sentence)) from None
    finally:
        patience.waited(time.monotonic() - began)


Found = Landing | Settled | Refused


class Uploads:
    """What all uploads share: memory for what is in the air, and turns."""

    def __init__(self, pool: CreditPool, bytes_left: Callable[[], float]) -> None:
        self.pool, self._turns, self._small, self._bytes_left = pool, Turns(), small_turns(), bytes_left

    def turns(self, size_bytes: int) -> Turns:
        """Return the turns of updates of that size."""
        return self._turns if size_bytes > SMALL_CHUNK else self._small

    @property
    def scarce(self) -> bool:
        """Whether what may be in the air is more than the run may still use."""
        return self._bytes_left() < self.pool.budget


class Delivery:
    """The server's side of one upload."""

    def __init__(
        self, uploads: Uploads, session: Session, find: Callable[[], Awaitable[Found]], context: Context
    ) -> None:
        """`find` says where its bytes go, or why they do not."""
        self._uploads, self._session = uploads, session
        self._find, self._context = find, context

    async def run(self) -> Refused | None:
        """Serve the stream; return the refusal that ends it, if one does."""
        try:
            await self._serve()
        except StreamEnded as ended:
            return ended.refused
        except MalformedMessage as error:
            return Refused(Reason.MALFORMED, str(error))
        except asyncio.CancelledError as error:
            if error.args not in ((NEWER,), (CLOSED,)):
                raise
            return Refused(Reason.BUSY, error.args[0])
        return None

    async def say(self, answer: pb.DeliverResponse) -> None:
        """Send an answer, and note that it went."""
        self._session.sent(answer.ByteSize())
        await self._context.write(answer)

    async def _serve(self) -> None:
        match await self._find():
            case Refused() as refused:
                raise StreamEnded(refused)
            case Settled() as settled:
                await self.say(settled_to_wire(settled))
            case slot:
                if not slot.full:
                    await self._take_over()
                    async with self._uploads.turns(slot.size).one(slot.size):
                        await self._fill(slot)
                    _go_on(await slot.complete())
                await self.say(pb.DeliverResponse(received=pb.Received()))

    async def _take_over(self) -> None:
        """A newer stream of the same client ends the older one: a half-open connection may still hold it."""
        me = asyncio.current_task()
        old, self._session.upload = self._session.upload, me
        if old is not None and old is not me and not old.done():
            old.cancel(NEWER)
            await asyncio.wait([old], timeout=_STEP_ASIDE_S)

    async def _fill(self, slot: Landing) -> None:
        _go_on(await slot.begin())
        pool = self._uploads.pool
        stream = pool.admit(slot.held, slot.size)
        self._session.arriving = slot
        chunk = SMALL_CHUNK if slot.held else CHUNK
        patience = Patience(chunk)
        try:
            await self._offer(slot, stream, chunk)
            while slot.held < slot.size:
                await self._take_chunk(slot, stream, chunk, patience)
        finally:
            pool.close(stream)
            if self._session.arriving is slot:  # else a newer stream fills it
                self._session.arriving = None

    async def _take_chunk(self, slot: Landing, stream: Stream, chunk: int, patience: Patience) -> None:
        piece = await self._next(patience)
        size = len(piece.data)
        patience.received(size)
        if not 0 < size <= MAX_CHUNK or piece.offset + size > stream.limit:
            self._session.received(piece.message_bytes, size)
            raise MalformedMessage(f"a chunk of {size} bytes at {piece.offset} is beyond your credit")
        self._session.seen = time.monotonic()
        _go_on(await slot.append(piece.offset, piece.data, piece.crc32c, message_bytes=piece.message_bytes))
        self._uploads.turns(slot.size).moved(size)
        if (self._uploads.pool.spooled(stream, size) or self._uploads.scarce) and slot.held < slot.size:
            await self._offer(slot, stream, chunk)

    async def _next(self, patience: Patience) -> Piece:
        message = await read_in_time(self._context, patience)
        if isinstance(message, Piece):
            return message
        if message is grpc.aio.EOF:  # a cut, maybe of one direction only: what is held stays
            raise StreamEnded(Refused(Reason.BUSY, "the stream ended before the payload did: go on"))
        if message.WhichOneof("message") != "chunk":
            raise MalformedMessage("after the header only chunks may follow")
        chunk = message.chunk
        return Piece(chunk.offset, memoryview(chunk.data), chunk.crc32c, message.ByteSize())

    async def _offer(self, slot: Landing, stream: Stream, chunk: int) -> None:
        limit = min(stream.limit, slot.held + SMALL_CHUNK) if self._uploads.scarce else stream.limit
        await self.say(pb.DeliverResponse(credit=pb.Credit(held=slot.held, limit=limit, chunk_bytes=chunk)))


def _go_on(refused: Refused | None) -> None:
    if refused is not None:
        raise StreamEnded(refused)


def settled_to_wire(settled: Settled) -> pb.DeliverResponse:
    """Return the answer to the header of an update that has its final word."""
    return pb.DeliverResponse(outcome=outcome_to_wire(settled.round, settled.outcome))


def header_of(message: pb.UpdateHeader) -> Header:
    """Return what a header says; raises MalformedMessage if it contradicts itself."""
    if len(message.made_from) not in (0, DIGEST_BYTES):
        raise MalformedMessage(f"made_from has {len(message.made_from)} bytes, not {DIGEST_BYTES}")
    package = package_from_wire(message.package)
    scores = map(score_from_wire, message.scores)
    moved = message.moves_state if message.HasField("moves_state") else None
    described = Description(
        message.round, package, message.samples, tuple(scores), made_from=message.made_from, moved=moved
    )
    cost = message.cost
    return Header(described, of_training(cost), cost.used_up, credible(cost.held_up_s), credible(cost.busy_s))
