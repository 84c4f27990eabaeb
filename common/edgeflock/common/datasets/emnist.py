"""emnist: the balanced split, 112,800 + 18,800 letters and digits, 28x28, 47 classes, official idx files."""

from __future__ import annotations

from pathlib import Path

from edgeflock.common.datasets.kit.base import Dataset, Entry, Scaling, Size
from edgeflock.common.datasets.kit.files import Place
from edgeflock.common.datasets.kit.formats import idx

CLASSES = 47
FILES = tuple(
    f"emnist-balanced-{part}-{kind}-ubyte"
    for part in ("train", "test")
    for kind in ("images-idx3", "labels-idx1")
)
PLACE = Place(
    name="emnist",
    home="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    folders=("EMNIST/raw", "EMNIST", "emnist", "gzip", ""),
    torchvision="EMNIST",
    probe="https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
)
SCALING = Scaling(mean=(0.1751,), std=(0.3332,))


def read(name: str, root: Path) -> Dataset:
    found = PLACE.find(root, FILES)
    # The files hold every image transposed; they are put upright here.
    train, test = (idx.images(found[FILES[k]], found[FILES[k + 1]], CLASSES, transposed=True) for k in (0, 2))
    return Dataset(name, CLASSES, train, test)


SETS = {
    "emnist": Entry(
        read, PLACE.home, Size((1, 28, 28), CLASSES, 112_800, 18_800), ((PLACE, FILES),), scaling=SCALING
    )
}
