"""mnist: 60,000 + 10,000 handwritten digits, 28x28, in the four official idx files."""

from __future__ import annotations

from pathlib import Path

from edgeflock.common.datasets.kit.base import Dataset, Entry, Scaling, Size
from edgeflock.common.datasets.kit.files import Place
from edgeflock.common.datasets.kit.formats import idx

FILES = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
PLACE = Place(
    name="mnist",
    home="http://yann.lecun.com/exdb/mnist",
    folders=("MNIST/raw", "MNIST", "mnist", ""),
    torchvision="MNIST",
    probe="https://ossci-datasets.s3.amazonaws.com/mnist/t10k-labels-idx1-ubyte.gz",
)
SCALING = Scaling(mean=(0.1307,), std=(0.3081,))


def read(name: str, root: Path) -> Dataset:
    found = PLACE.find(root, FILES)
    train, test = (idx.images(found[FILES[k]], found[FILES[k + 1]], 10) for k in (0, 2))
    return Dataset(name, 10, train, test)


SETS = {
    "mnist": Entry(
        read, PLACE.home, Size((1, 28, 28), 10, 60_000, 10_000), ((PLACE, FILES),), scaling=SCALING
    )
}
