"""An update on its way out: what is sent where, how much at once, and what is made of the answers."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
import torch

from edgeflock.client.costs import TrainCost
from edgeflock.client.keeping.outbox import Outbox, OutboxEntry
from edgeflock.client.link.stub import Stub
from edgeflock.client.link.transfer import Outgoing, deliver
from edgeflock.client.protocol import Interrupted, ServerRefused
from edgeflock.common.errors import CorruptPayload
from edgeflock.common.payload.checksum import GRANULE, extend
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.pack import pack
from edgeflock.common.payload.package import IDENTITY, Kind
from edgeflock.common.wire.transport import CHUNK, MAX_CHUNK, SMALL_CHUNK
from edgeflock.v1 import aggregator_pb2 as pb

NUMBERS = 2 * MAX_CHUNK // 4 + 1000
SIZE = NUMBERS * 4


def credit(held: int, limit: int = 1 << 40, chunk: int = 0) -> pb.DeliverResponse:
    return pb.DeliverResponse(credit=pb.Credit(held=held, limit=limit, chunk_bytes=chunk))


RECEIVED = pb.DeliverResponse(received=pb.Received())


class Played:
    """One call of Deliver: its answers come one after the other."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.header: pb.UpdateHeader | None = None
        self.chunks: list[tuple[int, bytes, int]] = []
        self.cancelled = 0
        self.left: list[Callable[[Any], None]] = []
        self.breaks_at: int | None = None

    async def write(self, message: pb.DeliverRequest | bytes) -> None:
        for _ in range(3):  # so that an answer may be there before it ends
            await asyncio.sleep(0)
        if isinstance(message, pb.DeliverRequest):
            self.header = message.header
            return
        chunk = pb.DeliverRequest.FromString(message).chunk
        if self.breaks_at is not None and chunk.offset >= self.breaks_at:
            raise asyncio.InvalidStateError("the call is over")
        self.chunks.append((chunk.offset, chunk.data, chunk.crc32c))

    async def read(self) -> Any:
        await asyncio.sleep(0)
        answer = self._answers.pop(0) if self._answers else grpc.aio.EOF
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self) -> None:
        self.cancelled += 1

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.left.append(callback)

    @property
    def sizes(self) -> list[int]:
        return [len(data) for _, data, _ in self.chunks]


@pytest.fixture(scope="module")
def outbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OutboxEntry, int]]:
    box = Outbox(tmp_path_factory.mktemp("client"))
    flat = torch.arange(NUMBERS, dtype=torch.float32)
    made = pack({Kind.DELTA: (flat, Layout.single("w", NUMBERS), IDENTITY)}, {}, lambda _: torch.Generator())
    entry = OutboxEntry("run", Description(4, made.package, 11), TrainCost(), made.marks)
    box.put(entry, made.pieces)
    descriptor = box.open_payload()
    yield entry, descriptor
    os.close(descriptor)


@pytest.fixture
def outgoing(outbox: tuple[OutboxEntry, int]) -> Outgoing:
    return Outgoing(*outbox)


def sent(outgoing: Outgoing, call: Played) -> Any:
    """Attempt the delivery; all that was sent is checked against the payload."""
    stub = cast(Stub, SimpleNamespace(Deliver=lambda: call))
    try:
        return asyncio.run(deliver(stub, b"session", outgoing))
    finally:
        payload = os.pread(outgoing.payload, SIZE, 0)
        first = call.chunks[0][0] if call.chunks else 0
        end, running = first, extend(0, payload[:first])
        for offset, data, checksum in call.chunks:
            running = extend(running, data)
            assert (offset, data, checksum) == (end, payload[end : end + len(data)], running)
            end += len(data)


def test_chunks_are_as_large_as_the_server_wishes_within_bounds(outgoing: Outgoing) -> None:
    for wished, size in ((0, CHUNK), (2 * GRANULE, 2 * GRANULE), (9 * MAX_CHUNK, MAX_CHUNK)):
        call = Played(credit(0, chunk=wished), RECEIVED)
        assert sent(outgoing, call) is None
        assert set(call.sizes[:-1]) == {size}
        assert sum(call.sizes) == SIZE
        assert call.header is not None
        assert (call.header.session, call.header.round) == (b"session", 4)
        assert (call.cancelled, len(call.left)) == (0, 1)  # it is left to its end


