"""Segmentation: which pixels of a noisy picture are ink. The pictures are edgeflock's own digits.

    fl-lab run --task segmentation --client-data ink:noisy --model ink:make \
        --input-shape 1x8x8 --classes 2 --clients 4 --lr 0.5
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import nn

from edgeflock.common.datasets.kit import registry

EACH = 200  # pictures of a client


def noisy(client: str) -> dict[str, NDArray[np.float32] | NDArray[np.int64]]:
    """Return pictures with noise, and for each pixel whether it is ink; the last fifth is for tests."""
    seat = int(client.strip("c"))
    clean = registry.load("digits").train.x[seat * EACH : (seat + 1) * EACH] / np.float32(16)
    noise = np.random.default_rng(seat).normal(0, 0.4, clean.shape)
    x, y = (clean + noise).astype(np.float32), (clean[:, 0] > 0.5).astype(np.int64)
    return {"x": x[:160], "y": y[:160], "x_test": x[160:], "y_test": y[160:]}


def make(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Return a model that gives a number for every class and pixel."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, classes, 1),
    )
