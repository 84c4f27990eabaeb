"""Starting weights: the tensors of a .safetensors file put into a model, checked by name, shape and type."""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Mapping
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor, nn

from edgeflock.common.errors import BadData, MissingData
from edgeflock.common.flat import buffers_of
from edgeflock.common.payload import tensorheader
from edgeflock.common.payload.tensorheader import TensorPlace

FLAG = "--init"
_TYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
}


def put(path: Path, net: nn.Module, model: str, fresh: Collection[str] = ()) -> list[str]:
    """Fill a model with the file's numbers; return what begins as it was made: of the parameters named
    `fresh` those that the file lacks, or has in another shape.

    Raises BadData or MissingData, which name what does not fit.
    """
    try:
        with path.open("rb") as file:
            places = tensorheader.parse(tensorheader.read(file)).tensors
            wanted, more = _wanted(net)
            begun = [name for name in fresh if name not in places or places[name].shape != wanted[name].shape]
            wanted = {name: tensor for name, tensor in wanted.items() if name not in begun}
            _check(places, wanted, {*more, *begun}, model)
            for name, tensor in wanted.items():
                tensor.data.copy_(_read(file, name, places[name], tensor.numel()).view(tensor.shape))
                if not bool(tensor.isfinite().all()):  # a float64 may be too large for ours
                    raise ValueError(f"has NaN or infinity in the tensor {name}")
            return begun
    except OSError as error:
        raise MissingData(f"cannot read {FLAG} {str(path)!r}: {error.strerror}") from None
    except ValueError as error:
        raise BadData(f"{FLAG} {str(path)!r} {error}") from None


def _wanted(net: nn.Module) -> tuple[dict[str, Tensor], set[str]]:
    """Return what is to be filled by name, and the names of what may be in the file beside."""
    buffers = {buffer.name: buffer.tensor for buffer in buffers_of(net) if buffer.tensor is not None}
    constant = getattr(net, "constant", frozenset[str]())
    stay = {name for name in buffers if name in constant or not _moves(net, buffers[name])}
    moving = {name: tensor for name, tensor in buffers.items() if name not in stay}
    return {**dict(net.named_parameters()), **moving}, stay


def _moves(net: nn.Module, buffer: Tensor) -> bool:
    """Whether it is filled: what is no number of a module of torch's stays as it is."""
    return bool(getattr(net, "foreign", False)) or buffer.is_floating_point() or buffer.dtype == torch.int64


def _check(
    places: Mapping[str, TensorPlace], wanted: Mapping[str, Tensor], more: Container[str], model: str
) -> None:
    """Raise ValueError for the first tensor that does not fit the model."""
    for name, tensor in wanted.items():
        shape = tuple(tensor.shape)
        found = places.get(name)
        if found is None:
            raise ValueError(f"lacks the tensor {name}, {_shape(shape)} in {model}")
        if found.shape != shape:
            raise ValueError(
                f"has the tensor {name} as {_shape(found.shape)}, in {model} it is {_shape(shape)}"
            )
        kind = "float32" if tensor.is_floating_point() else "int64"
        if ("float" in found.dtype) != ("float" in kind):
            raise ValueError(f"has the tensor {name} of {found.dtype}, in {model} it is of {kind}")
    if unknown := next((name for name in places if name not in wanted and name not in more), None):
        raise ValueError(f"has the tensor {unknown}, which {model} has not")


def _read(file: BinaryIO, name: str, place: TensorPlace, elements: int) -> Tensor:
    """Return the numbers of a tensor. Raises ValueError."""
    dtype = _TYPES[place.dtype]
    data = bytearray(elements * dtype.itemsize)
    file.seek(place.start, os.SEEK_SET)
    if file.readinto(data) != len(data):  # type: ignore[attr-defined]  # a BinaryIO of open() has it
        raise ValueError(f"is shorter than its tensor {name}")
    return torch.frombuffer(data, dtype=dtype) if data else torch.zeros(0, dtype=dtype)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a single number"