def test_after_an_attempt_that_broke_chunks_are_small(outgoing: Outgoing) -> None:
    broken = Played(credit(0, limit=3 * GRANULE))
    with pytest.raises(Interrupted, match="ended the delivery without an answer"):
        sent(outgoing, broken)
    assert (broken.cancelled, outgoing.interrupted) == (1, True)
    assert (outgoing.sent_bytes, outgoing.resent_bytes, outgoing.reached) == (3 * GRANULE, 0, 3 * GRANULE)
    again = Played(credit(GRANULE, limit=GRANULE + 2 * SMALL_CHUNK), RECEIVED)
    sent(outgoing, again)
    assert set(again.sizes) == {SMALL_CHUNK}
    assert again.chunks[0][0] == GRANULE
    assert outgoing.resent_bytes == 2 * GRANULE
    assert outgoing.sent_bytes == 3 * GRANULE + 2 * SMALL_CHUNK


@pytest.mark.parametrize("held", [1, GRANULE - 1, GRANULE, GRANULE + 1, SIZE - 1, SIZE])
def test_it_goes_on_at_any_byte_that_the_server_holds_and_comes_back_to_granules(
    outgoing: Outgoing, held: int
) -> None:
    call = Played(credit(held, chunk=2 * GRANULE), RECEIVED)
    assert sent(outgoing, call) is None
    assert sum(call.sizes) == SIZE - held
    ends = [offset + len(data) for offset, data, _ in call.chunks]
    assert all(end % GRANULE == 0 for end in ends[:-1])
    assert outgoing.resent_bytes == 0


@pytest.mark.parametrize("limit", [1, GRANULE - 1, GRANULE + 7, 3 * GRANULE])
def test_no_byte_is_sent_beyond_the_credit(outgoing: Outgoing, limit: int) -> None:
    call = Played(credit(0, limit=limit), credit(0, limit=limit), credit(0, limit=2 * limit), RECEIVED)
    sent(outgoing, call)
    assert sum(call.sizes) == 2 * limit


def test_a_server_that_holds_more_than_there_is_is_not_believed(outgoing: Outgoing) -> None:
    with pytest.raises(CorruptPayload, match=f"it holds {SIZE + 1} bytes of an update of {SIZE}"):
        sent(outgoing, Played(credit(SIZE + 1)))


def test_a_payload_that_is_shorter_than_it_was_is_not_sent(tmp_path: Path, outgoing: Outgoing) -> None:
    (tmp_path / "cut").write_bytes(bytes(GRANULE + 5))
    descriptor = os.open(tmp_path / "cut", os.O_RDONLY)
    try:
        with pytest.raises(CorruptPayload, match="the outbox lost bytes of round 4"):
            sent(Outgoing(outgoing.entry, descriptor), Played(credit(0)))
    finally:
        os.close(descriptor)


def test_an_answer_that_nobody_waits_for_any_more_is_no_complaint(
    tmp_path: Path, outgoing: Outgoing, caplog: pytest.LogCaptureFixture
) -> None:
    """The call breaks and the payload is gone in the same instant: one of the two is told."""
    (tmp_path / "cut").write_bytes(os.pread(outgoing.payload, GRANULE, 0))
    descriptor = os.open(tmp_path / "cut", os.O_RDONLY)
    call = Played(credit(0, chunk=GRANULE), ConnectionError("the call broke"))
    try:
        with pytest.raises(CorruptPayload):
            asyncio.run(
                deliver(
                    cast(Stub, SimpleNamespace(Deliver=lambda: call)),
                    b"session",
                    Outgoing(outgoing.entry, descriptor),
                )
            )
    finally:
        os.close(descriptor)
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_a_refusal_is_no_broken_line(outgoing: Outgoing) -> None:
    refusal = pb.Refusal(reason=pb.REASON_BUSY, sentence="later", temporary=True)
    call = Played(pb.DeliverResponse(refusal=refusal))
    with pytest.raises(ServerRefused, match="later"):
        sent(outgoing, call)
    assert (call.chunks, outgoing.interrupted) == ([], False)


def test_of_a_write_that_fails_the_answer_tells_why(outgoing: Outgoing) -> None:
    """gRPC's own word for it says nothing."""
    refusal = pb.Refusal(reason=pb.REASON_TOO_SLOW, sentence="too slow", temporary=True)
    call = Played(credit(0, chunk=GRANULE), pb.DeliverResponse(refusal=refusal))
    call.breaks_at = 2 * GRANULE
    with pytest.raises(ServerRefused, match="too slow"):
        sent(outgoing, call)
    assert call.sizes == [GRANULE, GRANULE]


def test_a_word_that_is_none_is_waited_over(outgoing: Outgoing) -> None:
    """Of a later server, which says more than this client knows."""
    outcome = pb.Outcome(round=4, digest=b"d", counted=True)
    call = Played(pb.DeliverResponse(), pb.DeliverResponse(outcome=outcome))
    settled = sent(outgoing, call)
    assert (settled.round, settled.digest, settled.counted) == (4, b"d", True)
