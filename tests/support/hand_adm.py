"""FedADM by hand in plain NumPy (float64): clients with a history, anchor, search for tau, drawn times."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from edgeflock.common import seeds
from edgeflock.methods.kit.order import Order
from support.federation import SEED, WIDTHS, Federation
from support.hand_mlp import Vector, forward, gradient
from support.training import Sample

Batch = tuple[int, int]  # round and step of the order


@dataclass
class Memory:
    """One client: None where it has never taken part."""

    mu: float
    last: Vector | None = None
    batch: Batch | None = None
    uses: int = 0


@dataclass
class Hand:
    """The whole run; `step` plays a round and fills `seen` with what FedADM logs."""

    run: Federation  # for data, sizes and plan alone
    mu0: float = 0.1
    alpha: float = 0.01
    xi: float = 0.1
    phi: float = 0.025
    tau_max: int = 100
    fixed: int = 0
    bound: str = "printed"
    restart: str = "latest"
    uniform: bool = False
    equal: bool = False  # batches
    budget: float = 60.0
    seen: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.w = self.best = self.run.model
        self.number, self.tau, self.used, self.over = 0, self.fixed or 1, 0.0, False
        self.clients = [Memory(self.mu0) for _ in self.run.sizes]
        self.known: dict[str, float] = {}
        self.mu_first: float | None = None
        self.ratios: dict[str, float] = {}  # B and B_g of the round before

    # The clients

    def sample(self, index: int, batch: Batch) -> Sample:
        size = self.run.sizes[index]
        rows = Order(size, self.run.plan.batch_size, SEED, 0 if self.equal else index).rows(*batch)
        data = self.run.data[index]
        return data.x.flatten(1).double().numpy()[rows], data.y.numpy()[rows]

    def first(self, index: int, tau: int) -> Batch:
        """The last batch of the round before; three times at most while tau is 1."""
        me = self.clients[index]
        again = me.batch is not None and not self.fixed and (tau > 1 or me.uses < 3)
        me.uses = me.uses + 1 if again else 1
        return me.batch if again and me.batch is not None else (self.number, 0)

    def local(self, index: int) -> dict[str, object]:
        me, anchor, lr = self.clients[index], self.best, self.run.lr(self.number)
        if me.last is not None:
            me.mu = max(0.0, me.mu + self.alpha * (math.dist(me.last, anchor) - self.xi))
        batches = [self.first(index, self.tau), *((self.number, step) for step in range(1, self.tau))]
        data = self.sample(index, batches[0])
        sent: dict[str, object] = {"f": loss(self.w, data), "f_best": loss(anchor, data), "mu": me.mu}
        sent["gradient"] = gradient(self.w, WIDTHS, *data)
        if me.last is not None:
            sent |= quotients(me.last, self.w, data)
        x = anchor if self.restart == "best" else self.w
        for batch in batches:
            x = x - lr * (gradient(x, WIDTHS, *self.sample(index, batch)) + me.mu * (x - anchor))
        me.last, me.batch = x, batches[-1]
        if self.tau > 1:
            me.uses = 1
        return sent | {"end": x}

    # The server

    def step(self, cohort: Collection[int], lost: Collection[int] = ()) -> None:
        self.number += 1
        kept = {index: Memory(**vars(self.clients[index])) for index in lost}
        sent = {index: self.local(index) for index in cohort}
        for index, memory in kept.items():
            self.clients[index] = memory
        sent = {index: found for index, found in sent.items() if index not in lost}
        shares = {index: 1.0 if self.uniform else self.run.sizes[index] for index in sent}

        def mean(name: str, values: Mapping[int, object] | None = None) -> Vector:
            found = {i: s[name] for i, s in sent.items() if name in s} if values is None else values
            total: Vector = sum(shares[i] * np.asarray(value) for i, value in found.items())  # type: ignore[assignment]
            return total / sum(shares[i] for i in found)

        f, f_best, mu = float(mean("f")), float(mean("f_best")), float(mean("mu"))
        before, self.w = self.w, mean("end")
        if f < f_best:
            self.best = before
        self.mu_first = mu if self.mu_first is None else self.mu_first
        at_best = "f" if f < f_best else "f_best"
        self.seen = {"F": f, "F_best": min(f, f_best), "mu_bar": mu, "tau": self.tau}
        self.unlike("B_k", "H_before", [np.asarray(s[at_best]) for s in sent.values()], min(f, f_best))
        if not self.fixed:
            g = mean("gradient")
            slopes = [np.asarray(s["gradient"]) for s in sent.values()]
            self.unlike("B_g", "H_g", slopes, float(np.linalg.norm(g)))
            apart = {i: np.linalg.norm(np.asarray(s["gradient"]) - g) for i, s in sent.items()}
            self.known["delta"] = float(mean("", apart))
            if any("rho" in s for s in sent.values()):
                self.known |= {"rho": float(mean("rho")), "beta": float(mean("beta"))}
            self.search({i: float(s["mu"]) for i, s in sent.items()}, shares)  # type: ignore[arg-type]

    def unlike(self, ratio: str, rest: str, each: list[Vector], whole: float) -> None:
        """Eqs. 10 and 11 of losses or gradients, the latter with the B of the round before."""
        squares = sum(float(np.linalg.norm(one)) ** 2 for one in each)
        if ratio in self.ratios:
            left = squares / len(each) - self.ratios[ratio] ** 2 * whole**2
            self.seen[rest] = math.sqrt(max(0.0, left))
        self.seen[ratio] = self.ratios[ratio] = math.sqrt(squares / (len(each) * whole**2))

    def search(self, mus: Mapping[int, float], shares: Mapping[int, float]) -> None:
        generator = seeds.numpy_generator(SEED, "clock", self.number)
        b = max(1e-10, generator.normal(0.1316, 0.0539))
        c = float(np.mean([max(1e-10, generator.normal(0.0130, 0.0069)) for _ in range(self.tau)]))
        self.used += c * self.tau + b
        self.seen |= self.known
        if "rho" in self.known:
            assert self.mu_first is not None
            weights = [shares[i] for i in mus]
            bounds = {
                t: bound_of(
                    self.bound,
                    t,
                    t * (self.budget - b - c) / (c * t + b),
                    **self.known,
                    mus=list(mus.values()),
                    weights=weights,
                    mu_first=self.mu_first,
                    eta=self.run.lr(self.number),
                    phi=self.phi,
                    xi=self.xi,
                )
                for t in range(1, min(10 * self.tau, self.tau_max) + 1)
            }
            self.tau = min(bounds, key=bounds.__getitem__)
            self.seen["G"] = bounds[self.tau]
        self.chosen = self.tau
        if self.used + c * self.tau + b + c + b > self.budget:
            self.over = True
            self.tau = min(self.tau, max(1, math.floor((self.budget - self.used - 2 * b - c) / c)))


def loss(w: Vector, data: Sample) -> float:
    """Return the mean cross entropy."""
    x, y = data
    logits = forward(w, WIDTHS, x)[1]
    logits = logits - logits.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]))


def quotients(last: Vector, w: Vector, data: Sample) -> dict[str, float]:
    apart = math.dist(last, w)
    if apart <= 1e-10:
        return {"rho": 0.0, "beta": 1e-5}
    turn = math.dist(gradient(last, WIDTHS, *data), gradient(w, WIDTHS, *data))
    return {"rho": abs(loss(last, data) - loss(w, data)) / apart, "beta": max(1e-5, turn / apart)}


def bound_of(
    bound: str,
    t: int,
    total: float,
    *,
    rho: float,
    beta: float,
    delta: float,
    mus: list[float],
    weights: list[float],
    mu_first: float,
    eta: float,
    phi: float,
    xi: float,
) -> float:
    """Return G(t) as METHODS 2.3 prints it, term by term."""
    mu = sum(w * m for w, m in zip(weights, mus, strict=True)) / sum(weights)
    h = 0.0
    for weight, own in zip(weights, mus, strict=True):
        big = max(beta + own, 1e-5)
        h += weight / sum(weights) * (beta + mu) / big * (((1 + eta * big) ** t - 1) / big - eta * t)
    h = max(0.0, delta * h)
    if bound == "wang":
        first = 1 / (2 * eta * phi * total)
        return first + math.sqrt(first**2 + rho * h / (eta * phi * t)) + rho * h
    if bound == "printed":
        inside = 2 * total * rho * h + 2 * t * mu * xi * h + t * (mu - mu_first)
        root = math.sqrt(max(0.0, inside / (eta * phi * total**2)))
        return 1 / (4 * eta * phi * total) + root + (rho + mu * xi) * rho * h
    inside = 2 * total * rho * h + 2 * t * mu * xi * h + t * xi**2 * (mu - mu_first)
    square = 1 / (4 * eta**2 * phi**2 * total**2) + inside / (2 * eta * phi * total * t)
    return 1 / (2 * eta * phi * total) + math.sqrt(max(0.0, square)) + (rho + mu * xi) * h
