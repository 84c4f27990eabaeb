"""Batches: a client's samples, in memory or wherever they lie, cut into batches by index."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from edgeflock.common.models.kit.base import Net
from edgeflock.common.tasks.kit.base import Array
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
    """Samples in memory: x floats, or whole numbers where the model takes these, y as the task has it."""

    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, net: Net, x: Array, y: Array) -> LocalData:
        """Return samples as they are stored, as a model of that task is given them."""
        return cls(*net.task.tensors(x, y, tokens=net.tokens))

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
        self._x = _room(self._x, data.x, len(rows))
        x = _gathered(data.x, index, self._x)
        if data.y is data.x:  # of an autoencoder
            return x, x
        self._y = _room(self._y, data.y, len(rows))
        return x, _gathered(data.y, index, self._y)


def _room(before: Tensor, data: Tensor, rows: int) -> Tensor:
    """Return where so many rows have room."""
    elements = data[:1].numel() * rows
    same = before.device == data.device and before.dtype == data.dtype
    return before if same and before.numel() >= elements else data.new_empty(elements)


def _gathered(data: Tensor, index: Tensor, room: Tensor) -> Tensor:
    shape = (len(index), *data.shape[1:])
    out = room[: data[:1].numel() * len(index)].view(shape)
    return torch.index_select(data, 0, index, out=out)


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
