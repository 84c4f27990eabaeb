"""Accumulators of a round: unnormalised sums (vectors in float32, scalars and weights in float64)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

from edgeflock.common import norms
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit.values import Round, State


class Update(Protocol):
    """One client's update as the fold sees it: in the spool, checked, decoded block by block."""

    seat: int
    samples: int
    steps: int  # K_i
    scalars: Mapping[str, float]

    def blocks(self, kind: Kind) -> Iterator[tuple[int, Tensor]]:
        """Yield (first element, decoded block) in order; a block is valid until the next one."""
        ...

    def tensor(self, kind: Kind) -> Tensor:
        """Return a whole decoded bundle; for small ones (centroids, counts)."""
        ...


class Accumulators:
    """Named sums over the counted updates, divided once at the commit by the sum of their weights.

    Every sum is one of parts: what a method calculates from it must be additive, as vectors, weights and
    scalars are here.
    """

    def __init__(self, layouts: Mapping[str, Layout]) -> None:
        sizes = {name: layout.elements for name, layout in layouts.items()}
        self.flat = torch.zeros(sum(sizes.values()))  # all vectors, one after the other
        self.vectors = dict[str, Tensor]()
        for start, (name, size) in zip(accumulate(sizes.values(), initial=0), sizes.items(), strict=False):
            self.vectors[name] = self.flat[start : start + size]
        self.names = tuple(layouts)  # of the vectors that are summed here
        self.weights = dict.fromkeys(layouts, 0.0)
        self.scalars: dict[str, float] = {}
        self.state = State()  # the server's state, which the round started from: read only
        self.round = Round(0, 0.0, (), {})  # the round that is folded, with what S0 has prepared
        self.updates = 0  # |S|: folded updates
        self.operations = 0  # of these sums: a product and a sum for every number
        self.forward_samples = 0  # that passed through the model while updates were folded

    def reset(self) -> None:
        self.flat.zero_()
        self.weights |= dict.fromkeys(self.names, 0.0)
        self.scalars.clear()
        self.updates = self.operations = self.forward_samples = 0

    def merge(self, other: Accumulators) -> None:
        """Add the sums over other updates."""
        if other.names:
            self.flat.add_(other.flat)
        for name in other.names:
            self.weights[name] += other.weights[name]
        for name, value in other.scalars.items():
            self.count(name, value)
        self.updates += other.updates
        self.operations += other.operations + other.flat.numel()
        self.forward_samples += other.forward_samples

    def add(self, name: str, update: Update, kind: Kind, weight: float, *, norm: bool = False) -> float:
        """Add weight times a bundle of the update; return its squared norm if asked for, else 0."""
        total, squares = self.vectors[name], 0.0
        for start, block in update.blocks(kind):
            total[start : start + block.numel()].add_(block, alpha=weight)
            self.operations += (4 if norm else 2) * block.numel()
            if norm:
                squares += norms.quick_squared_norm(block)
        self.weights[name] += weight
        return squares

    def add_tensor(self, name: str, tensor: Tensor, weight: float) -> None:
        """Add an already weighted tensor, and its weight to the divisor."""
        self.vectors[name].add_(tensor.reshape(-1))
        self.operations += tensor.numel()
        self.weights[name] += weight

    def count(self, name: str, value: float) -> None:
        """Add to a scalar sum."""
        self.scalars[name] = self.scalars.get(name, 0.0) + value

    def passed(self, samples: int) -> None:
        """Note that so many samples passed through the model: operations are counted by it."""
        self.forward_samples += samples

    def mean(self, name: str) -> Tensor:
        """Return the mean, computed in place: once for each name."""
        weight = self.weights[name]
        return self.vectors[name].div_(weight) if weight else self.vectors[name]
