"""Folders of images, one sub-folder per class, read with Pillow (which comes with torchvision)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from edgeflock.common.command import extras
from edgeflock.common.datasets.kit.base import Array, Labels, count_classes
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


def class_names(folder: Path) -> list[str]:
    """Return the classes of a folder: those of classes.txt, else its sub-folders; numbers are labels."""
    if (folder / CLASS_FILE).is_file():
        lines = (folder / CLASS_FILE).read_text(encoding="utf-8").splitlines()
        return [line.strip() for line in lines if line.strip()]
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if names and all(name.isascii() and name.isdigit() for name in names):
        count = count_classes(f"{folder}, whose sub-folders are numbers", max(map(int, names)))
        return [str(label) for label in range(count)]
    return names


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


def folder(path: Path, names: list[str], size: int | None) -> tuple[Array, Labels]:
    """Return images and labels of a folder with one sub-folder per class."""
    found = labelled(path, names)
    if not found:
        raise BadData(f"{path} holds no images in sub-folders, one per class ({', '.join(sorted(ENDINGS))})")
    paths = [image for image, _ in found]
    x = read(paths, look_of(paths[0], size), resize=size is not None)
    return x, np.array([label for _, label in found], np.int64)


def _pixels(path: Path, look: Look, *, resize: bool) -> Array:
    image = _decoded(path)
    if image.size != (look.width, look.height) and not resize:
        raise BadData(
            f"{path} is {image.width}x{image.height} pixels, the first image is {look.width}x{look.height}: "
            "bring them to one size, or give one as in folder:NAME:64"
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
