"""Samples that stay as they are stored: read, made ready and given to the device when a step needs them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from edgeflock.common.datasets.kit.own import Fit
from edgeflock.common.datasets.kit.stored import Stored
from edgeflock.common.room import free_bytes, memory_bytes
from edgeflock.methods.kit.batches import SEGMENT_BYTES, LocalData, Stock
from edgeflock.methods.kit.order import Rows

READY_BYTES = 64 << 20  # what takes no more as floats is made ready at once
READY_SHARE, FREE_SHARE = 16, 4  # so is more, up to these parts of the memory and of what is free of it


class ReadyRoom:
    """What the samples that were made ready at once take of a process's memory, while somebody has them."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}  # bytes

    def has(self, size: int) -> bool:
        """Whether so many bytes more are few: they are made ready at once, and no step waits for them."""
        if size <= READY_BYTES:
            return True
        free = free_bytes()
        room = memory_bytes() // READY_SHARE - sum(list(self._held.values()))
        return size <= (room if free is None else min(room, free // FREE_SHARE))

    def held(self, data: LocalData, size: int) -> LocalData:
        """Return data that are made ready, and count them."""
        self._held[id(data)] = size
        weakref.finalize(data, self._held.pop, id(data), None).atexit = False
        return data


def stock(stored: Stored, fit: Fit, device: torch.device, room: ReadyRoom | None = None) -> Stock:
    """Return samples to train on: in memory where they are few and the same at every reading, else lazily."""
    lazy, room = LazyData(stored, fit, device), room or ReadyRoom()
    size = len(stored) * lazy.sample_bytes
    if stored.fixed and room.has(size):
        return room.held(lazy.ready(), size)
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

    def ready(self) -> LocalData:
        """Return all samples in memory, made ready a few at a time."""
        x = y = torch.empty(0)
        self._stored.rest()
        for start, (some, labels) in enumerate(self.parts(self.at_once)):
            if start == 0:
                x = self._place(some)
                y = x if labels is some else self._place(labels)
            rows = slice(start * self.at_once, start * self.at_once + len(some))
            x[rows] = some
            if y is not x:
                y[rows] = labels
            self._stored.rest()
        return LocalData(x, y)

    def _place(self, like: Tensor) -> Tensor:
        """Return room for all samples: NumPy's, which asks for huge pages."""
        room = np.empty((len(self), *like.shape[1:]), like[:0].cpu().numpy().dtype)
        return torch.from_numpy(room).to(self._device)

    def parts(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(self), size):
            yield self.take(np.arange(start, min(start + size, len(self))), 0)


def on(device: torch.device, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return samples and labels on the device; where these are the samples they stay the same."""
    placed = x.to(device)
    return placed, placed if y is x else y.to(device)
