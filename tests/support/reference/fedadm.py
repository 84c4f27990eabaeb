"""FedADM: a proximal weight that each client adapts, an anchor that moves when F falls, a search for tau.

Per round: mu_i = max(0, mu_i + alpha (||w_i(last) - w_best|| - xi)); tau steps of g + mu_i (x - w_best);
w = mean w_i; then w_best = the w received, if F was smaller there. The result is known one evaluation later.
The times c (per step) and b (per round) cannot be known here: with an adaptive tau the rounds' taus are
given, and `next_tau` says what the search makes of given times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from support.reference.base import Direction, FedAvg, Options, Vectors
from support.reference.model import Vector


@dataclass
class Estimates:
    """What the search for tau reads: rho, beta, delta, the clients' mu with their shares."""

    rho: float
    beta: float
    delta: float
    mus: dict[str, float]
    shares: dict[str, float]
    mu_first: float  # mean mu of round 1
    lr: float
    phi: float
    xi: float

    @property
    def mu(self) -> float:
        return sum(share * self.mus[client] for client, share in self.shares.items())

    def h(self, t: int) -> float:
        """The distance that t local steps bring: 0 without divergence, infinite if the power overflows."""
        if self.delta == 0:
            return 0.0
        total = 0.0
        for client, share in self.shares.items():
            big = max(self.beta + self.mus[client], 1e-5)
            try:
                power = (1 + self.lr * big) ** t
            except OverflowError:
                return math.inf
            total += share * (self.beta + self.mu) / big * ((power - 1) / big - self.lr * t)
        return max(0.0, self.delta * total)

    def printed(self, t: int, steps: float) -> float:
        h, eta_phi = self.h(t), self.lr * self.phi
        inside = 2 * steps * self.rho * h + 2 * t * self.mu * self.xi * h + t * (self.mu - self.mu_first)
        root = math.sqrt(max(0.0, inside / (eta_phi * steps**2)))
        return 1 / (4 * eta_phi * steps) + root + (self.rho + self.mu * self.xi) * self.rho * h

    def corrected(self, t: int, steps: float) -> float:
        h, eta_phi = self.h(t), self.lr * self.phi
        inside = 2 * steps * self.rho * h + 2 * t * self.mu * self.xi * h
        inside += t * self.xi**2 * (self.mu - self.mu_first)
        square = 1 / (4 * eta_phi**2 * steps**2) + inside / (2 * eta_phi * steps * t)
        return 1 / (2 * eta_phi * steps) + math.sqrt(max(0.0, square)) + (self.rho + self.mu * self.xi) * h

    def best(self, bound: str, longest: int, c: float, b: float, budget: float) -> int:
        """Return argmin G over 1..longest; 1 if none is finite."""
        values = {}
        for t in range(1, longest + 1):
            if math.isfinite(self.h(t)):
                steps = t * (budget - b - c) / (c * t + b)
                values[t] = self.printed(t, steps) if bound == "printed" else self.corrected(t, steps)
        return min(values, key=values.__getitem__, default=1)


@dataclass
class Memory:
    """What a client keeps: its mu, the end of its last round."""

    mu: float
    last: Vector | None = field(default=None)


class FedAdm(FedAvg):
    """With an adaptive tau `taus` is set before the first round, and `found` holds the last estimates."""

    own: ClassVar[Options] = {
        "mu0": 0.1,
        "alpha": 0.01,
        "xi": 0.1,
        "tau": "adaptive",
        "tau_max": 100.0,
        "phi": 0.025,
        "bound": "printed",
        "restart": "latest",
        "result": "best",
    }
    training: ClassVar[dict[str, float]] = {"lr": 0.01}
    found: Estimates | None = None

    def begin(self) -> None:
        self.best = self.w
        self.memories = {client: Memory(self.number("mu0")) for client in self.clients}
        kind, _, fixed = self.word("tau").partition(":")
        self.adaptive, self.fixed = kind == "adaptive", int(fixed or 1)
        self.taus: list[int] = []

    @property
    def steps(self) -> int:
        return self.taus[self.round - 1] if self.adaptive else self.fixed

    def start(self) -> Vector:
        return self.best if self.word("restart") == "best" else self.w

    def direction(self, client: str) -> Direction:
        anchor, mu = self.best, self.memories[client].mu
        return lambda x: self.gradient(client, x) + mu * (x - anchor)

    def local(self, client: str) -> Vector:
        memory = self.memories[client]
        if memory.last is not None:
            apart = float(np.linalg.norm(memory.last - self.best))
            memory.mu = max(0.0, memory.mu + self.number("alpha") * (apart - self.number("xi")))
        return self.descend(self.direction(client), self.start())

    def loss(self, w: Vector, clients: Sequence[str]) -> float:
        return self.mean_number({client: self.net.loss(w, self.clients[client]) for client in clients})

    def commit(self, ends: Vectors) -> None:
        if self.adaptive:
            self.found = self.estimate(tuple(ends))
        received, clients = self.w, tuple(ends)
        self.w = self.mean(ends)
        if self.loss(received, clients) < self.loss(self.best, clients):
            self.best = received
        for client, end in ends.items():
            self.memories[client].last = end

    def result(self) -> Vector:
        """The best of all, the last aggregate included: one evaluation by everybody after the last round."""
        everybody = tuple(self.clients)
        last_is_better = self.loss(self.w, everybody) < self.loss(self.best, everybody)
        return self.w if last_is_better or self.word("result") == "latest" else self.best

    # ---------------------------------------------------------------- the search for tau

    def smoothness(self, client: str) -> tuple[float, float]:
        """rho_i and beta_i: quotients between the end of the last local round and the w received."""
        last = self.memories[client].last
        apart = 0.0 if last is None else float(np.linalg.norm(last - self.w))
        if last is None or apart <= 1e-10:
            return 0.0, 1e-5
        data = self.clients[client]
        values = abs(self.net.loss(last, data) - self.net.loss(self.w, data))
        slopes = float(np.linalg.norm(self.gradient(client, last) - self.gradient(client, self.w)))
        return values / apart, max(slopes / apart, 1e-5)

    def estimate(self, clients: Sequence[str]) -> Estimates:
        smooth = {client: self.smoothness(client) for client in clients}
        gradients = {client: self.gradient(client, self.w) for client in clients}
        mean = self.mean(gradients)
        shares, mus = self.weights(gradients), {client: self.memories[client].mu for client in clients}
        if self.round == 1:
            self.mu_first = sum(shares[client] * mus[client] for client in clients)
        return Estimates(
            rho=self.mean_number({client: rho for client, (rho, _) in smooth.items()}),
            beta=self.mean_number({client: beta for client, (_, beta) in smooth.items()}),
            delta=self.mean_number({c: float(np.linalg.norm(g - mean)) for c, g in gradients.items()}),
            mus=mus,
            shares=shares,
            mu_first=self.mu_first,
            lr=self.lr,
            phi=self.number("phi"),
            xi=self.number("xi"),
        )

    def next_tau(self, c: float, b: float, used: float, budget: float) -> tuple[int, bool]:
        """Return the bound's tau, or what the budget leaves for a last round; and whether it is the last."""
        assert self.found is not None
        longest = int(min(10 * self.steps, self.number("tau_max")))
        tau = self.found.best(self.word("bound"), longest, c, b, budget)
        if used + c * tau + b + c + b > budget:
            return max(1, math.floor((budget - used - 2 * b - c) / c)), True
        return tau, False
