"""Chunks on the wire without protobuf's copies: the bytes of the Chunk message, made and read by hand.

A chunk is by far the most of what travels, and the library copies its data twice at each end, into
fresh pages. What is not written exactly as we write it is left to the library.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from google.protobuf.message import Message

from edgeflock.common.payload.checksum import Buffer

IN_FETCH = 1  # field of the chunk in FetchResponse
IN_DELIVER = 2  # field of the chunk in DeliverRequest

_OFFSET, _DATA, _CRC32C = 0x08, 0x12, 0x1D  # tags: field number and wire type
_FIXED32 = struct.Struct("<I")
_LONGEST_VARINT = 10


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk that was received; `data` is a view into the message."""

    offset: int
    data: memoryview
    crc32c: int
    message_bytes: int  # with everything around the data


def write(field: int, offset: int, data: Buffer, crc32c: int) -> bytes:
    """Return the serialised message that holds nothing but this chunk in that field."""
    inner = _varint_field(_OFFSET, offset) + bytes([_DATA]) + _varint(len(data))
    tail = bytes([_CRC32C]) + _FIXED32.pack(crc32c) if crc32c else b""
    size = len(inner) + len(data) + len(tail)
    return b"".join((head(field, size), inner, data, tail))


def head(field: int, size: int) -> bytes:
    """Return what comes before a field of so many bytes: a message within a message, or bytes."""
    return bytes([field << 3 | 2]) + _varint(size)


def read(field: int, message: bytes) -> Piece | None:
    """Return the chunk of a message that `write` could have made, else None."""
    view = memoryview(message)
    try:
        position = _expect(view, 0, field << 3 | 2)
        size, position = _read_varint(view, position)
        if position + size != len(view):
            return None
        offset = 0
        if view[position] == _OFFSET:
            offset, position = _read_varint(view, position + 1)
        position = _expect(view, position, _DATA)
        length, position = _read_varint(view, position)
        end = position + length
        return Piece(offset, view[position:end], _read_tail(view, end), len(view))
    except (IndexError, ValueError, struct.error):
        return None


def serialise(message: Message | bytes) -> bytes:
    """Return a message's bytes; a chunk already is its own."""
    return message if isinstance(message, bytes) else message.SerializeToString()


def _read_tail(view: memoryview, end: int) -> int:
    """Read the checksum behind the data; a checksum of 0 is not written."""
    if end == len(view):
        return 0
    position = _expect(view, end, _CRC32C)
    if position + _FIXED32.size != len(view):
        raise ValueError
    return int(_FIXED32.unpack_from(view, position)[0])


def _expect(view: memoryview, position: int, tag: int) -> int:
    if view[position] != tag:
        raise ValueError
    return position + 1


def _read_varint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for place in range(_LONGEST_VARINT):
        byte = view[position + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if value >> 64:
                raise ValueError
            return value, position + place + 1
    raise ValueError


def _varint_field(tag: int, value: int) -> bytes:
    return bytes([tag]) + _varint(value) if value else b""


def _varint(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
