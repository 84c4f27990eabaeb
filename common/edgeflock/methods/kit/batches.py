"""Batches: a client's samples, in memory or wherever they lie, cut into batches by index."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from edgeflock.methods.kit.order import Order, Rows

SEGMENT_BYTES = 4 << 20  # gathered at once: spares a call per batch


class Stock(Protocol):
    """A client's samples, wherever they lie; what is taken of them is ready to train on."""

    def __len__(self) -> int: ...

    @property
    def at_once(self) -> int:
        """How many are best taken together."""
        ...

    def take(self, rows: Rows, draw: int) -> tuple[Tensor, Tensor]:
        """Return x and y of these rows, tensors of their own; what is random in them is drawn from `draw`."""
        ...

    def parts(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield x and y of all samples in stored order, so many at a time."""
        ...


@dataclass(frozen=True)
class LocalData:
    """Samples in memory: x float32 (n, ...), y int64 (n)."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return self.y.shape[0]

    @property
    def at_once(self) -> int:
        return max(1, SEGMENT_BYTES // max(1, self.x[:1].numel() * self.x.element_size()))

    def take(self, rows: Rows, draw: int) -> tuple[Tensor, Tensor]:
        index = torch.from_numpy(rows).to(self.y.device)
        return self.x[index], self.y[index]

    def parts(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(torch.split(self.x, size), torch.split(self.y, size), strict=True)


class Batch(NamedTuple):
    """Samples of one step. Its tensors are reused: valid until the next batch is asked for."""

    x: Tensor
    y: Tensor
    step: int  # from 0; -1 outside the round's steps

    @property
    def samples(self) -> int:
        return self.y.shape[0]


class BatchFeed:
    """Cuts batches from a client's data in the order of a round; keeps its buffers over the rounds."""

    def __init__(self) -> None:
        self._x = torch.empty(0)
        self._y = torch.empty(0, dtype=torch.int64)

    def batches(self, data: Stock, order: Order, round: int, steps: int) -> Iterator[Batch]:
        """Yield the batches of a round's steps."""
        if order.batches == 1:
            yield from _whole(data, order, round, steps)
            return
        step, many = 0, max(1, data.at_once // order.cuts[1])
        rows = order.epoch(round, 0)
        while step < steps:
            number, place = divmod(step, order.batches)
            if place == 0 and number:
                rows = order.epoch(round, number)
            last = min(place + many, order.batches, place + steps - step)
            cuts = order.cuts[place : last + 1]
            wanted = rows[cuts[0] : cuts[-1]]
            if isinstance(data, LocalData):
                x, y = self._gather(data, wanted)
            else:
                x, y = data.take(wanted, order.draw(round, number))
            sizes = [end - start for start, end in itertools.pairwise(cuts)]
            for part_x, part_y in zip(torch.split(x, sizes), torch.split(y, sizes), strict=True):
                yield Batch(part_x, part_y, step)
                step += 1

    def _gather(self, data: LocalData, rows: Rows) -> tuple[Tensor, Tensor]:
        index = torch.from_numpy(rows).to(data.y.device)
        shape = (len(rows), *data.x.shape[1:])
        elements = data.x[:1].numel() * len(rows)
        if self._x.numel() < elements or self._x.device != data.x.device:
            self._x = torch.empty(elements, device=data.x.device)
        if self._y.numel() < len(rows) or self._y.device != data.y.device:
            self._y = torch.empty(len(rows), dtype=torch.int64, device=data.y.device)
        x, y = self._x[:elements].view(shape), self._y[: len(rows)]
        torch.index_select(data.x, 0, index, out=x)
        torch.index_select(data.y, 0, index, out=y)
        return x, y


def pick(data: Stock, order: Order, round: int, step: int) -> Batch:
    """Return the batch of a round's order at a step, of its own tensors, which stay valid."""
    draw = order.draw(round, step // order.batches)
    return Batch(*data.take(order.rows(round, step), draw), -1)


def _whole(data: Stock, order: Order, round: int, steps: int) -> Iterator[Batch]:
    """Yield the whole local set at every step, in stored order."""
    for step in range(steps):
        if isinstance(data, LocalData):
            yield Batch(data.x, data.y, step)
        else:
            yield Batch(*data.take(np.arange(len(data)), order.draw(round, step)), step)
