"""A client's own data that have grown whenever they are asked for."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from edgeflock.common.datasets.kit.base import Array


def load() -> tuple[Array, Array]:
    """Return 40 samples, and 10 more with every call; calls are counted in the file that $CALLS names."""
    calls = Path(os.environ["CALLS"])
    with calls.open("a") as file:
        file.write("x")
    random = np.random.default_rng(5)
    y = random.integers(0, 10, 1000)
    x = random.normal(size=(1000, 1, 8, 8)).astype(np.float32) + y[:, None, None, None]
    count = 30 + 10 * calls.stat().st_size
    return x[:count], y[:count]
