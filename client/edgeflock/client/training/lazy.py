"""Samples that stay as they are stored: read, made ready and given to the device when a step needs them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from edgeflock.common.datasets.kit.own import Fit
from edgeflock.common.datasets.kit.stored import Stored
from edgeflock.methods.kit.batches import SEGMENT_BYTES, LocalData, Stock
from edgeflock.methods.kit.order import Rows

READY_BYTES = 64 << 20  # what takes no more as floats is made ready at once


def stock(stored: Stored, fit: Fit, device: torch.device) -> Stock:
    """Return samples to train on: in memory where they are few and the same at every reading, else lazily."""
    lazy = LazyData(stored, fit, device)
    if stored.fixed and len(stored) * lazy.sample_bytes <= READY_BYTES:
        return LocalData(*lazy.take(np.arange(len(stored)), 0))
    return lazy


class LazyData:
    """A stock of own data, as they are stored."""

    def __init__(self, stored: Stored, fit: Fit, device: torch.device) -> None:
        self._stored, self._fit, self._device = stored, fit, device

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def sample_bytes(self) -> int:
        """What a sample takes when it is ready."""
        return 4 * int(np.prod(self._fit.input_shape))

    @property
    def at_once(self) -> int:
        return max(1, SEGMENT_BYTES // self.sample_bytes) if self._stored.fixed else 1

    def take(self, rows: Rows, draw: int) -> tuple[Tensor, Tensor]:
        return on(self._device, *self._fit.of(*self._stored.take(rows, draw)))

    def parts(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(self), size):
            yield self.take(np.arange(start, min(start + size, len(self))), 0)


def on(device: torch.device, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return samples and labels on the device; where these are the samples they stay the same."""
    placed = x.to(device)
    return placed, placed if y is x else y.to(device)
