"""Folders of images, one sub-folder per class, read with Pillow (which comes with torchvision)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from edgeflock.common.command import extras
from edgeflock.common.datasets.kit.base import Array, count_classes
from edgeflock.common.errors import BadData

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
CLASS_FILE = "classes.txt"  # one name per line: fixes the order where a device lacks a class


@dataclass(frozen=True)
class Look:
    """What all images of a set are brought to."""

    width: int
    height: int
    grey: bool


def pillow() -> ModuleType:
    extras.require("a folder of images", "PIL")
    import PIL.Image

    return PIL.Image


def listing(folder: Path) -> list[Path]:
    """Return the images of a folder and of what lies below it, in the order of their names."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())


def class_names(folder: Path, beside: Path | None = None) -> tuple[list[str], bool]:
    """Return the classes of a folder, and whether it is certain that these are all, in their order.

    They are those of classes.txt in it, or beside it, else its sub-folders; numbers are labels.
    """
    for place in (folder, beside or folder):
        if (place / CLASS_FILE).is_file():
            lines = (place / CLASS_FILE).read_text(encoding="utf-8").splitlines()
            return [line.strip() for line in lines if line.strip()], True
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if names and all(name.isascii() and name.isdigit() for name in names):
        count = count_classes(f"{folder}, whose sub-folders are numbers", max(map(int, names)))
        return [str(label) for label in range(count)], True
    return names, False


def labelled(folder: Path, names: list[str]) -> list[tuple[Path, int]]:
    """Return every image of the class folders with its label. Raises BadData for a folder of no class."""
    found: list[tuple[Path, int]] = []
    numbers = names == [str(label) for label in range(len(names))]
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        name = str(int(path.name)) if numbers and path.name.isdigit() else path.name
        if name not in names:
            raise BadData(f"{path} is the folder of no class, the classes are {', '.join(names)}")
        found += [(image, names.index(name)) for image in listing(path)]
    return found


def look_of(path: Path, size: int | None) -> Look:
    """Return the look of a set after its first image; `size` = side in pixels that all are resized to."""
    image = _decoded(path)
    width, height = (size, size) if size else image.size
    return Look(width, height, grey=image.mode in ("1", "L", "LA", "I;16"))


def read(paths: list[Path], look: Look, *, resize: bool) -> Array:
    """Return images as uint8, N x channels x height x width."""
    x = np.empty((len(paths), look.height, look.width, 1 if look.grey else 3), np.uint8)
    for row, path in zip(x, paths, strict=True):
        row[:] = _pixels(path, look, resize=resize)
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


class Pictures:
    """The images of a folder, with one sub-folder per class or with none; decoded when they are asked for."""

    def __init__(self, folder: Path, names: list[str], size: int | None) -> None:
        self.folder = folder
        self._found = labelled(folder, names) if names else [(path, -1) for path in listing(folder)]
        if not self._found:
            endings = ", ".join(sorted(ENDINGS))
            raise BadData(f"{folder} holds no images in sub-folders, one per class ({endings})")
        self._look, self._resize = look_of(self._found[0][0], size), size is not None
        self._labels = np.array([label for _, label in self._found], np.int64) if names else None

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, row: int) -> tuple[Array, Array]:
        x, y = self._of([row])
        return x[0], y[0]

    @property
    def bytes(self) -> int:
        """What all of them take when they are decoded."""
        return len(self) * self._look.width * self._look.height * (1 if self._look.grey else 3)

    def all(self) -> tuple[Array, Array]:
        """Return images and labels."""
        return self._of(range(len(self)))

    def _of(self, rows: Sequence[int]) -> tuple[Array, Array]:
        x = read([self._found[row][0] for row in rows], self._look, resize=self._resize)
        labels = self._labels
        return x, np.zeros((len(rows), 0), np.float32) if labels is None else labels[list(rows)]


def _pixels(path: Path, look: Look, *, resize: bool) -> Array:
    image = _decoded(path)
    if image.size != (look.width, look.height) and not resize:
        raise BadData(
            f"{path} is {image.width}x{image.height} pixels, the first image is {look.width}x{look.height}: "
            "give one size for all, --size 64 with --data, folder:NAME:64 with --dataset"
        )
    plain = image.convert("L" if look.grey else "RGB")
    if plain.size != (look.width, look.height):
        plain = plain.resize((look.width, look.height), pillow().Resampling.BILINEAR)
    return np.asarray(plain, np.uint8).reshape(look.height, look.width, -1)


def _decoded(path: Path) -> Image:
    try:
        with pillow().open(path) as image:
            image.load()
            decoded: Image = image
    except (OSError, SyntaxError, ValueError, pillow().DecompressionBombError) as error:
        raise BadData(f"{path} is not an image that can be read: {error}") from error
    return decoded
