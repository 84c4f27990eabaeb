"""npz:NAME: ROOT/NAME.npz with MedMNIST's key names or x, y, x_test, y_test; not standardised.

y is a class for each sample, or whatever else a task has for labels: numbers, rows of them, masks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgeflock.common.datasets.kit import files
from edgeflock.common.datasets.kit.base import Array, Dataset, Entry, Part, are_classes, count_classes, part
from edgeflock.common.datasets.kit.files import Place
from edgeflock.common.datasets.kit.formats import npz
from edgeflock.common.errors import BadData

OFFICIAL = ("train_images", "train_labels", "test_images", "test_labels")
SHORT = ("x", "y", "x_test", "y_test")


def read(argument: str, root: Path) -> Dataset:
    name = argument.removesuffix(".npz")
    files.below(root, name)
    place = Place(f"npz:{name}", home="", folders=("",))
    path = place.find(root, (f"{name}.npz",))[f"{name}.npz"]
    train, test = parts(path, classes=None)
    numbered = are_classes(train.y) and are_classes(test.y)
    classes = count_classes(path, int(max(train.y.max(), test.y.max()))) if numbered else 0
    return Dataset(f"npz:{name}", classes, train, test)


def parts(path: Path, classes: int | None) -> tuple[Part, Part]:
    """Return the training and the test part of an archive."""
    arrays = npz.read(path)
    keys = SHORT if "x" in arrays else OFFICIAL
    x, y, x_test, y_test = npz.pick(path, arrays, *keys)
    train = _part(f"{path} ({keys[0]})", x, y, classes)
    test = _part(f"{path} ({keys[2]})", x_test, y_test, classes)
    if train.input_shape != test.input_shape:
        raise BadData(
            f"{path}: samples of {train.input_shape} in {keys[0]}, of {test.input_shape} in {keys[2]}"
        )
    return train, test


def _part(where: str, x: Array, y: Array, classes: int | None) -> Part:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if not are_classes(y):
        _check_targets(where, y, classes)
    if x.dtype != np.uint8:
        if x.dtype.kind != "f" or not np.isfinite(x).all():
            raise BadData(f"{where}: samples are {x.dtype}, allowed are uint8 and finite floats")
        x = x.astype(np.float32)
    x = np.ascontiguousarray(npz.channels_first(x))
    return part(where, x, y, classes or _shown(y))


def _shown(y: Array) -> int:
    return int(y.max(initial=0)) + 1 if are_classes(y) else 0


def _check_targets(where: str, y: Array, classes: int | None) -> None:
    """Raise BadData unless labels that are no classes may be some task's, and no classes are asked for."""
    if classes is not None or y.dtype.kind not in "fiub" or y.ndim == 0:
        allowed = "one whole number per sample" if classes is not None else "numbers for each sample"
        raise BadData(f"{where}: labels are {y.dtype} {y.shape}, allowed is {allowed}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise BadData(f"{where}: labels are not all finite")


SETS = {"npz": Entry(read, argument="NAME")}
