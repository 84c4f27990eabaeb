"""A client's own data: read as they are, checked, refused with a sentence; nothing is held out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgeflock.common.datasets.kit.base import Array, Part, Scaling
from edgeflock.common.datasets.kit.formats import images, npz
from edgeflock.common.errors import BadData, MissingData


@dataclass(frozen=True, eq=False)
class OwnPart:
    """All of `x`, `y` is training data; `test` only if the owner brings `x_test`, `y_test`."""

    train: Part
    test: Part | None

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.train.input_shape

    @property
    def highest_label(self) -> int:
        """The highest label of either part."""
        parts = [self.train] if self.test is None else [self.train, self.test]
        return int(max(part.y.max() for part in parts))


def load_own(path: Path, size: int | None = None) -> OwnPart:
    """Return own data from an .npz or from a folder of images, as stored: float32, or bytes.

    `size` is the side in pixels that images of a folder are resized to. Raises MissingData or BadData.
    """
    try:
        return _folder(path, size) if path.is_dir() else _archive(path)
    except OSError as error:
        raise MissingData(f"{path} cannot be read: {error.strerror or error}") from error


def ready(part: Part, scaling: Scaling) -> Part:
    """Return own data ready to train on: floats as they are, bytes as those of the run's data set."""
    return scaling.of(part) if part.x.dtype == np.uint8 else part


def how(part: Part, scaling: Scaling) -> str:
    """Say what `ready` makes of the stored numbers."""
    return f"bytes, {scaling}" if part.x.dtype == np.uint8 else "floats, as they are"


def check(part: Part, input_shape: tuple[int, ...], classes: int, scaling: Scaling) -> Part:
    """Return own data as a run expects it, ready to train on: a channel dimension of one may be missing or
    too many, and bytes are scaled as those of the run's data set.

    Raises BadData for another shape, for labels outside the classes and for bytes beyond those of the set.
    """
    if part.input_shape == input_shape:
        fitting = part
    elif _plain(part.input_shape) == _plain(input_shape):
        fitting = Part(part.x.reshape(-1, *input_shape), part.y, part.groups)
    else:
        raise BadData(
            f"samples have the shape {_words(part.input_shape)}, this run needs {_words(input_shape)}"
        )
    if len(part) and int(part.y.max()) >= classes:
        raise BadData(f"labels go up to {part.y.max()}, this run has {classes} classes: 0 to {classes - 1}")
    if len(part) and part.x.dtype == np.uint8 and int(part.x.max()) > scaling.over:
        raise BadData(
            f"bytes go up to {part.x.max()}, those of this run's data set to {scaling.over:g}: give floats"
        )
    return ready(fitting, scaling)


def _archive(path: Path) -> OwnPart:
    arrays = npz.read(path)
    x, y = npz.pick(path, arrays, "x", "y")
    train, test = _part(path, "x", x, y), None
    if "x_test" in arrays or "y_test" in arrays:
        test = _part(path, "x_test", *npz.pick(path, arrays, "x_test", "y_test"))
        if test.input_shape != train.input_shape:
            found = f"{_words(train.input_shape)} and {_words(test.input_shape)}"
            raise BadData(f"{path}: samples of x and of x_test have different shapes, {found}")
    return OwnPart(train, test)


def _folder(path: Path, size: int | None) -> OwnPart:
    split = (path / "train").is_dir() and (path / "test").is_dir()
    folders = (path / "train", path / "test") if split else (path,)
    parts = []
    names = images.class_names(folders[0])
    for folder in folders:
        x, y = images.folder(folder, names, size)
        parts.append(_part(folder, "x", x, y))
    return OwnPart(parts[0], parts[1] if split else None)


def _part(path: Path, key: str, x: Array, y: Array) -> Part:
    labels = _labels(path, key.replace("x", "y"), y)
    if x.ndim < 2 or 0 in x.shape[1:]:
        raise BadData(
            f"{path}: {key} has the shape {_words(x.shape)}, needed is samples x features or images"
        )
    if len(x) != len(labels):
        raise BadData(f"{path}: {key} has {len(x)} samples and {key.replace('x', 'y')} {len(labels)} labels")
    if len(x) == 0:
        raise BadData(f"{path}: {key} has no samples, needed is at least one")
    return Part(npz.channels_first(_numbers(path, key, x)), labels)


def _labels(path: Path, key: str, y: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise BadData(
            f"{path}: {key} is {y.dtype} of shape {_words(y.shape)}, needed is one whole number per sample"
        )
    if len(y) and int(y.min()) < 0:
        raise BadData(f"{path}: {key} has the label {y.min()}, allowed are 0 and above")
    if len(y) and int(y.max()) > np.iinfo(np.int32).max:
        raise BadData(f"{path}: {key} has the label {y.max()}, allowed are labels below 2^31")
    return y.astype(np.int64)


def _numbers(path: Path, key: str, x: Array) -> Array:
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind != "f":
        raise BadData(f"{path}: {key} is {x.dtype}, allowed are floats and uint8")
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite and is refused below
        floats = np.ascontiguousarray(x, dtype=np.float32)
    if not np.isfinite(floats).all():
        row = int(np.argmin(np.isfinite(floats).reshape(len(floats), -1).all(axis=1)))
        raise BadData(f"{path}: {key} has a value that is not a finite number in sample {row}")
    return floats


def _plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape


def _words(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "()"
