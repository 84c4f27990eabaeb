"""SCAFFOLD, FedDC, Mime and MimeLite: local steps corrected by what all clients' gradients are."""

from __future__ import annotations

from typing import ClassVar

from support.reference.base import Direction, FedAvg, Options, Vectors
from support.reference.model import Vector


class Scaffold(FedAvg):
    """g - c_i + c; c_i+ = c_i - c + (w - x+)/(K lr); w += eta_g mean D_i; c += sum (c_i+ - c_i) / N."""

    own: ClassVar[Options] = {"eta_g": 1.0}
    uniform = True

    def begin(self) -> None:
        self.c_of = {client: self.zero for client in self.clients}
        self.c = self.zero

    def direction(self, client: str) -> Direction:
        correction = self.c - self.c_of[client]
        return lambda x: self.gradient(client, x) + correction

    def steps_that_count(self) -> float:
        """K; with momentum m the steps that K make: (K - m (1 - m^K)/(1 - m)) / (1 - m)."""
        m, steps = self.run.training.momentum, self.steps
        return (steps - m * (1 - m**steps) / (1 - m)) / (1 - m)

    def commit(self, ends: Vectors) -> None:
        scale, c = self.steps_that_count() * self.lr, self.c
        for client, end in ends.items():
            increment = (self.w - end) / scale - c
            self.c_of[client] = self.c_of[client] + increment
            self.c = self.c + increment / len(self.clients)
        self.w = self.w + self.number("eta_g") * (self.mean(ends) - self.w)


class FedDc(Scaffold):
    """Beside it alpha (x - (w - h_i)); h_i += x+ - w; w = mean x_i + the mean of h_i over all N."""

    own: ClassVar[Options] = {"alpha": 0.1, "eta_g": 1.0}  # eta_g is no option: SCAFFOLD's step, and then h

    def begin(self) -> None:
        super().begin()
        self.h_of = {client: self.zero for client in self.clients}

    def direction(self, client: str) -> Direction:
        scaffold, alpha, centre = super().direction(client), self.number("alpha"), self.w - self.h_of[client]
        return lambda x: scaffold(x) + alpha * (x - centre)

    def commit(self, ends: Vectors) -> None:
        for client, end in ends.items():
            self.h_of[client] = self.h_of[client] + end - self.w
        super().commit(ends)
        self.w = self.w + sum(self.h_of.values()) / len(self.clients)


class MimeLite(FedAvg):
    """(1 - b) g + b m with m fixed in the round; m = (1 - b) Gbar + b m, Gbar the mean full gradient at w."""

    own: ClassVar[Options] = {"b": 0.9}
    uniform = True

    def begin(self) -> None:
        self.m = self.zero
        self.mean_gradient: Vector | None = None  # of the round before

    def corrected(self, client: str) -> Direction:
        return lambda x: self.gradient(client, x)

    def direction(self, client: str) -> Direction:
        b, m, corrected = self.number("b"), self.m, self.corrected(client)
        return lambda x: (1 - b) * corrected(x) + b * m

    def commit(self, ends: Vectors) -> None:
        b = self.number("b")
        self.mean_gradient = self.mean({client: self.gradient(client, self.w) for client in ends})
        self.m = (1 - b) * self.mean_gradient + b * self.m
        super().commit(ends)


class Mime(MimeLite):
    """g' = g(x) - g(w) + c on the same batch, c = Gbar of the round before; g' = g in round 1."""

    def corrected(self, client: str) -> Direction:
        if self.mean_gradient is None:
            return super().corrected(client)
        correction = self.mean_gradient - self.gradient(client, self.w)
        return lambda x: self.gradient(client, x) + correction
