"""cifar100: 50,000 + 10,000 colour images, 32x32, fine labels, binary or Python version."""

from __future__ import annotations

from pathlib import Path

from edgeflock.common.datasets.kit.base import Dataset, Entry, Scaling, Size, part
from edgeflock.common.datasets.kit.files import Place
from edgeflock.common.datasets.kit.formats import cifar

HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"
BINARY = Place("cifar100", HOME, ("cifar-100-binary", ""))
PYTHON = Place(
    name="cifar100",
    home=HOME,
    folders=("cifar-100-python", "cifar-100-binary", ""),
    torchvision="CIFAR100",
    probe=HOME,
)

PLAIN = ("train", "test")
PACKED = ("train.bin", "test.bin")
SCALING = Scaling(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762))


def read(name: str, root: Path) -> Dataset:
    if BINARY.holds(root, PACKED):
        found = BINARY.find(root, PACKED)
        stored = {path: cifar.binary(path, label_bytes=2) for path in found.values()}
    else:
        found = PYTHON.find(root, PLAIN)
        stored = {path: cifar.python(path, key="fine_labels") for path in found.values()}
    train, test = (part(path, x, y, 100) for path, (x, y) in stored.items())
    return Dataset(name, 100, train, test)


SETS = {
    "cifar100": Entry(
        read,
        HOME,
        Size((3, 32, 32), 100, 50_000, 10_000),
        ((BINARY, PACKED), (PYTHON, PLAIN)),
        scaling=SCALING,
    )
}
