"""cifar10: 50,000 + 10,000 colour images, 32x32, from the binary version or the Python version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgeflock.common.datasets.kit.base import Array, Dataset, Entry, Part, Scaling, Size, part
from edgeflock.common.datasets.kit.files import Place
from edgeflock.common.datasets.kit.formats import cifar

HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"
BATCHES = tuple(f"data_batch_{k}" for k in range(1, 6))
BINARY = Place("cifar10", HOME, ("cifar-10-batches-bin", ""))
PYTHON = Place(
    name="cifar10",
    home=HOME,
    folders=("cifar-10-batches-py", "cifar-10-batches-bin", ""),
    torchvision="CIFAR10",
    probe=HOME,
)

PLAIN = (*BATCHES, "test_batch")
PACKED = tuple(f"{name}.bin" for name in PLAIN)
SCALING = Scaling(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))


def read(name: str, root: Path) -> Dataset:
    if BINARY.holds(root, PACKED):
        found = BINARY.find(root, PACKED)
        parts = _parts([found[file] for file in PACKED], lambda path: cifar.binary(path, label_bytes=1))
    else:
        found = PYTHON.find(root, PLAIN)
        parts = _parts([found[file] for file in PLAIN], lambda path: cifar.python(path, key="labels"))
    return Dataset(name, 10, *parts)


def _parts(paths: list[Path], reader: Callable[[Path], tuple[Array, Array]]) -> tuple[Part, Part]:
    images, labels = zip(*(reader(path) for path in paths), strict=True)
    train = part(paths[0], np.concatenate(images[:-1]), np.concatenate(labels[:-1]), 10)
    return train, part(paths[-1], images[-1], labels[-1], 10)


SETS = {
    "cifar10": Entry(
        read,
        HOME,
        Size((3, 32, 32), 10, 50_000, 10_000),
        ((BINARY, PACKED), (PYTHON, PLAIN)),
        scaling=SCALING,
    )
}
