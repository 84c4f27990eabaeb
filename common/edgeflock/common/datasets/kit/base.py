"""What a data set is: labelled parts kept as they were stored, and how they are made ready to train on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.common.datasets.kit.files import Place
from edgeflock.common.errors import BadData

Array = NDArray[Any]  # uint8 as stored, or floats
Floats = NDArray[np.float32]
Labels = NDArray[Any]  # int64 where each sample is of a class, else as a task has them
Indices = NDArray[np.int64]

MOST_CLASSES = 100_000  # a label that is a date or an id would make a model that fills the memory


@dataclass(frozen=True, eq=False)
class Part:
    """Samples with their labels; `x` is N x input shape, uint8 as stored or float32."""

    x: Array
    y: Labels
    groups: Labels | None = None  # who each sample is from (uci-har: the subject)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    @property
    def kind(self) -> np.dtype[Any]:
        """The type of the numbers of x."""
        return self.x.dtype

    def take(self, indices: Indices) -> Part:
        groups = None if self.groups is None else self.groups[indices]
        return Part(self.x[indices], self.y[indices], groups)


@dataclass(frozen=True)
class Scaling:
    """How stored numbers become what is trained on."""

    over: float = 255.0  # what a stored integer is divided by; floats are never scaled
    mean: tuple[float, ...] = ()  # per channel, after that; () = no standardisation
    std: tuple[float, ...] = ()

    def of(self, part: Part) -> Part:
        """Return the part as contiguous float32: scaled, then standardised per channel."""
        x = np.array(part.x, dtype=np.float32, order="C")
        if part.x.dtype.kind in "iu":
            x /= np.float32(self.over)
        if self.mean:
            x -= _per_channel(self.mean, x.ndim)
            x /= _per_channel(self.std, x.ndim)
        return Part(x, part.y, part.groups)

    def unit(self) -> Scaling:
        """Return the same without standardisation: pixels in [0, 1]."""
        return Scaling(self.over)

    def __str__(self) -> str:
        standard = f", less {_words(self.mean)}, over {_words(self.std)}" if self.mean else ""
        return f"over {self.over:g}{standard}"


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set. Pixels stay uint8 until a shard is made ready: a client converts its own only."""

    name: str
    classes: int  # 0: labels are none, but numbers, rows or masks
    train: Part
    test: Part
    scaling: Scaling = Scaling()  # of its entry, see `Entry`

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.train.input_shape

    def ready(self, part: Part) -> Part:
        """Return the part as contiguous float32, ready to train on."""
        return self.scaling.of(part)

    def unit(self) -> Dataset:
        """Return the same data set without standardisation: pixels in [0, 1]."""
        return replace(self, name=f"{self.name}:unit", scaling=self.scaling.unit())


@dataclass(frozen=True)
class Size:
    """What a named data set holds, known without its files."""

    input_shape: tuple[int, ...]
    classes: int
    train: int
    test: int


@dataclass(frozen=True)
class Entry:
    """How one name of `--dataset` is read: `read(argument, root)`."""

    read: Callable[[str, Path], Dataset]
    home: str = ""  # where people get the files
    size: Size | None = None
    places: tuple[tuple[Place, tuple[str, ...]], ...] = ()  # where its files may lie, and which they are
    argument: str = ""  # what stands after the colon, for people; "" = nothing but `unit`
    shipped: bool = False  # inside the package: needs no data root
    scaling: Scaling = Scaling()  # known without its files: a client may have data of its own, in bytes

    def folder(self, root: Path) -> Path | None:
        """Return where its files lie; None if they are not all there."""
        return next(
            (place.folder(root, names) for place, names in self.places if place.holds(root, names)), None
        )

    @property
    def downloads(self) -> bool:
        """Whether torchvision can fetch it."""
        return any(place.torchvision for place, _ in self.places)


def part(where: object, x: Array, y: Array, classes: int, groups: Labels | None = None) -> Part:
    """Return a part of a data set's own files; with 0 classes labels stay as they are.

    Raises BadData if samples and labels do not fit each other.
    """
    if len(x) != len(y) or len(y) == 0:
        raise BadData(
            f"{where}: {len(x)} samples and {len(y)} labels, needed is the same number of both, at least one"
        )
    if not classes:
        return Part(x, y, groups)
    labels = y.astype(np.int64)
    if labels.min() < 0 or labels.max() >= classes:
        raise BadData(f"{where}: labels {labels.min()} to {labels.max()}, allowed is 0 to {classes - 1}")
    return Part(x, labels, groups)


def are_classes(y: Array) -> bool:
    """Whether labels are one whole number for each sample."""
    return y.ndim == 1 and y.dtype.kind in "iu"


def count_classes(where: object, highest: int) -> int:
    """Return how many classes the highest label makes. Raises BadData if that cannot be meant."""
    if highest >= MOST_CLASSES:
        raise BadData(f"{where}: the highest label is {highest}, allowed is 0 to {MOST_CLASSES - 1}")
    return highest + 1


def _words(values: tuple[float, ...]) -> str:
    words = ", ".join(f"{value:g}" for value in values)
    return f"({words})" if len(values) > 1 else words


def _per_channel(values: tuple[float, ...], dimensions: int) -> Floats:
    shape = (1, len(values), *([1] * (dimensions - 2)))
    return np.array(values, dtype=np.float32).reshape(shape)
