"""State files: a method's vectors and scalars in safetensors format, with a checksum over the whole file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from edgeflock.client.keeping.files import write_pieces
from edgeflock.client.protocol import Generation
from edgeflock.common.errors import CorruptState
from edgeflock.common.payload import tensorheader
from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.memory import memory
from edgeflock.common.payload.tensorheader import TensorPlace
from edgeflock.methods.kit.values import State

_TORCH = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}
_DTYPES = {dtype: name for name, dtype in _TORCH.items()}
_DAMAGES = (ValueError, KeyError, TypeError, AttributeError, RuntimeError)
_NO_CHECKSUM = '"crc32c":"00000000"'  # what stands in the header while the checksum is formed


def write(path: Path, state: State, generation: Generation) -> None:
    """Write a state file in place; rename it afterwards where it must be whole or absent."""
    vectors = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(state.vectors.items())}
    header = _header(vectors, state.scalars, generation)
    pieces = [memory(tensor) for tensor in vectors.values()]
    checksum = extend(0, header)
    for piece in pieces:
        checksum = extend(checksum, piece)
    write_pieces(
        path, [header.replace(_NO_CHECKSUM.encode(), f'"crc32c":"{checksum:08x}"'.encode()), *pieces]
    )


def read(path: Path) -> tuple[State, Generation]:
    """Read and check a state file; raises CorruptState."""
    try:
        with path.open("rb") as file:
            header = tensorheader.read(file)
            data = bytearray(path.stat().st_size - len(header))
            file.readinto(data)
        said = tensorheader.parse(header)
        _check(header, data, said.metadata["crc32c"])
        vectors = {name: _vector(data, said.size, place) for name, place in said.tensors.items()}
        scalars = {name: float(value) for name, value in json.loads(said.metadata["scalars"]).items()}
        return State(vectors, scalars), _generation(said.metadata)
    except _DAMAGES as error:
        raise CorruptState(f"{path} cannot be read: {error}") from None


def read_generation(path: Path) -> Generation:
    """Read only whose state it is, unchecked; raises CorruptState."""
    try:
        with path.open("rb") as file:
            return _generation(tensorheader.parse(tensorheader.read(file)).metadata)
    except _DAMAGES as error:
        raise CorruptState(f"{path} cannot be read: {error}") from None


def _header(vectors: Mapping[str, Tensor], scalars: Mapping[str, float], generation: Generation) -> bytes:
    metadata = {
        "crc32c": "00000000",
        "digest": generation.digest.hex(),
        "round": str(generation.round),
        "scalars": json.dumps({name: float(value) for name, value in sorted(scalars.items())}),
    }
    tensors = ((name, _DTYPES[tensor.dtype], tensor.shape) for name, tensor in vectors.items())
    return tensorheader.make(tensors, metadata)


def _check(header: bytes, data: bytearray, stated: str) -> None:
    plain = header.replace(f'"crc32c":"{stated}"'.encode(), _NO_CHECKSUM.encode())
    if extend(extend(0, plain), data) != int(stated, 16):
        raise ValueError("it has another checksum")


def _vector(data: bytearray, start: int, place: TensorPlace) -> Tensor:
    count, dtype = math.prod(place.shape), _TORCH[place.dtype]
    if not count:
        return torch.zeros(place.shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype, count=count, offset=place.start - start).view(place.shape)


def _generation(metadata: Mapping[str, str]) -> Generation:
    return Generation(int(metadata["round"]), bytes.fromhex(metadata["digest"]))
