"""The idx format of MNIST and its family: a magic number, big-endian sizes, then bytes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from edgeflock.common.datasets.kit.base import Array, Part, part
from edgeflock.common.datasets.kit.files import content
from edgeflock.common.errors import BadData

UNSIGNED_BYTE = 8


def read(path: Path) -> Array:
    """Return the array of one idx file of unsigned bytes, packed or not."""
    data = content(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != UNSIGNED_BYTE:
        raise BadData(f"{path} is not an idx file of unsigned bytes")
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise BadData(f"{path} ends within its header")
    shape = tuple(int(size) for size in np.frombuffer(data[4:start], ">u4"))
    if len(data) - start != math.prod(shape):
        raise BadData(f"{path} holds {len(data) - start} bytes of data, its header says {math.prod(shape)}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def images(image_file: Path, label_file: Path, classes: int, *, transposed: bool = False) -> Part:
    """Return grey images with a channel dimension and their labels; `transposed` puts EMNIST's upright."""
    x, y = read(image_file), read(label_file)
    if x.ndim != 3 or y.ndim != 1:
        raise BadData(f"{image_file}: {x.ndim} dimensions and labels of {y.ndim}, needed are 3 and 1")
    if transposed:
        x = np.ascontiguousarray(x.transpose(0, 2, 1))
    return part(image_file, x[:, None], y, classes)
