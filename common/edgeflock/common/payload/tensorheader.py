"""The header of a safetensors file: what its tensors are and where they lie; made and read here alone."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import index
from typing import BinaryIO

LARGEST = 64 << 20  # bytes of a header
_TYPES = {
    "float32": ("F32", 4),  # and bytes of a number
    "float64": ("F64", 8),
    "int64": ("I64", 8),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
}
_NAMES = {code: name for name, (code, _) in _TYPES.items()}
_SIZE = struct.Struct("<Q")  # stands before the text
_METADATA = "__metadata__"


@dataclass(frozen=True)
class TensorPlace:
    """One tensor of a file."""

    dtype: str
    shape: tuple[int, ...]
    start: int  # in the file


@dataclass(frozen=True)
class TensorHeader:
    """What a header says."""

    metadata: Mapping[str, str]
    tensors: Mapping[str, TensorPlace]
    size: int  # bytes: the data begin there


def make(tensors: Iterable[tuple[str, str, Iterable[int]]], metadata: Mapping[str, str]) -> bytes:
    """Return the header of tensors (name, type, shape) that lie one after the other in this order."""
    entries: dict[str, object] = {_METADATA: dict(sorted(metadata.items()))}
    position = 0
    for name, dtype, sides in tensors:
        shape, (code, item) = list(sides), _TYPES[dtype]
        end = position + math.prod(shape) * item
        entries[name] = {"dtype": code, "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _SIZE.size)  # the data region is aligned
    return _SIZE.pack(len(text)) + text


def read(file: BinaryIO) -> bytes:
    """Return the bytes of the header that a file begins with; the ValueError says what the file does."""
    prefix = file.read(_SIZE.size)
    size = _SIZE.unpack(prefix)[0] if len(prefix) == _SIZE.size else 0
    if not 2 <= size <= LARGEST:
        raise ValueError("is not a safetensors file")
    return prefix + file.read(size)


def parse(header: bytes) -> TensorHeader:
    """Return what a header says that was read; the ValueError says what the file does."""
    try:
        entries = json.loads(header[_SIZE.size :])
        metadata = {str(name): str(value) for name, value in entries.pop(_METADATA, {}).items()}
        tensors = {name: _place(entry, len(header)) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("has a damaged header") from error
    return TensorHeader(metadata, tensors, len(header))


def _place(entry: Mapping[str, list[int]], data_start: int) -> TensorPlace:
    first, _ = entry["data_offsets"]
    return TensorPlace(_NAMES[str(entry["dtype"])], tuple(entry["shape"]), data_start + index(first))
