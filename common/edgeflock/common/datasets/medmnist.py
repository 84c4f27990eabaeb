"""MedMNIST's 2D sets with one label per image, from the official NAME.npz; the validation part is unused."""

from __future__ import annotations

from pathlib import Path

from edgeflock.common.datasets.base import Dataset, Entry
from edgeflock.common.datasets.files import Place
from edgeflock.common.datasets.npz import parts

HOME = "https://medmnist.com"
CLASSES = {
    "organamnist": 11,
    "organcmnist": 11,
    "organsmnist": 11,
    "pathmnist": 9,
    "dermamnist": 7,
    "octmnist": 4,
    "pneumoniamnist": 2,
    "retinamnist": 5,
    "breastmnist": 2,
    "bloodmnist": 8,
    "tissuemnist": 8,
}


def read(name: str, root: Path) -> Dataset:
    """Pixels become (x/255 - 0.5)/0.5, as in the official examples."""
    place = Place(name, HOME, ("", "medmnist", "MedMNIST"))
    train, test = parts(place.find(root, (f"{name}.npz",))[f"{name}.npz"], CLASSES[name])
    half = (0.5,) * train.input_shape[0]
    return Dataset(name, CLASSES[name], train, test, mean=half, std=half)


SETS = {name: Entry(read, HOME) for name in CLASSES}
