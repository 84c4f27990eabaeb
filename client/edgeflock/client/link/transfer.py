"""Transfers: one attempt at fetching a package or delivering an update, and what is kept between attempts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
from torch import Tensor

from edgeflock.client.costs import RoundCost
from edgeflock.client.keeping.models import ArrivingModel
from edgeflock.client.keeping.outbox import OutboxEntry
from edgeflock.client.link.pace import Journey
from edgeflock.client.link.stub import Stub
from edgeflock.client.link.wire import refused, settlement, update_header
from edgeflock.client.protocol import Interrupted, ServerRefused, Settlement
from edgeflock.common.errors import CorruptPayload, LayoutMismatch
from edgeflock.common.payload.checksum import GRANULE, Marks, extend
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.payload.memory import memory
from edgeflock.common.payload.pack import unpack_section
from edgeflock.common.payload.package import IDENTITY, Kind, Package, Scope, Section
from edgeflock.common.wire import chunks
from edgeflock.common.wire.chunks import Piece
from edgeflock.common.wire.messages import SCOPES, package_from_wire
from edgeflock.common.wire.transport import CHUNK, MAX_CHUNK, SMALL_CHUNK
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import bundle_pb2 as bundle_pb

Target = Callable[[Kind], tuple[Tensor, Layout]]  # where the numbers of a bundle go


# ------------------------------------------------------------------------------------------------ fetch


@dataclass
class _Destination:
    """Where one section's bytes go: into the tensor itself, or into a buffer that is decoded at the end."""

    section: Section
    tensor: Tensor
    layout: Layout
    bytes: memoryview
    direct: bool


class Incoming:
    """A package on its way in; after a broken stream it goes on at the last granule that was verified."""

    def __init__(self, round: int, scope: Scope, package: Package | None, target: Target) -> None:
        self.round = round
        self.scope = scope
        self.package = Package(())
        self.digest = b""  # empty until the package is known: a personal one is described when it is fetched
        self.received_bytes = 0  # with what came twice
        self.interrupted = False
        self.journey = Journey()
        self._marks = Marks()
        self._target = target
        self._places: list[_Destination] = []
        if package is not None:
            self.describe(package)

    def describe(self, package: Package) -> None:
        """Prepare for the bytes of this package; raises LayoutMismatch or CorruptPayload if it is unfit."""
        self.package, self.digest = package, package.digest
        self._places = [_place(section, *self._target(section.kind)) for section in package.sections]

    @property
    def position(self) -> int:
        return self._marks.size

    @property
    def encoded(self) -> bool:
        """Whether `decode` has anything to do."""
        return not all(place.direct for place in self._places)

    @property
    def complete(self) -> bool:
        return bool(self.digest) and self._marks.size == self.package.size_bytes

    def take(self, chunk: Piece | bundle_pb.Chunk) -> None:
        """Put the next bytes into place; raises Interrupted for bytes that are not the next good ones."""
        data, start = chunk.data, self._marks.size
        self.received_bytes += len(data)
        self.journey.moved()
        if chunk.offset != start or not 0 < len(data) <= self.package.size_bytes - start:
            raise self._broken(start)
        self._marks.add(data)
        if self._marks.value != chunk.crc32c:
            raise self._broken(start)
        self._write(start, memoryview(data))
        if self.complete and self._marks.value != self.package.crc32c:
            raise self._broken(0)

    def take_whole(self, payload: bytes) -> bool:
        """Take a payload that came with the task; return whether the package is there now."""
        if payload and len(payload) == self.package.size_bytes:
            with suppress(Interrupted):
                self.take(Piece(0, memoryview(payload), self.package.crc32c, len(payload)))
        return self.complete

    def rest(self) -> None:
        """Stop at a granule, from where the server can go on."""
        self.interrupted = True
        if not self.complete:
            self._marks.cut(self._marks.size - self._marks.size % GRANULE)

    def decode(self) -> None:
        """Turn the encoded sections into numbers, once all bytes are there; raises CorruptPayload."""
        for place in self._places:
            if not place.direct:
                unpack_section(place.section, place.layout, place.bytes, place.tensor)

    def _broken(self, good: int) -> Interrupted:
        self._marks.cut(good - good % GRANULE)
        return Interrupted(f"round {self.round}: the bytes after {good} are damaged")

    def _write(self, start: int, data: memoryview) -> None:
        first = 0  # of the section in the payload
        for place in self._places:
            size = len(place.bytes)
            low, high = max(start, first), min(start + len(data), first + size)
            if low < high:
                place.bytes[low - first : high - first] = data[low - start : high - start]
            first += size


