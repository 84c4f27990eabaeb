"""fashion-mnist: 60,000 + 10,000 pictures of clothes, 28x28, ten classes, in the four official idx files."""

from __future__ import annotations

from pathlib import Path

from edgeflock.common.datasets.kit.base import Dataset, Entry, Scaling, Size
from edgeflock.common.datasets.kit.files import Place
from edgeflock.common.datasets.kit.formats import idx
from edgeflock.common.datasets.mnist import FILES

PLACE = Place(
    name="fashion-mnist",
    home="https://github.com/zalandoresearch/fashion-mnist",
    folders=("FashionMNIST/raw", "FashionMNIST", "fashion_mnist", "fashion-mnist", ""),
    torchvision="FashionMNIST",
    probe="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-labels-idx1-ubyte.gz",
)
SCALING = Scaling(mean=(0.2860,), std=(0.3530,))


def read(name: str, root: Path) -> Dataset:
    found = PLACE.find(root, FILES)
    train, test = (idx.images(found[FILES[k]], found[FILES[k + 1]], 10) for k in (0, 2))
    return Dataset(name, 10, train, test)


SETS = {
    "fashion-mnist": Entry(
        read, PLACE.home, Size((1, 28, 28), 10, 60_000, 10_000), ((PLACE, FILES),), scaling=SCALING
    )
}
