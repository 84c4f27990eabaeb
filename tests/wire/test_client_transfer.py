"""Transfers of the client against a server that cuts, damages, refuses and grants little credit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import numpy as np
import pytest
import torch

from edgeflock.client.costs import TrainCost
from edgeflock.client.keeping.outbox import Outbox, OutboxEntry
from edgeflock.client.link import wire
from edgeflock.client.link.line import Channel
from edgeflock.client.link.transfer import Incoming, Outgoing, deliver, fetch
from edgeflock.client.protocol import Interrupted, ServerRefused, Settlement
from edgeflock.common.errors import LayoutMismatch
from edgeflock.common.payload.checksum import GRANULE
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.pack import Packed, pack
from edgeflock.common.payload.package import IDENTITY, CodecChoice, Kind, Package, Scope
from edgeflock.common.verdict import Verdict
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import bundle_pb2
from support.rehearsal import Rehearsal, Script, dialled, serving

LAYOUT = Layout.single("w", 9 * GRANULE // 4 + 1234)
COUNTERS = Layout.single("n", 3, dtype="int64")
SESSION = b"s" * 16


def packed(codec: CodecChoice = IDENTITY) -> tuple[dict[Kind, torch.Tensor], Packed]:
    bundles = {
        Kind.MODEL: torch.randn(LAYOUT.elements, generator=torch.Generator().manual_seed(1)),
        Kind.COUNTERS: torch.arange(3),
    }
    parts = {
        Kind.MODEL: (bundles[Kind.MODEL], LAYOUT, codec),
        Kind.COUNTERS: (bundles[Kind.COUNTERS], COUNTERS, IDENTITY),
    }
    return bundles, pack(parts, {}, lambda _: torch.Generator().manual_seed(2))


def joined(encoded: Packed) -> bytes:
    return b"".join(bytes(piece) for piece in encoded.pieces)


class Room:
    """Where the test's downloads go."""

    def __init__(self, layout: Layout = LAYOUT) -> None:
        self.tensors = {
            Kind.MODEL: torch.zeros(layout.elements),
            Kind.COUNTERS: torch.zeros(3, dtype=torch.int64),
        }
        self.layouts = {Kind.MODEL: layout, Kind.COUNTERS: COUNTERS}

    def target(self, kind: Kind) -> tuple[torch.Tensor, Layout]:
        return self.tensors[kind], self.layouts[kind]


async def tried(
    target: str, attempt: Callable[[Channel], Awaitable[object]], most: int
) -> tuple[object, int]:
    """Attempt over fresh channels until it works; return the answer and how often it failed."""
    for failures in range(most):
        try:
            async with dialled(target) as channel:
                return await attempt(channel), failures
        except (grpc.aio.AioRpcError, Interrupted):
            pass
    raise AssertionError(f"{most} attempts were not enough")


# ------------------------------------------------------------------------------------------------ fetch


def fetched(script: Script, *, known: bool = True, most: int = 20) -> tuple[Rehearsal, Incoming, Room]:
    """Fetch the package through all that the script does, and compare what arrived."""
    bundles, encoded = packed()
    server, room = Rehearsal(script, encoded.package, joined(encoded)), Room()

    async def scenario() -> Incoming:
        incoming = Incoming(1, Scope.SHARED, encoded.package if known else None, room.target)
        async with serving(server) as target:
            await tried(target, lambda channel: fetch(channel.stub, SESSION, incoming), most)
        return incoming

    incoming = asyncio.run(scenario())
    assert incoming.complete
    for kind, sent in bundles.items():
        assert torch.equal(room.tensors[kind], sent)
    return server, incoming, room


def test_a_package_arrives_straight_in_its_tensors() -> None:
    server, incoming, _ = fetched(Script(chunk=4 * GRANULE))
    assert server.offsets == [0]
    assert not incoming.encoded
    assert incoming.received_bytes == len(server.payload)


def test_a_cut_download_goes_on_where_it_was_with_small_chunks() -> None:
    server, incoming, _ = fetched(Script(cuts=[3 * GRANULE, 2 * GRANULE, 0], chunk=GRANULE))
    assert server.offsets == [0, 3 * GRANULE, 5 * GRANULE, 5 * GRANULE]
    assert set(server.sizes[1]) == {GRANULE}
    assert incoming.received_bytes == len(server.payload)


def test_a_download_that_ends_early_and_in_good_order_is_not_the_whole() -> None:
    server, incoming, _ = fetched(Script(ends=[3 * GRANULE], chunk=GRANULE))
    assert server.offsets == [0, 3 * GRANULE]
    assert incoming.received_bytes == len(server.payload)


def test_a_damaged_chunk_is_not_taken_and_asked_for_again() -> None:
    server, incoming, _ = fetched(Script(flips=[2 * GRANULE + 5, None]))
    assert server.offsets == [0, 2 * GRANULE]
    assert incoming.received_bytes == len(server.payload) + GRANULE


