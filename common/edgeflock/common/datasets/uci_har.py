"""uci-har: human activity from a phone's sensors, 7,352 + 2,947 rows of 561 features, with subjects."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.common.datasets.kit.base import Dataset, Entry, Part, Size, part
from edgeflock.common.datasets.kit.files import Place
from edgeflock.common.errors import BadData

CLASSES = 6
FEATURES = 561
PLACE = Place(
    name="uci-har",
    home="https://archive.ics.uci.edu/dataset/240",
    folders=("UCI HAR Dataset", "UCI-HAR/UCI HAR Dataset", "uci-har", ""),
)


def read(name: str, root: Path) -> Dataset:
    train, test = (_part(root, half) for half in ("train", "test"))
    return Dataset(name, CLASSES, train, test)


def _part(root: Path, half: str) -> Part:
    paths = list(PLACE.find(root, _names(half)).values())
    x = _table(paths[0], FEATURES).astype(np.float32)
    labels, subjects = (_table(path, 1)[:, 0].astype(np.int64) for path in paths[1:])
    if len(subjects) != len(x):
        raise BadData(f"{paths[2]} has {len(subjects)} subjects for {len(x)} rows")
    return part(paths[0], x, labels - 1, CLASSES, subjects)  # stored as 1..6


def _names(half: str) -> tuple[str, ...]:
    return tuple(f"{half}/{kind}_{half}.txt" for kind in ("X", "y", "subject"))


def _table(path: Path, columns: int) -> NDArray[np.float64]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty file is refused below
            table = np.loadtxt(path, ndmin=2)
    except ValueError as error:
        raise BadData(f"{path} is not a table of numbers: {error}") from error
    if table.size == 0 or table.shape[1] != columns or not np.isfinite(table).all():
        found = f"{table.shape[0]} rows of {table.shape[1]}"
        raise BadData(f"{path} is {found}, needed are rows of {columns} finite numbers")
    return table


SETS = {
    "uci-har": Entry(
        read,
        PLACE.home,
        Size((FEATURES,), CLASSES, 7_352, 2_947),
        ((PLACE, _names("train") + _names("test")),),
    )
}
