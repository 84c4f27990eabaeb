"""MedMNIST's 2D sets with one label per image, from the official NAME.npz; the validation part is unused."""

from __future__ import annotations

from pathlib import Path

from edgeflock.common.datasets.kit.base import Dataset, Entry, Scaling, Size
from edgeflock.common.datasets.kit.files import Place
from edgeflock.common.datasets.npz import parts

HOME = "https://medmnist.com"
GREY, COLOUR = (1, 28, 28), (3, 28, 28)
SIZES = {
    "organamnist": Size(GREY, 11, 34_561, 17_778),
    "organcmnist": Size(GREY, 11, 12_975, 8_216),
    "organsmnist": Size(GREY, 11, 13_932, 8_827),
    "pathmnist": Size(COLOUR, 9, 89_996, 7_180),
    "dermamnist": Size(COLOUR, 7, 7_007, 2_005),
    "octmnist": Size(GREY, 4, 97_477, 1_000),
    "pneumoniamnist": Size(GREY, 2, 4_708, 624),
    "retinamnist": Size(COLOUR, 5, 1_080, 400),
    "breastmnist": Size(GREY, 2, 546, 156),
    "bloodmnist": Size(COLOUR, 8, 11_959, 3_421),
    "tissuemnist": Size(GREY, 8, 165_466, 47_280),
}


def read(name: str, root: Path) -> Dataset:
    """Pixels become (x/255 - 0.5)/0.5, as in the official examples."""
    classes = SIZES[name].classes
    train, test = parts(_place(name).find(root, (f"{name}.npz",))[f"{name}.npz"], classes)
    return Dataset(name, classes, train, test)


def _place(name: str) -> Place:
    return Place(name, HOME, ("", "medmnist", "MedMNIST"))


def _entry(name: str, size: Size) -> Entry:
    half = (0.5,) * size.input_shape[0]
    return Entry(read, HOME, size, ((_place(name), (f"{name}.npz",)),), scaling=Scaling(mean=half, std=half))


SETS = {name: _entry(name, size) for name, size in SIZES.items()}
