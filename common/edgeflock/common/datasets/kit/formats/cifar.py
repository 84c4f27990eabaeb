"""CIFAR's two official versions: binary records, and pickled batches of Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgeflock.common.datasets.kit.base import Array
from edgeflock.common.datasets.kit.files import content
from edgeflock.common.datasets.kit.formats import pickled
from edgeflock.common.errors import BadData

SHAPE = (3, 32, 32)
PIXELS = 3072


def binary(path: Path, *, label_bytes: int) -> tuple[Array, Array]:
    """Return images and labels of a file of records; the last label byte counts (CIFAR-100: fine)."""
    data = np.frombuffer(content(path), np.uint8)
    record = label_bytes + PIXELS
    if len(data) == 0 or len(data) % record:
        raise BadData(f"{path} has {len(data)} bytes, needed is a multiple of {record}")
    records = data.reshape(-1, record)
    return records[:, label_bytes:].reshape(-1, *SHAPE), records[:, label_bytes - 1]


def python(path: Path, *, key: str) -> tuple[Array, Array]:
    """Return images and labels of a pickled batch, whose texts may be bytes (as published) or str."""
    batch = pickled.read(path, content(path))
    if not isinstance(batch, dict):
        raise BadData(f"{path} holds no dictionary")
    x, y = (batch.get(name, batch.get(name.encode())) for name in ("data", key))
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != PIXELS:
        raise BadData(f"{path}: 'data' is no array of rows of {PIXELS} bytes")
    if not isinstance(y, list) or not all(isinstance(label, int) and 0 <= label < 256 for label in y):
        raise BadData(f"{path}: {key!r} is no list of whole numbers from 0 to 255")
    return x.reshape(-1, *SHAPE), np.array(y, np.int64)