class IncomingModel(Incoming):
    """A model on its way into a file, as it is: also what a process before this one has fetched of it."""

    def __init__(self, round: int, arrival: ArrivingModel, layouts: ModelLayouts) -> None:
        super().__init__(round, Scope.RESULT, None, _no_tensor)
        self._arrival = arrival
        parts = {Kind.MODEL: layouts.parameters, **layouts.beside}
        self._layouts = {kind: layout for kind, layout in parts.items() if layout.elements}
        self._doubted = False  # whether what is here was never compared with what the server has
        if arrival.package is not None:
            self._expect(arrival.package)
            self._marks = arrival.marks()
            self._doubted = self.position > 0
            if self.position == self.package.size_bytes and self._marks.value != self.package.crc32c:
                self._marks.cut(0)

    def describe(self, package: Package) -> None:
        self._expect(package)
        self._marks.cut(0)
        self._arrival.begin(package)

    def _expect(self, package: Package) -> None:
        """Take note of what comes; raises LayoutMismatch or CorruptPayload if it is no model of this run."""
        if package.kinds() != self._layouts.keys():
            there = ", ".join(sorted(package.kinds())) or "nothing"
            raise LayoutMismatch(f"what the server offers as a model holds {there}")
        for section in package.sections:
            _check(section, self._layouts[section.kind])
            if section.codec != IDENTITY:
                raise CorruptPayload(f"the server's {section.kind} is not as it is, but {section.codec}")
        self.package, self.digest = package, package.digest

    def take(self, chunk: Piece | bundle_pb.Chunk) -> None:
        super().take(chunk)
        self._doubted = False

    def _broken(self, good: int) -> Interrupted:
        return super()._broken(0 if self._doubted else good)

    def _write(self, start: int, data: memoryview) -> None:
        self._arrival.write(start, data)


def _no_tensor(kind: Kind) -> tuple[Tensor, Layout]:
    raise LayoutMismatch(f"nothing waits for a {kind}")


def _check(section: Section, layout: Layout) -> None:
    if section.layout_digest != layout.digest or section.elements != layout.elements:
        raise LayoutMismatch(
            f"the server's {section.kind} has {section.elements} numbers of another layout than this "
            f"client's, which has {layout.elements}"
        )
    if section.codec == IDENTITY and section.size_bytes != layout.size_bytes:
        raise CorruptPayload(
            f"the server's {section.kind} has {section.size_bytes} bytes, not {layout.size_bytes}"
        )


def _place(section: Section, tensor: Tensor, layout: Layout) -> _Destination:
    _check(section, layout)
    direct = section.codec == IDENTITY and tensor.device.type == "cpu"
    room = memory(tensor) if direct else memoryview(bytearray(section.size_bytes))
    return _Destination(section, tensor, layout, room, direct)


async def fetch(stub: Stub, session: bytes, incoming: Incoming) -> None:
    """Fetch until the package is complete.

    Raises ServerRefused, Interrupted or grpc.aio.AioRpcError; another attempt goes on where this one ended.
    """
    request = pb.FetchRequest(
        session=session,
        round=incoming.round,
        scope=SCOPES[incoming.scope],
        digest=incoming.digest,
        offset=incoming.position,
        chunk_bytes=SMALL_CHUNK if incoming.interrupted else 0,
    )
    call = stub.Fetch(request)
    try:
        async for answer in call:
            if isinstance(answer, Piece):
                incoming.take(answer)
            elif answer.HasField("refusal"):
                raise refused(answer.refusal)
            elif answer.HasField("package"):
                incoming.describe(package_from_wire(answer.package))
            else:
                incoming.take(answer.chunk)
        if not incoming.complete:
            raise Interrupted(f"round {incoming.round}: the server sent too little")
    except ServerRefused:
        raise
    except BaseException:
        incoming.rest()
        stub.cut = True
        raise
    finally:
        call.cancel()


# ------------------------------------------------------------------------------------------------ deliver


