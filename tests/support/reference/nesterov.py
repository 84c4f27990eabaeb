"""FedNAG, FastSlowMo and pFedMo: x and y travel, y_new = x - lr g(x), x = y_new + gamma (y_new - y)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from support.reference.base import Direction, FedAvg, Options, Vectors
from support.reference.model import Data, Vector, log_softmax, softmax


class FedNag(FedAvg):
    """x = mean x_i, y = mean y_i."""

    own: ClassVar[Options] = {"gamma": 0.5}
    training: ClassVar[dict[str, float]] = {"lr": 0.01}

    def begin(self) -> None:
        self.y = self.w.copy()
        self.ys: dict[str, Vector] = {}  # ends of y

    def accelerate(self, direction: Direction, x: Vector, y: Vector) -> tuple[Vector, Vector]:
        """K steps from (x, y)."""
        for _ in range(self.steps):
            new = x - self.lr * direction(x)
            x, y = new + self.number("gamma") * (new - y), new
        return x, y

    def start(self, client: str) -> tuple[Vector, Vector]:
        return self.w, self.y

    def local(self, client: str) -> Vector:
        def direction(x: Vector) -> Vector:
            return self.limited(self.gradient(client, x), x)

        x, self.ys[client] = self.accelerate(direction, *self.start(client))
        return x

    def commit(self, ends: Vectors) -> None:
        self.w, self.y = self.mean(ends), self.mean(self.ys)


class FastSlowMo(FedNag):
    """y_- = mean y_i; y_+ = mean x_i; x_+ = y_+ + gamma_a (y_+ - y_+ before); sent are x_+ and y_-.

    carry = buffer sends y_- with the same jump as x_+: the mean of the momentum buffers.
    """

    own: ClassVar[Options] = {"gamma": 0.5, "gamma_a": 0.5, "carry": "y"}

    def begin(self) -> None:
        super().begin()
        self.plus = self.w.copy()

    def commit(self, ends: Vectors) -> None:
        plus = self.mean(ends)
        jump = self.number("gamma_a") * (plus - self.plus)
        self.w, self.plus, self.y = plus + jump, plus, self.mean(self.ys)
        if self.word("carry") == "buffer":
            self.y = self.y + jump


class PFedMo(FedNag):
    """Personal starts between the mean and a model of public data, by a score s_i of each client.

    y_i+ = (1 - a) yb + a y_r, x_i+ = (1 - a) xb + a x_r + term, a = pi s_i, s_i = 1 - l_i / largest l_i.
    """

    own: ClassVar[Options] = {
        "gamma": 0.5,
        "pi": 1.0,
        "eq12": "interp",
        "score_set": "heldout",
        "score_batch": 64.0,
    }

    def begin(self) -> None:
        super().begin()
        self.x_r, self.y_r = self.w, self.w
        self.starts = {client: (self.w, self.w) for client in self.clients}
        self.largest: dict[str, float] = {}

    def start(self, client: str) -> tuple[Vector, Vector]:
        return self.starts[client]

    def learn(self, public: Data) -> None:
        """K steps of the representation model, which goes on from round to round."""

        def direction(x: Vector) -> Vector:
            return self.net.gradient(x, public) + self.run.training.weight_decay * x

        self.x_r, self.y_r = self.accelerate(direction, self.x_r, self.y_r)

    def score(self, client: str, end: Vector, scored: Data) -> float:
        """Cross entropy of the client's model with the representation model's opinion."""
        p = softmax(self.net.logits(self.x_r, scored.x))
        q = log_softmax(self.net.logits(end, scored.x))
        loss = float(-(p * q).sum(1).mean())
        self.largest[client] = max(self.largest.get(client, loss), loss)
        return 1 - loss / self.largest[client] if self.largest[client] else 0.0

    def commit(self, ends: Vectors) -> None:
        assert self.run.public is not None
        assert self.run.score is not None
        assert self.number("score_batch") == 0
        self.learn(self.run.public)
        x_mean, y_mean = self.mean(ends), self.mean(self.ys)
        for client, end in ends.items():
            a = self.number("pi") * self.score(client, end, self.run.score)
            y = (1 - a) * y_mean + a * self.y_r
            sign = {"interp": 0, "printed": 1, "flipped": -1}[self.word("eq12")]
            self.starts[client] = ((1 - a) * x_mean + a * self.x_r + sign * (y_mean - y), y)
        self.w = np.asarray(self.mean({client: x for client, (x, _) in self.starts.items()}))
