"""tiny-imagenet: 100,000 + 10,000 colour images, 64x64, 200 classes, from the official folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgeflock.common.datasets.kit.base import Dataset, Entry, Part, Scaling, Size, part
from edgeflock.common.datasets.kit.files import Place
from edgeflock.common.datasets.kit.formats import images
from edgeflock.common.errors import BadData

SIDE = 64
PLACE = Place(
    name="tiny-imagenet",
    home="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    folders=("tiny-imagenet-200", "tiny-imagenet", ""),
)

FILES = ("wnids.txt", "val/val_annotations.txt", "train")
SCALING = Scaling(mean=(0.4802, 0.4481, 0.3975), std=(0.2770, 0.2691, 0.2821))


def read(name: str, root: Path) -> Dataset:
    """The official test part has no labels: as everywhere, the official validation part is the test part."""
    found = PLACE.find(root, FILES)
    classes = sorted(found["wnids.txt"].read_text(encoding="utf-8").split())
    train = _part(_training(found["train"], classes), len(classes))
    test = _part(_validation(found["val/val_annotations.txt"], classes), len(classes))
    return Dataset(name, len(classes), train, test)


def _training(folder: Path, classes: list[str]) -> list[tuple[Path, int]]:
    return [(path, label) for label, name in enumerate(classes) for path in images.listing(folder / name)]


def _validation(table: Path, classes: list[str]) -> list[tuple[Path, int]]:
    rows = [line.split("\t") for line in table.read_text(encoding="utf-8").splitlines()]
    if any(len(row) < 2 or row[1] not in classes for row in rows):
        raise BadData(f"{table} does not name an image and one of the {len(classes)} classes in every line")
    return [(table.parent / "images" / row[0], classes.index(row[1])) for row in rows]


def _part(found: list[tuple[Path, int]], classes: int) -> Part:
    if not found:
        raise BadData("tiny-imagenet: the folder of images is empty")
    x = images.read([path for path, _ in found], images.Look(SIDE, SIDE, grey=False), resize=False)
    return part(found[0][0].parent, x, np.array([label for _, label in found], np.int64), classes)


SETS = {
    "tiny-imagenet": Entry(
        read, PLACE.home, Size((3, SIDE, SIDE), 200, 100_000, 10_000), ((PLACE, FILES),), scaling=SCALING
    )
}
