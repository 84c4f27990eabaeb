"""The one place that imports torchvision: late, and also where its compiled operators do not load."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from edgeflock.common.command import extras

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept: list[Any] = []  # a torch.library.Library takes its definitions back when it is collected


def torchvision() -> Any:
    """Return the package, with its `datasets`, `models` and `transforms`.

    Raises UsageError if it is not installed.
    """
    extras.require("this", "torchvision")
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:  # a CPU torch beside a CUDA torchvision: "operator torchvision::nms does not exist"
        _define_operators()
        return importlib.import_module("torchvision")


def _define_operators() -> None:
    if not _kept:
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        _kept.append(library)
        for schema in _SCHEMAS:
            library.define(schema)  # type: ignore[no-untyped-call]
