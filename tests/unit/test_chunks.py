"""Chunks made and read by hand are the chunks of protobuf."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.common.wire import chunks
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import bundle_pb2

OFFSETS = st.integers(0, 2**64 - 1)
CHECKSUMS = st.integers(0, 2**32 - 1)


@given(OFFSETS, st.binary(min_size=1, max_size=300), CHECKSUMS)
def test_what_is_written_is_what_protobuf_writes(offset: int, data: bytes, crc32c: int) -> None:
    chunk = bundle_pb2.Chunk(offset=offset, data=data, crc32c=crc32c)
    assert (
        chunks.write(chunks.IN_FETCH, offset, data, crc32c)
        == pb.FetchResponse(chunk=chunk).SerializeToString()
    )
    request = pb.DeliverRequest(chunk=chunk)
    assert chunks.write(chunks.IN_DELIVER, offset, memoryview(data), crc32c) == request.SerializeToString()


@given(OFFSETS, st.binary(min_size=1, max_size=300), CHECKSUMS)
def test_what_protobuf_writes_is_read_back(offset: int, data: bytes, crc32c: int) -> None:
    chunk = bundle_pb2.Chunk(offset=offset, data=data, crc32c=crc32c)
    message = pb.DeliverRequest(chunk=chunk).SerializeToString()
    piece = chunks.read(chunks.IN_DELIVER, message)
    assert piece is not None
    assert (piece.offset, bytes(piece.data), piece.crc32c) == (offset, data, crc32c)
    assert piece.message_bytes == len(message)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_protobuf_reads_them_or_not_at_all(message: bytes) -> None:
    piece = chunks.read(chunks.IN_DELIVER, message)
    if piece is not None:
        parsed = pb.DeliverRequest.FromString(message).chunk
        assert (piece.offset, bytes(piece.data), piece.crc32c) == (parsed.offset, parsed.data, parsed.crc32c)


@given(st.data())
def test_a_flipped_byte_is_never_read_as_something_else_than_protobuf_reads(data: st.DataObject) -> None:
    message = bytearray(chunks.write(chunks.IN_DELIVER, 3 << 20, b"some data", 0x12345678))
    message[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
    piece = chunks.read(chunks.IN_DELIVER, bytes(message))
    if piece is not None:
        parsed = pb.DeliverRequest.FromString(bytes(message)).chunk
        assert (piece.offset, bytes(piece.data), piece.crc32c) == (parsed.offset, parsed.data, parsed.crc32c)


def test_another_message_is_left_to_the_library() -> None:
    refusal = pb.FetchResponse(refusal=pb.Refusal(sentence="no"))
    assert chunks.read(chunks.IN_FETCH, refusal.SerializeToString()) is None
    assert chunks.read(chunks.IN_FETCH, b"") is None


@pytest.mark.parametrize("size", [1, 127, 128, 1 << 20])
def test_every_truncation_of_a_message_is_left_to_the_library(size: int) -> None:
    message = chunks.write(chunks.IN_FETCH, 1 << 30, bytes(size), 77)
    for cut in {0, 1, 2, len(message) // 2, len(message) - 1}:
        assert chunks.read(chunks.IN_FETCH, message[:cut]) is None
