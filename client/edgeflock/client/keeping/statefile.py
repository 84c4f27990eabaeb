"""State files: a method's vectors and scalars in safetensors format, with a checksum over the whole file."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgeflock.common.errors import CorruptState
from edgeflock.common.payload.checksum import Buffer, extend
from edgeflock.common.payload.memory import memory
from edgeflock.methods.kit.values import State

_DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_HEADER_LIMIT = 1 << 20
_NO_CHECKSUM = '"crc32c":"00000000"'  # what stands in the header while the checksum is formed


@dataclass(frozen=True)
class Stamp:
    """Which counted update a state belongs to."""

    round: int
    digest: bytes


def write_pieces(path: Path, pieces: Iterable[Buffer]) -> None:
    """Write a file in place: overwriting pages that are cached costs a tenth of fresh ones."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = 0
        for piece in pieces:
            view = memoryview(piece).cast("B")
            while len(view):
                count = os.pwrite(descriptor, view, end)
                view, end = view[count:], end + count
        if os.fstat(descriptor).st_size != end:
            os.ftruncate(descriptor, end)
    finally:
        os.close(descriptor)


def write(path: Path, state: State, stamp: Stamp) -> None:
    """Write a state file in place; rename it afterwards where it must be whole or absent."""
    vectors = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(state.vectors.items())}
    header = _header(vectors, state.scalars, stamp)
    pieces = [memory(tensor) for tensor in vectors.values()]
    checksum = extend(0, header)
    for piece in pieces:
        checksum = extend(checksum, piece)
    write_pieces(
        path, [header.replace(_NO_CHECKSUM.encode(), f'"crc32c":"{checksum:08x}"'.encode(), 1), *pieces]
    )


def read(path: Path) -> tuple[State, Stamp]:
    """Read and check a state file; raises CorruptState."""
    content = bytearray(path.stat().st_size)
    with path.open("rb") as file:
        file.readinto(content)
    try:
        header, start = _parsed(content, path)
        _check(content, header["__metadata__"]["crc32c"], start)
        vectors = {name: _vector(content, start, spec) for name, spec in header.items() if name[:2] != "__"}
        scalars = {
            name: float(value) for name, value in json.loads(header["__metadata__"]["scalars"]).items()
        }
        return State(vectors, scalars), _stamp(header)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, struct.error) as error:
        raise CorruptState(f"{path} cannot be read: {error}") from None


def read_stamp(path: Path) -> Stamp:
    """Read only whose state it is, unchecked; raises CorruptState."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
            content = head + file.read(min(struct.unpack("<Q", head)[0], _HEADER_LIMIT))
        return _stamp(_parsed(content, path)[0])
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise CorruptState(f"{path} cannot be read: {error}") from None


def _header(vectors: Mapping[str, Tensor], scalars: Mapping[str, float], stamp: Stamp) -> bytes:
    fields: dict[str, Any] = {
        "__metadata__": {
            "crc32c": "00000000",
            "digest": stamp.digest.hex(),
            "round": str(stamp.round),
            "scalars": json.dumps({name: float(value) for name, value in sorted(scalars.items())}),
        }
    }
    start = 0
    for name, tensor in vectors.items():
        end = start + tensor.numel() * tensor.element_size()
        fields[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begin at a multiple of 8
    return struct.pack("<Q", len(text)) + text


def _parsed(content: bytes | bytearray, path: Path) -> tuple[dict[str, Any], int]:
    (size,) = struct.unpack_from("<Q", content)
    if size > min(_HEADER_LIMIT, len(content) - 8):
        raise CorruptState(f"{path} cannot be read: its header is cut")
    return json.loads(content[8 : 8 + size]), 8 + size


def _check(content: bytearray, stated: str, start: int) -> None:
    view = memoryview(content)
    plain = bytes(view[:start]).replace(f'"crc32c":"{stated}"'.encode(), _NO_CHECKSUM.encode(), 1)
    if extend(extend(0, plain), view[start:]) != int(stated, 16):
        raise ValueError("its checksum is another")


def _vector(content: bytearray, start: int, spec: Mapping[str, Any]) -> Tensor:
    first, _ = spec["data_offsets"]
    count, dtype = math.prod(spec["shape"]), _DTYPES[spec["dtype"]]
    if not count:
        return torch.zeros(spec["shape"], dtype=dtype)
    return torch.frombuffer(content, dtype=dtype, count=count, offset=start + first).view(spec["shape"])


def _stamp(header: Mapping[str, Any]) -> Stamp:
    fields = header["__metadata__"]
    return Stamp(int(fields["round"]), bytes.fromhex(fields["digest"]))
