"""FedProx, FedTrip and FedDyn: pulls towards the received model, and from or to an own past."""

from __future__ import annotations

from typing import ClassVar

from support.reference.base import Direction, FedAvg, Options, Vectors
from support.reference.model import Vector


class FedProx(FedAvg):
    """g + mu (x - w)."""

    own: ClassVar[Options] = {"mu": 0.1}

    def direction(self, client: str) -> Direction:
        received, mu = self.w, self.number("mu")
        return lambda x: self.gradient(client, x) + mu * (x - received)


class FedTrip(FedAvg):
    """g + mu ((x - w) - xi (x - own model of the last participation)), xi = 1 / rounds since then.

    A round multiplies that model's distance by about mu xi lr K / (1 - momentum): xi is so small that this
    is at most push_limit.
    """

    own: ClassVar[Options] = {
        "mu": 0.4,
        "mu_per": "step",
        "xi_mode": "inverse",
        "xi_value": 1.0,
        "first": "none",
        "push_limit": 1.0,
    }
    training: ClassVar[dict[str, float]] = {"lr": 0.01, "momentum": 0.9}

    def begin(self) -> None:
        self.history: dict[str, tuple[int, Vector]] = {}
        if self.word("first") == "initial":
            self.history = {client: (0, self.w) for client in self.clients}

    def direction(self, client: str) -> Direction:
        received, before = self.w, self.history.get(client)
        mu = self.number("mu") / (self.steps if self.word("mu_per") == "epoch" else 1)  # batches are full
        if before is None:
            return lambda x: self.gradient(client, x) + mu * (x - received)
        last, past = before
        xi = self.number("xi_value") if self.word("xi_mode") == "const" else 1 / (self.round - last)
        if limit := self.number("push_limit"):
            xi = min(xi, limit * (1 - self.run.training.momentum) / (mu * self.lr * self.steps))
        return lambda x: self.gradient(client, x) + mu * ((x - received) - xi * (x - past))

    def commit(self, ends: Vectors) -> None:
        super().commit(ends)
        self.history |= {client: (self.round, end) for client, end in ends.items()}


class FedDyn(FedAvg):
    """g - h_i + alpha (x - w); h_i -= alpha (x+ - w); h -= alpha/N sum (x_i - w); w = mean x_i - h/alpha."""

    own: ClassVar[Options] = {"alpha": 0.1}
    uniform = True

    def begin(self) -> None:
        self.h_of = {client: self.zero for client in self.clients}
        self.h = self.zero

    def direction(self, client: str) -> Direction:
        received, alpha, h = self.w, self.number("alpha"), self.h_of[client]
        return lambda x: self.gradient(client, x) - h + alpha * (x - received)

    def commit(self, ends: Vectors) -> None:
        alpha = self.number("alpha")
        for client, end in ends.items():
            self.h_of[client] = self.h_of[client] - alpha * (end - self.w)
            self.h = self.h - alpha / len(self.clients) * (end - self.w)
        self.w = self.mean(ends) - self.h / alpha
