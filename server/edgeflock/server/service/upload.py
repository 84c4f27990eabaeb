"""One Deliver stream: the answer to its header, its chunks under credit, RECEIVED."""

from __future__ import annotations

import asyncio
import errno
import time
from typing import Any

import grpc

from edgeflock.common.errors import CorruptPayload, MalformedMessage
from edgeflock.common.payload.package import Package
from edgeflock.common.wire.chunks import Piece
from edgeflock.common.wire.messages import package_from_wire
from edgeflock.common.wire.transport import CHUNK, MAX_CHUNK, SMALL_CHUNK
from edgeflock.server.core.decisions import Outcome, Verdict
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.folding import CLOSED
from edgeflock.server.files.spool import Entry
from edgeflock.server.journal.journal import FULL
from edgeflock.server.service.checks import Unfit, check_package, check_scores, stored_header
from edgeflock.server.service.credit import CreditPool, Stream
from edgeflock.server.service.join import refusal
from edgeflock.server.service.patience import Patience
from edgeflock.server.service.sessions import Session
from edgeflock.server.service.stated import of_training
from edgeflock.server.service.turns import Turns
from edgeflock.server.service.views import outcome_to_wire
from edgeflock.v1 import aggregator_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]

_RETRY_SPACE_MS = 2000
_STEP_ASIDE_S = 1.0  # for a replaced stream to say so; its connection may be dead
_PASSING = {
    **dict.fromkeys(FULL, pb.REASON_NO_SPACE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.ENOMEM), pb.REASON_BUSY),
}
_NEWER = "a newer stream of yours delivers this update"


class Refused(Exception):
    """The stream ends with this refusal."""

    def __init__(self, answer: pb.Refusal) -> None:
        super().__init__(answer.sentence)
        self.answer = answer


