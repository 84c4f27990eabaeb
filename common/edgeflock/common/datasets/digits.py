"""digits: 5,620 real 8x8 images of handwritten digits, shipped in the package (digits.npz).

E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", 1998,
UCI Machine Learning Repository, data set 80.
Licence of the data: Creative Commons Attribution 4.0 International (CC BY 4.0).
Changed from the original: stored as one compressed NumPy archive, X uint8 (5620, 8, 8), 0..16, y uint8.
The first 3,823 rows are the original training part (30 writers), the other 1,797 its test part (13 others).
"""

from __future__ import annotations

from pathlib import Path

from edgeflock.common.datasets.kit.base import Dataset, Entry, Scaling, Size, part
from edgeflock.common.datasets.kit.formats import npz

TRAIN = 3823
INKED = 16.0  # the highest pixel value


def read(name: str, root: Path) -> Dataset:
    path = Path(__file__).with_name("digits.npz")
    x, y = npz.pick(path, npz.read(path), "X", "y")
    train = part(path, x[:TRAIN, None], y[:TRAIN], 10)
    test = part(path, x[TRAIN:, None], y[TRAIN:], 10)
    return Dataset(name, 10, train, test)


SETS = {
    "digits": Entry(
        read, "this package", Size((1, 8, 8), 10, TRAIN, 1797), shipped=True, scaling=Scaling(INKED)
    )
}
