"""Batches: a client's data in memory, cut into batches by index."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from edgeflock.methods.kit.order import Order, Rows

SEGMENT_BYTES = 4 << 20  # gathered at once: spares a call per batch


@dataclass(frozen=True)
class LocalData:
    """A client's samples: x float32 (n, ...), y int64 (n)."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return self.y.shape[0]

    def bytes_per_sample(self) -> int:
        return max(1, self.x[:1].numel() * self.x.element_size())


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

    def batches(self, data: LocalData, order: Order, round: int, steps: int) -> Iterator[Batch]:
        """Yield the batches of a round's steps."""
        if order.batches == 1:
            for step in range(steps):
                yield Batch(data.x, data.y, step)
            return
        step, many = 0, self._batches_at_once(data, order)
        rows = order.epoch(round, 0)
        while step < steps:
            number, place = divmod(step, order.batches)
            if place == 0 and number:
                rows = order.epoch(round, number)
            last = min(place + many, order.batches, place + steps - step)
            cuts = order.cuts[place : last + 1]
            x, y = self._gather(data, rows[cuts[0] : cuts[-1]])
            sizes = [end - start for start, end in itertools.pairwise(cuts)]
            for part_x, part_y in zip(torch.split(x, sizes), torch.split(y, sizes), strict=True):
                yield Batch(part_x, part_y, step)
                step += 1

    def _batches_at_once(self, data: LocalData, order: Order) -> int:
        return max(1, SEGMENT_BYTES // (data.bytes_per_sample() * order.cuts[1]))

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


def pick(data: LocalData, rows: Rows) -> Batch:
    """Return a batch of its own tensors, which stays valid."""
    index = torch.from_numpy(rows).to(data.y.device)
    return Batch(data.x[index], data.y[index], -1)
