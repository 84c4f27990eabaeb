"""Models of a user's own, each with something that goes wrong elsewhere."""

from __future__ import annotations

import builtins
import fcntl
import math
from typing import Any

import torch
from torch import Tensor, nn


class Head(nn.Module):
    """One linear layer, and what stands before it."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(math.prod(shape), classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.before(x.flatten(1)))
        return logits

    def before(self, x: Tensor) -> Tensor:
        return x


def plain(shape: tuple[int, ...], classes: int, **_: Any) -> nn.Module:
    return Head(shape, classes)


class Many(Head):
    """As many small tensors as a layout that takes long to travel has."""

    def __init__(self, shape: tuple[int, ...], classes: int, layers: int) -> None:
        super().__init__(shape, classes)
        self.blocks_of_the_encoder = nn.ModuleList(nn.LayerNorm(1) for _ in range(layers))


def many(shape: tuple[int, ...], classes: int, *, layers: str = "2000") -> nn.Module:
    return Many(shape, classes, int(layers))


class Masked(Head):
    """As in PyTorch's own tutorial: a mask of minus infinity, and a table of positions, for what is learned
    about the samples' mean."""

    mask: Tensor
    table: Tensor
    mean: Tensor

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        side = math.prod(shape)
        self.register_buffer("mask", torch.triu(torch.full((side, side), float("-inf")), 1))
        self.register_buffer("table", torch.sin(torch.arange(12.0)))
        self.register_buffer("window", torch.ones(3), persistent=False)
        self.register_buffer("mean", torch.zeros(side))
        self.norm = nn.BatchNorm1d(side)

    def before(self, x: Tensor) -> Tensor:
        if self.training:  # put anew, as many write it
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        attention: Tensor = torch.softmax(self.mask, 1)
        normed: Tensor = self.norm(x @ attention.T) + self.table[0]
        return normed - self.mean


def masked(shape: tuple[int, ...], classes: int, **_: Any) -> nn.Module:
    return Masked(shape, classes)


class Initialised(Head):
    """ActNorm: its first batch sets it up, which a byte remembers; a flag, a count and a cache beside."""

    initialised: Tensor
    seen: Tensor
    batches: Tensor
    order: Tensor
    cache: Tensor | None

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("initialised", torch.tensor(0, dtype=torch.uint8))
        self.register_buffer("seen", torch.tensor(False))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int32))
        self.register_buffer("order", torch.arange(math.prod(shape)).flip(0) - 5)
        self.register_buffer("cache", None)

    def before(self, x: Tensor) -> Tensor:
        if self.training:
            if not self.initialised:
                self.scale.data.fill_(1 / (x.std() + 1e-6))
                self.initialised.fill_(1)
            self.seen = torch.tensor(True)
            self.batches += 1
            self.cache = x.detach().clone()
        return x[:, self.order + 5] * self.scale


def initialised(shape: tuple[int, ...], classes: int, **_: Any) -> nn.Module:
    return Initialised(shape, classes)


class Shared(Head):
    """One dropout in two places, one buffer in two modules."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        drop, side = nn.Dropout(0.5), math.prod(shape)
        self.first = nn.Sequential(nn.Linear(side, side), drop)
        self.second = nn.Sequential(nn.Linear(side, side), drop)
        self.one, self.two = nn.BatchNorm1d(side), nn.BatchNorm1d(side)
        self.two.running_mean = self.one.running_mean

    def before(self, x: Tensor) -> Tensor:
        out: Tensor = self.two(self.second(self.one(self.first(x))))
        return out


def shared(shape: tuple[int, ...], classes: int, **_: Any) -> nn.Module:
    return Shared(shape, classes)


class Touchy(Head):
    """Raises what the argument names in the midst of a training with batches of 16."""

    def __init__(self, shape: tuple[int, ...], classes: int, error: str) -> None:
        super().__init__(shape, classes)
        self.error: type[BaseException] = getattr(builtins, error)

    def before(self, x: Tensor) -> Tensor:
        if self.training and len(x) == 16:
            raise self.error("what is that?")
        return x


def touchy(shape: tuple[int, ...], classes: int, *, error: str = "IndexError") -> nn.Module:
    return Touchy(shape, classes, error)


class Held(Head):
    """Its tests on the server wait for a file that somebody has locked."""

    def __init__(self, shape: tuple[int, ...], classes: int, gate: str) -> None:
        super().__init__(shape, classes)
        self.gate = gate

    def before(self, x: Tensor) -> Tensor:
        if not self.training and len(x) == 256:
            with open(self.gate, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
        return x


def held(shape: tuple[int, ...], classes: int, *, gate: str) -> nn.Module:
    return Held(shape, classes, gate)
