"""folder:NAME or folder:NAME:SIDE: a folder of images below the data root, one sub-folder per class.

With `train` and `test` folders inside, these are the parts; else every fifth image of a class is test.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgeflock.common.datasets.kit import files
from edgeflock.common.datasets.kit.base import Dataset, Entry, Part, part
from edgeflock.common.datasets.kit.formats import images
from edgeflock.common.errors import BadData, BadValue, MissingData

HELD_OUT = 5  # every fifth


def read(argument: str, root: Path) -> Dataset:
    name, _, side = argument.partition(":")
    if side and not (side.isascii() and side.isdigit() and 1 <= int(side) <= 4096):
        raise BadValue("side of folder:NAME:SIDE", side, "a number of pixels from 1 to 4096")
    path = files.below(root, name)
    if not path.is_dir():
        raise MissingData(
            f"folder:{name}: there is no folder {path}; it holds one sub-folder of images per class"
        )
    split = (path / "train").is_dir() and (path / "test").is_dir()
    halves = (path / "train", path / "test") if split else (path, path)
    names, _ = images.class_names(halves[0], beside=path)
    found = [images.labelled(half, names) for half in halves]
    if not split:
        found = _split(found[0], len(names))
    if not found[0] or not found[1]:
        raise BadData(
            f"folder:{name}: {path} needs images for training and, every fifth of a class, for the test"
        )
    look = images.look_of(found[0][0][0], int(side) if side else None)
    train, test = (_part(half, look, len(names), resize=bool(side)) for half in found)
    return Dataset(f"folder:{argument}", len(names), train, test)


def _split(found: list[tuple[Path, int]], classes: int) -> list[list[tuple[Path, int]]]:
    by_class = [[pair for pair in found if pair[1] == label] for label in range(classes)]
    test = [pair for pairs in by_class for pair in pairs[HELD_OUT - 1 :: HELD_OUT]]
    kept = set(found) - set(test)
    return [[pair for pair in found if pair in kept], test]


def _part(found: list[tuple[Path, int]], look: images.Look, classes: int, *, resize: bool) -> Part:
    x = images.read([path for path, _ in found], look, resize=resize)
    return part(found[0][0].parent, x, np.array([label for _, label in found], np.int64), classes)


SETS = {"folder": Entry(read, argument="NAME[:SIDE]")}
