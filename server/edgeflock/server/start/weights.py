"""Starting weights: the tensors of a .safetensors file put into a model, checked by name, shape and type."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from edgeflock.common.errors import BadData, MissingData
from edgeflock.common.flat import FlatModel, views
from edgeflock.common.payload import tensorheader
from edgeflock.common.payload.layout import Layout, TensorSpec
from edgeflock.common.payload.tensorheader import TensorPlace

FLAG = "--init"
_TYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
}


def put(path: Path, flat: FlatModel, model: str) -> None:
    """Fill a model with the file's numbers. Raises BadData or MissingData, which name what does not fit."""
    try:
        with path.open("rb") as file:
            places = tensorheader.parse(tensorheader.read(file)).tensors
            _check(places, flat, model)
            for vector, layout in _parts(flat):
                for view, spec in zip(views(vector, layout), layout.tensors, strict=True):
                    view.copy_(_read(file, places[spec.name], spec))
                    if not bool(view.isfinite().all()):  # a float64 may be too large for ours
                        raise ValueError(f"has NaN or infinity in the tensor {spec.name}")
    except OSError as error:
        raise MissingData(f"cannot read {FLAG} {str(path)!r}: {error.strerror}") from None
    except ValueError as error:
        raise BadData(f"{FLAG} {str(path)!r} {error}") from None


def _parts(flat: FlatModel) -> list[tuple[Tensor, Layout]]:
    layouts = flat.layouts
    return [
        (flat.params, layouts.parameters),
        (flat.buffers, layouts.buffers),
        (flat.counters, layouts.counters),
    ]


def _check(places: Mapping[str, TensorPlace], flat: FlatModel, model: str) -> None:
    """Raise ValueError for the first tensor that does not fit the model."""
    wanted = {spec.name: (spec, layout.dtype) for _, layout in _parts(flat) for spec in layout.tensors}
    for name, (spec, dtype) in wanted.items():
        found = places.get(name)
        if found is None:
            raise ValueError(f"lacks the tensor {name}, {_shape(spec.shape)} in {model}")
        if found.shape != spec.shape:
            raise ValueError(
                f"has the tensor {name} as {_shape(found.shape)}, in {model} it is {_shape(spec.shape)}"
            )
        if ("float" in found.dtype) != ("float" in dtype):
            raise ValueError(f"has the tensor {name} of {found.dtype}, in {model} it is of {dtype}")
    if more := next((name for name in places if name not in wanted and name not in flat.constants), None):
        raise ValueError(f"has the tensor {more}, which {model} has not")


def _read(file: BinaryIO, place: TensorPlace, spec: TensorSpec) -> Tensor:
    """Return the numbers of a tensor. Raises ValueError."""
    dtype = _TYPES[place.dtype]
    data = bytearray(spec.elements * dtype.itemsize)
    file.seek(place.start, os.SEEK_SET)
    if file.readinto(data) != len(data):  # type: ignore[attr-defined]  # a BinaryIO of open() has it
        raise ValueError(f"is shorter than its tensor {spec.name}")
    found = torch.frombuffer(data, dtype=dtype) if data else torch.zeros(0, dtype=dtype)
    return found.view(spec.shape)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a single number"