def test_a_stream_that_is_given_up_is_ended_at_the_server_too() -> None:
    """Else it goes on sending what nobody reads, as long as somebody holds the error."""

    class Endless(Rehearsal):
        left = False

        async def Fetch(  # noqa: N802
            self,
            request: pb.FetchRequest,
            context: grpc.aio.ServicerContext[pb.FetchRequest, pb.FetchResponse],
        ) -> AsyncIterator[pb.FetchResponse]:
            try:
                yield pb.FetchResponse(chunk=bundle_pb2.Chunk(offset=7, data=b"not the next"))
                await asyncio.Event().wait()
            finally:
                self.left = True
                await self.nudge()

    async def scenario() -> None:
        _, encoded = packed()
        server = Endless(Script())
        incoming = Incoming(1, Scope.SHARED, encoded.package, Room().target)
        async with serving(server) as target, dialled(target) as channel:
            assert not channel.stub.cut
            with pytest.raises(Interrupted) as caught:
                await fetch(channel.stub, SESSION, incoming)
            await server.until(lambda: server.left)
            assert (channel.stub.cut, incoming.interrupted) == (True, True)
            assert caught.value.__traceback__ is not None

    asyncio.run(scenario())


def test_chunks_that_end_between_granules_are_resumed_at_a_granule() -> None:
    """Another server's choice of sizes must not break the next offset."""
    server, _, _ = fetched(Script(cuts=[5 * 100_000], chunk=100_000))
    assert server.offsets == [0, 5 * 100_000 // GRANULE * GRANULE]


def test_a_personal_package_is_described_by_its_first_message() -> None:
    server, _, _ = fetched(Script(cuts=[2 * GRANULE]), known=False)
    assert server.offsets == [0, 2 * GRANULE]


def test_an_encoded_package_is_decoded() -> None:
    bundles, encoded = packed(CodecChoice("fp16", zstd=True))
    server, room = Rehearsal(Script(), encoded.package, joined(encoded)), Room()

    async def scenario() -> None:
        incoming = Incoming(1, Scope.SHARED, encoded.package, room.target)
        async with serving(server) as target, dialled(target) as channel:
            await fetch(channel.stub, SESSION, incoming)
        assert incoming.encoded
        incoming.decode()

    asyncio.run(scenario())
    np.testing.assert_allclose(room.tensors[Kind.MODEL], bundles[Kind.MODEL], rtol=1e-3, atol=1e-4)
    assert torch.equal(room.tensors[Kind.COUNTERS], bundles[Kind.COUNTERS])


def test_a_package_of_another_content_under_the_same_description_is_never_taken() -> None:
    """Every chunk agrees with itself, the whole does not: it starts again at 0, and never completes."""
    _, encoded = packed()
    payload = joined(encoded)
    server, room = Rehearsal(Script(), encoded.package, payload[:-1] + b"\x55"), Room()

    async def scenario() -> Incoming:
        incoming = Incoming(1, Scope.SHARED, encoded.package, room.target)
        async with serving(server) as target:
            with pytest.raises(AssertionError, match="3 attempts"):
                await tried(target, lambda channel: fetch(channel.stub, SESSION, incoming), 3)
        return incoming

    assert not asyncio.run(scenario()).complete
    assert server.offsets == [0, 0, 0]


def test_a_refused_fetch_says_why_and_keeps_its_place() -> None:
    refusal = pb.Refusal(reason=pb.REASON_BUSY, sentence="later", temporary=True, retry_after_ms=7)
    _, encoded = packed()
    server = Rehearsal(Script(cuts=[GRANULE], refusals=[None, refusal]), encoded.package, joined(encoded))

    async def scenario() -> None:
        incoming = Incoming(1, Scope.SHARED, encoded.package, Room().target)
        async with serving(server) as target, dialled(target) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await fetch(channel.stub, SESSION, incoming)
            with pytest.raises(ServerRefused, match="later") as caught:
                await fetch(channel.stub, SESSION, incoming)
            assert (caught.value.temporary, caught.value.retry_after_ms) == (True, 7)
            await fetch(channel.stub, SESSION, incoming)
            assert incoming.complete

    asyncio.run(scenario())
    assert server.offsets == [0, GRANULE, GRANULE]


def test_a_package_of_another_layout_is_refused_before_a_byte_is_asked_for() -> None:
    _, encoded = packed()
    with pytest.raises(LayoutMismatch, match="model"):
        Incoming(1, Scope.SHARED, encoded.package, Room(Layout.single("other", 7)).target)


# ------------------------------------------------------------------------------------------------ deliver


@pytest.fixture(scope="module")
def payload() -> bytes:
    return os.urandom(9 * GRANULE + 1234)


def outbox_of(folder: Path, payload: bytes) -> Outbox:
    flat = torch.frombuffer(bytearray(payload[: len(payload) // 4 * 4]), dtype=torch.int32).view(
        torch.float32
    )
    layout = Layout.single("w", flat.numel())
    encoded = pack({Kind.DELTA: (flat, layout, IDENTITY)}, {"steps": 3.0}, lambda _: torch.Generator())
    outbox = Outbox(folder)
    cost = TrainCost(train_s=2.0)
    outbox.put(OutboxEntry("run", Description(4, encoded.package, 11), cost, encoded.marks), encoded.pieces)
    return outbox


def delivered(folder: Path, payload: bytes, script: Script) -> tuple[Rehearsal, Outgoing, object, int]:
    server = Rehearsal(script)
    outbox = outbox_of(folder, payload)
    assert outbox.entry is not None
    descriptor = outbox.open_payload()
    outgoing = Outgoing(outbox.entry, descriptor)

    async def scenario() -> tuple[object, int]:
        async with serving(server) as target:
            return await tried(target, lambda channel: deliver(channel.stub, SESSION, outgoing), 50)

    try:
        answer, failures = asyncio.run(scenario())
    finally:
        os.close(descriptor)
    assert server.beyond_credit == 0
    return server, outgoing, answer, failures


def sent(payload: bytes) -> bytes:
    return payload[: len(payload) // 4 * 4]


def test_an_update_is_delivered_whole(tmp_path: Path, payload: bytes) -> None:
    server, outgoing, answer, _ = delivered(tmp_path, payload, Script(chunk=4 * GRANULE))
    assert answer is None  # RECEIVED
    assert bytes(server.held) == sent(payload)
    assert server.sizes[0][:2] == [4 * GRANULE, 4 * GRANULE]
    assert (outgoing.sent_bytes, outgoing.resent_bytes) == (len(sent(payload)), 0)
    header = server.headers[0]
    assert (header.session, header.round, header.samples) == (SESSION, 4, 11)
    assert (header.cost.train_s, dict(header.package.scalars)) == (2.0, {"steps": 3.0})


@pytest.mark.parametrize("credit", [GRANULE, GRANULE + 1, 2 * GRANULE, 70_000, 1])
def test_nothing_is_sent_beyond_the_credit(tmp_path: Path, payload: bytes, credit: int) -> None:
    small = payload if credit > 1 else payload[:40]
    server, _, _, _ = delivered(tmp_path, small, Script(credit=credit, chunk=4 * GRANULE))
    assert bytes(server.held) == sent(small)
    assert max(server.sizes[0]) <= credit


def test_a_cut_upload_goes_on_at_what_the_server_holds(tmp_path: Path, payload: bytes) -> None:
    cuts: list[int | None] = [2 * GRANULE, GRANULE, 3 * GRANULE]
    server, outgoing, answer, failures = delivered(tmp_path, payload, Script(cuts=cuts, credit=2 * GRANULE))
    assert answer is None
    assert failures == 3
    assert bytes(server.held) == sent(payload)
    assert server.offsets == [0, 2 * GRANULE, 3 * GRANULE, 6 * GRANULE]
    assert set(server.sizes[1]) == {GRANULE}
    assert outgoing.resent_bytes <= 3 * 2 * GRANULE
    assert outgoing.sent_bytes == len(sent(payload)) + outgoing.resent_bytes


def test_a_lost_answer_is_asked_for_again_and_no_byte_is_sent_twice(tmp_path: Path, payload: bytes) -> None:
    server, outgoing, answer, failures = delivered(tmp_path, payload, Script(lose_answer=1))
    assert (answer, failures) == (None, 1)
    assert server.sizes[1] == []
    assert outgoing.resent_bytes == 0


def test_an_update_that_is_settled_gets_its_verdict_instead(tmp_path: Path, payload: bytes) -> None:
    outcome = pb.Outcome(round=4, digest=b"d" * 16, counted=False, reason=pb.REASON_LATE)
    server, outgoing, answer, _ = delivered(tmp_path, payload, Script(outcome=outcome))
    assert answer == Settlement(4, b"d" * 16, Verdict.LATE)
    assert (len(server.held), outgoing.sent_bytes) == (0, 0)


def test_a_refused_header_costs_no_payload(tmp_path: Path, payload: bytes) -> None:
    refusal = pb.Refusal(reason=pb.REASON_NO_SPACE, sentence="full", temporary=True, retry_after_ms=2000)
    with pytest.raises(ServerRefused, match="full") as caught:
        delivered(tmp_path, payload, Script(refusals=[refusal]))
    assert caught.value.retry_after_ms == 2000


def test_an_unknown_reason_is_still_a_sentence() -> None:
    refused = wire.refused(pb.Refusal(reason=99))  # type: ignore[arg-type]
    assert str(refused) == "the server refused: reason 99"


def test_an_update_without_bytes_is_delivered(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    encoded = pack({}, {"steps": 0.0}, lambda _: torch.Generator())
    outbox.put(OutboxEntry("run", Description(1, encoded.package, 0), TrainCost(), encoded.marks), [])

    async def scenario() -> Settlement | None:
        descriptor = outbox.open_payload()
        assert outbox.entry is not None
        try:
            async with serving(Rehearsal(Script())) as target, dialled(target) as channel:
                return await deliver(channel.stub, SESSION, Outgoing(outbox.entry, descriptor))
        finally:
            os.close(descriptor)

    assert asyncio.run(scenario()) is None
    assert isinstance(outbox.entry, OutboxEntry)
    assert outbox.entry.package == Package((), {"steps": 0.0}, 0)
