"""A package on its way in: every byte lies where it belongs, however the payload is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from edgeflock.client.link.transfer import Incoming
from edgeflock.client.protocol import Interrupted
from edgeflock.common.errors import CorruptPayload, LayoutMismatch
from edgeflock.common.payload.checksum import GRANULE, extend
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.pack import Packed, pack
from edgeflock.common.payload.package import IDENTITY, CodecChoice, Kind, Package, Scope, Section
from edgeflock.common.wire.chunks import Piece

MODEL, MOMENTUM, COUNTERS = (
    Layout.single("w", 7),
    Layout.single("v", 11),
    Layout.single("n", 3, dtype="int64"),
)
SENT = {Kind.MODEL: torch.randn(7), Kind.MOMENTUM: torch.randn(11), Kind.COUNTERS: torch.arange(5, 8)}
LAYOUTS = {Kind.MODEL: MODEL, Kind.MOMENTUM: MOMENTUM, Kind.COUNTERS: COUNTERS}


def packed(codec: CodecChoice = IDENTITY) -> Packed:
    parts = {kind: (SENT[kind], LAYOUTS[kind], IDENTITY) for kind in SENT}
    parts[Kind.MOMENTUM] = SENT[Kind.MOMENTUM], MOMENTUM, codec
    return pack(parts, {}, lambda _: torch.Generator())


def payload_of(made: Packed) -> bytes:
    return b"".join(map(bytes, made.pieces))


class Shelf:
    """Where what comes in is put."""

    def __init__(self) -> None:
        self.put = {kind: torch.zeros_like(sent) for kind, sent in SENT.items()}

    def target(self, kind: Kind) -> tuple[Tensor, Layout]:
        return self.put[kind], LAYOUTS[kind]

    def is_right(self) -> bool:
        return all(torch.equal(self.put[kind], sent) for kind, sent in SENT.items())


def piece(payload: bytes, start: int, end: int, *, of: bytes | None = None) -> Piece:
    data = payload[start:end]
    return Piece(start, memoryview(data), extend(0, (of or payload)[:end]), len(data))


@pytest.mark.parametrize("codec", [IDENTITY, CodecChoice("fp16")])
@pytest.mark.parametrize("size", range(1, 105, 3))
def test_whatever_the_chunks_are_all_lies_where_it_belongs(size: int, codec: CodecChoice) -> None:
    made, shelf = packed(codec), Shelf()
    payload, incoming = payload_of(made), Incoming(1, Scope.SHARED, made.package, shelf.target)
    assert incoming.encoded is (codec != IDENTITY)
    for start in range(0, len(payload), size):
        assert not incoming.complete
        incoming.take(piece(payload, start, min(start + size, len(payload))))
    incoming.decode()
    assert (incoming.complete, incoming.position, incoming.received_bytes) == (
        True,
        len(payload),
        len(payload),
    )
    if codec == IDENTITY:
        assert shelf.is_right()
    else:
        assert torch.allclose(shelf.put[Kind.MOMENTUM], SENT[Kind.MOMENTUM], rtol=1e-3)
        assert torch.equal(shelf.put[Kind.COUNTERS], SENT[Kind.COUNTERS])


@pytest.mark.parametrize(
    ("start", "end"), [(0, 8), (9, 12), (8, 8), (8, 97)], ids=["again", "a gap", "nothing", "too much"]
)
def test_what_is_not_the_next_good_bytes_is_not_taken(start: int, end: int) -> None:
    made = packed()
    payload, incoming = payload_of(made) + b"x", Incoming(1, Scope.SHARED, made.package, Shelf().target)
    assert len(payload) == 97
    incoming.take(piece(payload, 0, 8))
    with pytest.raises(Interrupted, match="round 1: the bytes after 8 are damaged"):
        incoming.take(piece(payload, start, end))
    assert incoming.position == 0  # it goes on at a granule
    assert incoming.received_bytes == 8 + end - start
    assert not incoming.complete


def test_a_stream_that_broke_goes_on_at_the_last_whole_granule_and_what_is_whole_stays_whole() -> None:
    layout = Layout.single("w", GRANULE)
    flat, room = torch.randn(GRANULE), torch.zeros(GRANULE)
    made = pack({Kind.MODEL: (flat, layout, IDENTITY)}, {}, lambda _: torch.Generator())
    payload = payload_of(made)
    incoming = Incoming(1, Scope.SHARED, made.package, lambda kind: (room, layout))
    incoming.take(piece(payload, 0, GRANULE + 7))
    assert not incoming.interrupted
    incoming.rest()
    assert (incoming.position, incoming.interrupted) == (GRANULE, True)
    damaged = payload[: 2 * GRANULE + 9] + b"\x55" + payload[2 * GRANULE + 10 :]
    incoming.take(piece(payload, GRANULE, 2 * GRANULE + 3))
    with pytest.raises(Interrupted):
        incoming.take(piece(damaged, 2 * GRANULE + 3, 3 * GRANULE, of=payload))
    assert incoming.position == 2 * GRANULE
    incoming.take(piece(payload, 2 * GRANULE, len(payload)))
    incoming.rest()
    assert incoming.complete
    assert torch.equal(room, flat)


def test_a_payload_that_is_another_as_a_whole_begins_again() -> None:
    """Every chunk agrees with itself, and the last one shows that they are of another package."""
    made = packed()
    payload, other = payload_of(made), replace(made.package, crc32c=made.package.crc32c ^ 1)
    incoming = Incoming(1, Scope.SHARED, other, Shelf().target)
    with pytest.raises(Interrupted, match="round 1: the bytes after 0 are damaged"):
        incoming.take(piece(payload, 0, len(payload)))
    assert (incoming.position, incoming.complete) == (0, False)


def test_a_payload_that_came_along_is_taken_whole_or_not_at_all() -> None:
    made = packed()
    payload = payload_of(made)
    for brought, whole in ((payload, True), (b"", False), (payload[:-1], False), (payload + b"x", False)):
        shelf = Shelf()
        incoming = Incoming(1, Scope.SHARED, made.package, shelf.target)
        assert incoming.take_whole(brought) is whole
        assert shelf.is_right() is whole
        assert incoming.position == (len(payload) if whole else 0)
    shelf = Shelf()
    incoming = Incoming(1, Scope.SHARED, made.package, shelf.target)
    assert not incoming.take_whole(payload[:-1] + b"\x55")
    assert incoming.position == 0
    unknown = Incoming(1, Scope.PERSONAL, None, shelf.target)
    assert not unknown.complete
    assert not unknown.take_whole(b"")


@pytest.mark.parametrize(
    ("section", "error"),
    [
        (Section(Kind.MODEL, MODEL.digest, IDENTITY, 6, 24), LayoutMismatch),
        (Section(Kind.MODEL, MOMENTUM.digest, IDENTITY, 7, 28), LayoutMismatch),
        (Section(Kind.MODEL, MODEL.digest, IDENTITY, 7, 24), CorruptPayload),
    ],
)
def test_a_package_that_does_not_fit_is_refused_before_a_byte_of_it(
    section: Section, error: type[Exception]
) -> None:
    with pytest.raises(error, match="the server's model has"):
        Incoming(1, Scope.SHARED, Package((section,), {}, 0), Shelf().target)
