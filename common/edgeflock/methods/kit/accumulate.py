"""Accumulators of a round: unnormalised sums (vectors in float32, scalars and weights in float64)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    """Named sums over the counted updates, divided once at the commit by the sum of their weights."""

    def __init__(self, layouts: Mapping[str, Layout]) -> None:
        self.vectors = {name: torch.zeros(layout.elements) for name, layout in layouts.items()}
        self.weights = dict.fromkeys(layouts, 0.0)
        self.scalars: dict[str, float] = {}
        self.state = State()  # the server's state, which the round started from: read only
        self.round = Round(0, 0.0, (), {})  # the round that is folded, with what S0 has prepared
        self.updates = 0  # |S|: folded updates
        self.operations = 0  # of these sums: a product and a sum for every number
        self.forward_samples = 0  # that passed through the model while updates were folded

    def reset(self) -> None:
        for vector in self.vectors.values():
            vector.zero_()
        self.weights = dict.fromkeys(self.weights, 0.0)
        self.scalars.clear()
        self.updates = self.operations = self.forward_samples = 0

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