class Outgoing:
    """An update on its way out: what was sent, over all attempts."""

    def __init__(self, entry: OutboxEntry, payload: int, previous: RoundCost | None = None) -> None:
        self.entry = entry
        self.previous = previous  # costs of the round before, to be told with the header
        self.payload = payload  # descriptor
        self.sent_bytes = 0
        self.resent_bytes = 0
        self.interrupted = False
        self.reached = 0  # highest offset ever sent
        self.journey = Journey()

    def piece(self, offset: int, end: int, running: int) -> tuple[bytes, int]:
        """Return the message with the payload's bytes from offset to end, and the checksum up to there.

        `running` is the checksum of all bytes before.
        """
        data = os.pread(self.payload, end - offset, offset)
        if len(data) != end - offset:
            raise CorruptPayload(f"the outbox lost bytes of round {self.entry.round}")
        self.sent_bytes += len(data)
        self.resent_bytes += max(0, min(end, self.reached) - offset)
        self.reached = max(self.reached, end)
        known = end % GRANULE == 0 or end == self.entry.marks.size
        checksum = self.entry.marks.at(end) if known else extend(running, data)
        return chunks.write(chunks.IN_DELIVER, offset, data, checksum), checksum

    def checksum_at(self, offset: int) -> int:
        """Return the checksum of the bytes before any offset."""
        start = offset - offset % GRANULE
        return extend(self.entry.marks.at(start), os.pread(self.payload, offset - start, start))


async def deliver(stub: Stub, session: bytes, outgoing: Outgoing) -> Settlement | None:
    """Deliver until the server has it all: None for RECEIVED, or the verdict if there is one already.

    Raises ServerRefused, Interrupted or AioRpcError; another attempt goes on at what the server holds.
    """
    call, upload = stub.Deliver(), _Upload(outgoing)
    try:
        await call.write(pb.DeliverRequest(header=update_header(outgoing.entry, session, outgoing.previous)))
        answer = await call.read()
        while answer is not grpc.aio.EOF:
            match answer.WhichOneof("message"):
                case "credit":
                    answer = await upload.send(call, answer.credit)
                case "received" | "outcome" as said:
                    _leave_to_its_end(call)
                    return settlement(answer.outcome) if said == "outcome" else None
                case "refusal":
                    raise refused(answer.refusal)
                case _:
                    answer = await call.read()
        raise Interrupted("the server ended the delivery without an answer")
    except BaseException as error:
        outgoing.interrupted = outgoing.interrupted or not isinstance(error, ServerRefused)
        call.cancel()
        raise


def _leave_to_its_end(call: Any) -> None:
    """Let the server end a call that has said its last word; nobody need wait for that.

    To cut it off would cost the server some bytes that gRPC never frees, time after time.
    """
    _ending.add(call)
    call.add_done_callback(_ending.discard)


_ending: set[Any] = set()  # gRPC cuts off a call that nobody holds


class _Upload:
    """One attempt: sends as far as the credit reaches, never beyond."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._small = outgoing.interrupted
        self._size = outgoing.entry.package.size_bytes
        self._offset = -1  # before the first answer
        self._running = 0  # checksum of all bytes before the offset

    async def send(self, call: Any, credit: pb.Credit) -> Any:
        """Send what the credit allows and return the next answer.

        It is waited for from the beginning: gRPC forgets an answer that nobody reads when a write fails.
        """
        if self._offset < 0:
            self._begin(credit.held)
        answer = asyncio.create_task(call.read())
        try:
            await self._write(call, credit)
            heard = await answer
            self._outgoing.journey.moved()
            return heard
        finally:
            answer.cancel()  # what it may have raised meanwhile is nobody's any more

    async def _write(self, call: Any, credit: pb.Credit) -> None:
        """Write chunks; what goes wrong on the way, the next answer tells with its reason."""
        try:
            while self._offset < min(self._size, credit.limit):
                wanted = SMALL_CHUNK if self._small else min(credit.chunk_bytes or CHUNK, MAX_CHUNK)
                end = _end(self._offset, min(self._offset + wanted, credit.limit), self._size)
                message, self._running = self._outgoing.piece(self._offset, end, self._running)
                await call.write(message)
                self._outgoing.journey.moved()
                self._offset = end
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            self._size = self._offset  # the call is over: nothing more is sent

    def _begin(self, held: int) -> None:
        if held > self._size:
            raise CorruptPayload(f"the server says it holds {held} bytes of an update of {self._size}")
        self._offset, self._running = held, self._outgoing.checksum_at(held)


def _end(offset: int, end: int, size: int) -> int:
    """Let chunks end at granules, whose checksums are known, where the credit allows it."""
    granule = end - end % GRANULE
    return min(end, size) if end >= size or granule <= offset else granule