async def read_in_time(context: Context, patience: Patience) -> Any:
    """Read a stream's next message; raises Refused if its sender makes too little progress."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(patience.left_s):
            return await context.read()
    except TimeoutError:
        sentence = f"too little came within {patience.most_s:g} s although more was due"
        raise Refused(refusal(pb.REASON_TOO_SLOW, sentence)) from None
    finally:
        patience.waited(time.monotonic() - began)


class Delivery:
    """The server's side of one upload."""

    def __init__(
        self,
        engine: Engine,
        pool: CreditPool,
        turns: Turns,
        session: Session,
        header: pb.UpdateHeader,
        context: Context,
    ) -> None:
        self._engine, self._pool, self._turns, self._session = engine, pool, turns, session
        self._header, self._context = header, context

    async def run(self) -> pb.Refusal | None:
        """Serve the stream; return the refusal that ends it, if one does."""
        try:
            await self._serve()
        except Refused as refused:
            return refused.answer
        except MalformedMessage as error:
            reason = error.reason if isinstance(error, Unfit) else pb.REASON_MALFORMED
            return refusal(reason, str(error))
        except CorruptPayload as error:
            return refusal(pb.REASON_BAD_TRANSFER, str(error))
        except OSError as error:
            return self._unwritten(error)
        except asyncio.CancelledError as error:
            if error.args not in ((_NEWER,), (CLOSED,)):
                raise
            return refusal(pb.REASON_BUSY, error.args[0])
        return None

    async def say(self, answer: pb.DeliverResponse) -> None:
        """Send an answer, and note that it went."""
        self._session.sent(answer.ByteSize())
        await self._context.write(answer)

    def _unwritten(self, error: OSError) -> pb.Refusal:
        """What passes is met by another try; a disk that fails ends this process (DESIGN rule 7)."""
        reason = _PASSING.get(error.errno or 0, pb.REASON_DRAINING)
        if reason == pb.REASON_DRAINING:
            self._engine.broken(error)
        sentence = f"the server cannot write your update: {error.strerror}"
        return refusal(reason, sentence, retry_after_ms=_RETRY_SPACE_MS)

    async def _serve(self) -> None:
        package = package_from_wire(self._header.package)
        seat = self._engine.machine.roster.seat_of.get(self._session.client_id)
        if seat is None:
            raise Refused(refusal(pb.REASON_NO_SUCH_TASK, "you have no seat in this run"))
        if settled := self._settled(seat, package):
            await self.say(pb.DeliverResponse(outcome=outcome_to_wire(self._header.round, settled)))
            return
        entry = self._entry(seat, package)
        if not entry.complete:
            await self._take_over()
            async with self._turns.one(package.size_bytes):
                self._check_open(seat)
                self._start_costs(seat, package)
                await self._receive(seat, entry, package)
            self._engine.received(seat, package)
        await self.say(pb.DeliverResponse(received=pb.Received()))

    def _settled(self, seat: int, package: Package) -> Outcome | None:
        """Return the final word on this very update, if there is one."""
        machine = self._engine.machine
        if self._header.round > machine.committed and machine.ending is None:
            return None
        if self._header.round > machine.round:
            raise Refused(refusal(pb.REASON_NO_SUCH_TASK, f"there is no round {self._header.round}"))
        outcome = self._engine.verdicts.find(seat, self._header.round)
        if outcome is None:
            raise Refused(refusal(pb.REASON_NO_SUCH_TASK, f"you had no task in round {self._header.round}"))
        if outcome.digest == package.digest:
            return outcome
        late = outcome.verdict if outcome.verdict is not Verdict.COUNTED else Verdict.LATE
        return Outcome(
            seat, package.digest, late
        )  # another update was counted, or none: this one never will be

    def _entry(self, seat: int, package: Package) -> Entry:
        """Return the spool entry that the update goes to, or raise Refused."""
        engine, number = self._engine, self._header.round
        if engine.machine.draining:
            raise Refused(refusal(pb.REASON_DRAINING, "the server is going down", retry_after_ms=1000))
        opened = engine.opened
        if number == engine.machine.round and (opened is None or opened.number != number):
            raise Refused(refusal(pb.REASON_BUSY, f"round {number} is being opened", retry_after_ms=100))
        if opened is None or opened.number != number:
            raise Refused(refusal(pb.REASON_NO_SUCH_TASK, f"round {number} is not open"))
        complete = opened.updates.get(seat)
        if complete is not None and complete.package.digest == package.digest:
            return opened.entries[seat]
        if complete is not None:
            raise Refused(refusal(pb.REASON_LATE, f"another update of yours is complete in round {number}"))
        if not engine.machine.has_task(seat):
            raise Refused(self._no_task(seat))
        check_package(package, opened.work.uploads, opened.work.scalars)
        check_scores(self._header.scores)
        entry = engine.opening.entry(opened, seat)
        if entry is None:
            raise Refused(refusal(pb.REASON_NO_SUCH_TASK, f"you have no task in round {number}"))
        return entry

    def _no_task(self, seat: int) -> pb.Refusal:
        if (conduct := self._engine.machine.quarantined(seat)) is None:
            return refusal(pb.REASON_NO_SUCH_TASK, f"you have no task in round {self._header.round}")
        told = f"{conduct.refused} bad updates came from you, the last one {conduct.reason}"
        return refusal(
            pb.REASON_QUARANTINED, f"you take no part up to and with round {conduct.until}: {told}"
        )

    def _check_open(self, seat: int) -> None:
        """Raise Refused if the round was closed since the header was answered: its verdict is on the way."""
        engine, number = self._engine, self._header.round
        if engine.opened is None or engine.opened.number != number or not engine.machine.has_task(seat):
            raise Refused(refusal(pb.REASON_BUSY, CLOSED))

    async def _take_over(self) -> None:
        """A newer stream of the same client ends the older one: a half-open connection may still hold it."""
        me = asyncio.current_task()
        old, self._session.upload = self._session.upload, me
        if old is not None and old is not me and not old.done():
            old.cancel(_NEWER)
            await asyncio.wait([old], timeout=_STEP_ASIDE_S)

    def _start_costs(self, seat: int, package: Package) -> None:
        cost, opened = self._header.cost, self._engine.opened
        assert opened is not None
        if cost.used_up in opened.work.allowances:
            opened.used_up = cost.used_up
        said = {name: int(package.scalars[name]) for name in ("samples", "steps")}
        opened.costs[seat] = {**said, **of_training(cost)}

    async def _receive(self, seat: int, entry: Entry, package: Package) -> None:
        held = entry.begin(stored_header(self._header))
        stream = self._pool.admit(held, package.size_bytes)
        arriving = self._session.arriving = (entry, package.size_bytes)
        chunk = SMALL_CHUNK if held else CHUNK
        patience = Patience(chunk)
        try:
            if not package.size_bytes:
                await self._engine.write(entry.note)
            await self._offer(entry, stream, chunk)
            while entry.held < package.size_bytes:
                await self._take_chunk(entry, stream, chunk, package, patience)
                self._check_open(seat)
        finally:
            self._pool.close(stream)
            if self._session.arriving is arriving:  # else a newer stream fills it
                self._session.arriving = None
        if entry.running != package.crc32c:
            entry.forget()
            raise CorruptPayload("the payload is complete, but not the one that its header describes")

    async def _take_chunk(
        self, entry: Entry, stream: Stream, chunk: int, package: Package, patience: Patience
    ) -> None:
        piece = await self._next(patience)
        size = len(piece.data)
        patience.received(size)
        self._session.received(piece.message_bytes, size, package, piece.offset)
        if not 0 < size <= MAX_CHUNK or piece.offset + size > stream.limit:
            raise MalformedMessage(f"a chunk of {size} bytes at {piece.offset} is beyond your credit")
        last = piece.offset + size == package.size_bytes
        try:
            await self._engine.write(entry.append, piece.offset, piece.data, piece.crc32c, last)
        except CorruptPayload:
            entry.forget()
            raise
        self._turns.moved(size)
        self._engine.accounts.limits.admits()  # if not, the round is over now
        if (self._pool.spooled(stream, size) or self._scarce) and entry.held < stream.size:
            await self._offer(entry, stream, chunk)

    async def _next(self, patience: Patience) -> Piece:
        message = await read_in_time(self._context, patience)
        if isinstance(message, Piece):
            return message
        if message is grpc.aio.EOF:  # a cut, maybe of one direction only: what is held stays
            raise Refused(refusal(pb.REASON_BUSY, "the stream ended before the payload did: go on"))
        if message.WhichOneof("message") != "chunk":
            raise MalformedMessage("after the header only chunks may follow")
        chunk = message.chunk
        return Piece(chunk.offset, memoryview(chunk.data), chunk.crc32c, message.ByteSize())

    @property
    def _scarce(self) -> bool:
        """Whether what may be in the air is more than the run may still use."""
        return self._engine.accounts.limits.bytes_left() < self._pool.budget

    async def _offer(self, entry: Entry, stream: Stream, chunk: int) -> None:
        limit = min(stream.limit, entry.held + SMALL_CHUNK) if self._scarce else stream.limit
        credit = pb.Credit(held=entry.held, limit=limit, chunk_bytes=chunk)
        await self.say(pb.DeliverResponse(credit=credit))
