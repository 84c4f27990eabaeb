"""What every reference shares, and FedAvg: the run, the local descent, the means over clients.

Written from the methods' mathematics alone; it shares no line with the product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from support.reference.model import Data, Net, Vector

Direction = Callable[[Vector], Vector]
Vectors = Mapping[str, Vector]  # by client id
Options = dict[str, float | str]


@dataclass(frozen=True)
class Training:
    """The run's training options."""

    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    lr_decay: float = 1.0
    steps: int = 1


@dataclass(frozen=True)
class Run:
    """What a reference is given: model, data of all clients, training, options of the method as text."""

    net: Net
    clients: Mapping[str, Data]
    training: Training
    options: Mapping[str, str] = field(default_factory=dict)
    public: Data | None = None
    score: Data | None = None


class FedAvg:
    """Local SGD from w, then the mean of the ends; the others say what is different."""

    own: ClassVar[Options] = {}  # the method's options with their defaults
    training: ClassVar[dict[str, float]] = {}  # its own defaults of training options
    uniform: ClassVar[bool] = False
    clip: ClassVar[float] = 0.0

    def __init__(self, run: Run, start: Vector) -> None:
        defaults: Options = {"weighting": "table", "clip": self.clip, **self.own}
        assert run.options.keys() <= defaults.keys(), run.options
        words = {name for name, value in defaults.items() if isinstance(value, str)}
        given = {name: text if name in words else float(text) for name, text in run.options.items()}
        self.options: Options = {**defaults, **given}
        self.run, self.net, self.clients = run, run.net, run.clients
        self.round = 0
        self.w = start.copy()
        self.begin()

    # ---------------------------------------------------------------- what the methods change

    def begin(self) -> None:
        """Make the state before round 1."""

    def direction(self, client: str) -> Direction:
        """Return the local direction at x, before weight decay, clip and momentum."""
        return lambda x: self.gradient(client, x)

    def local(self, client: str) -> Vector:
        """Return where the client's round ends."""
        return self.descend(self.direction(client), self.w)

    def commit(self, ends: Vectors) -> None:
        self.w = self.mean(ends)

    def result(self) -> Vector:
        return self.w

    # ---------------------------------------------------------------- what they use

    def play(self, cohort: tuple[str, ...]) -> None:
        """One round."""
        self.round += 1
        self.commit({client: self.local(client) for client in cohort})

    def number(self, name: str) -> float:
        return float(self.options[name])

    def word(self, name: str) -> str:
        return str(self.options[name])

    @property
    def lr(self) -> float:
        return self.run.training.lr * self.run.training.lr_decay ** (self.round - 1)

    @property
    def steps(self) -> int:
        return self.run.training.steps

    def gradient(self, client: str, x: Vector) -> Vector:
        return self.net.gradient(x, self.clients[client])

    def limited(self, direction: Vector, x: Vector) -> Vector:
        """Add weight decay, then clip."""
        direction = direction + self.run.training.weight_decay * x
        length, longest = float(np.linalg.norm(direction)), self.number("clip")
        return direction * (longest / length) if longest and length > longest else direction

    def descend(self, direction: Direction, start: Vector) -> Vector:
        """Heavy ball with a buffer that is zero at the start."""
        x, buffer = start.copy(), np.zeros_like(start)
        for _ in range(self.steps):
            buffer = self.run.training.momentum * buffer + self.limited(direction(x), x)
            x = x - self.lr * buffer
        return x

    def weights(self, clients: Mapping[str, object]) -> dict[str, float]:
        """Return each client's share in a mean over them."""
        chosen = self.word("weighting")
        equal = self.uniform if chosen == "table" else chosen == "uniform"
        raw = {client: 1.0 if equal else float(len(self.clients[client])) for client in clients}
        return {client: weight / sum(raw.values()) for client, weight in raw.items()}

    def mean(self, vectors: Vectors) -> Vector:
        shares = self.weights(vectors)
        return np.asarray(sum(shares[client] * vector for client, vector in vectors.items()))

    def mean_number(self, numbers: Mapping[str, float]) -> float:
        shares = self.weights(numbers)
        return sum(shares[client] * number for client, number in numbers.items())

    def samples(self, client: str) -> float:
        return float(len(self.clients[client]))

    @property
    def zero(self) -> Vector:
        return np.zeros_like(self.w)
