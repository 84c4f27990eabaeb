"""SlowMo, FedMom, FedADC, DOMO and FedExP: the server steps on its own from the clients' ends."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from support.reference.base import Direction, FedAvg, Options, Vectors
from support.reference.model import Vector


class SlowMo(FedAvg):
    """u = beta u + (w - mean x_i)/lr; w -= a lr u."""

    own: ClassVar[Options] = {"slow_lr": 1.0, "beta": 0.5}

    def begin(self) -> None:
        self.u = self.zero

    def commit(self, ends: Vectors) -> None:
        self.u = self.number("beta") * self.u + (self.w - self.mean(ends)) / self.lr
        self.w = self.w - self.number("slow_lr") * self.lr * self.u


class FedMom(FedAvg):
    """v+ = w - eta sum n_i/n (w - x_i), n of ALL clients; w = v+ + beta (v+ - v)."""

    own: ClassVar[Options] = {"eta": "none", "beta": 0.9}

    def begin(self) -> None:
        self.v = self.w.copy()

    def commit(self, ends: Vectors) -> None:
        chosen = self.word("eta")
        eta = len(self.clients) / len(ends) if chosen == "none" else float(chosen)
        everything = sum(self.samples(client) for client in self.clients)
        moved = [self.samples(client) / everything * (self.w - end) for client, end in ends.items()]
        v = self.w - eta * np.sum(moved, axis=0)
        self.w, self.v = v + self.number("beta") * (v - self.v), v


class FedAdc(FedAvg):
    """g + mbar, mbar = beta_l m/K; m = mean (w - x_i)/lr + (beta_g - beta_l) m; w -= a lr m."""

    own: ClassVar[Options] = {"beta_g": 0.9, "beta_l": 0.9, "slow_lr": 1.0, "variant": "heavy"}

    def begin(self) -> None:
        self.m = self.zero

    def direction(self, client: str) -> Direction:
        share = self.number("beta_l") * self.m / self.steps
        ahead = self.lr * share if self.word("variant") == "nesterov" else self.zero
        return lambda x: self.gradient(client, x - ahead) + share

    def commit(self, ends: Vectors) -> None:
        kept = (self.number("beta_g") - self.number("beta_l")) * self.m
        self.m = (self.w - self.mean(ends)) / self.lr + kept
        self.w = self.w - self.number("slow_lr") * self.lr * self.m


class Domo(FedAvg):
    """m = mu_l m + g; x -= lr m; m_s = mu_s m_s + mean sum_k m / K; w -= a lr K m_s; fused with m_s.

    pre: the clients start at w - lr beta K m_s; intra: each step is x -= lr (m + beta m_s).
    """

    own: ClassVar[Options] = {"mu_l": 0.5, "mu_s": 0.9, "slow_lr": 1.0, "beta": 0.9, "fusion": "pre"}

    def begin(self) -> None:
        self.m_s = self.zero
        self.sums: dict[str, Vector] = {}  # sum_k m by client

    def local(self, client: str) -> Vector:
        fused = {self.word("fusion"): self.number("beta") * self.m_s}
        x = self.w - self.lr * self.steps * fused.get("pre", self.zero)
        m = self.sums[client] = self.zero
        for _ in range(self.steps):
            m = self.number("mu_l") * m + self.limited(self.gradient(client, x), x)
            x = x - self.lr * (m + fused.get("intra", self.zero))
            self.sums[client] = self.sums[client] + m
        return x

    def commit(self, ends: Vectors) -> None:
        fresh = self.mean({client: self.sums[client] / self.steps for client in ends})
        self.m_s = self.number("mu_s") * self.m_s + fresh
        self.w = self.w - self.number("slow_lr") * self.lr * self.steps * self.m_s


class FedExp(FedAvg):
    """w += max(1, mean ||D_i||^2 / (2 (||mean D_i||^2 + eps))) mean D_i; eps decays per round."""

    own: ClassVar[Options] = {"eps": 1e-3, "eps_decay": 1.0, "result": "last"}

    def begin(self) -> None:
        self.before = self.w

    def commit(self, ends: Vectors) -> None:
        moved = {client: end - self.w for client, end in ends.items()}
        mean, lengths = self.mean(moved), {client: float(d @ d) for client, d in moved.items()}
        eps = self.number("eps") * self.number("eps_decay") ** (self.round - 1)
        self.step = max(1.0, self.mean_number(lengths) / (2 * (float(mean @ mean) + eps)))
        self.before, self.w = self.w, self.w + self.step * mean

    def result(self) -> Vector:
        return (self.before + self.w) / 2 if self.word("result") == "average" else self.w
