"""MOON, FedNTD and FedTR: a frozen model or centroids steer the local features and logits."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from support.reference.base import Direction, FedAvg, Options, Vectors
from support.reference.model import Vector
from support.reference.terms import contrastive, not_true, to_centroids


class Moon(FedAvg):
    """Features near the received model's and far from those of the own model of the last participation."""

    own: ClassVar[Options] = {"mu": 1.0, "temperature": 0.5}

    def begin(self) -> None:
        self.past: dict[str, Vector] = {}

    def direction(self, client: str) -> Direction:
        data = self.clients[client]
        received, past = (self.net.features(w, data.x) for w in (self.w, self.past.get(client, self.w)))
        term = contrastive(received, past, self.number("mu"), self.number("temperature"))
        return lambda x: self.net.gradient(x, data, term)

    def commit(self, ends: Vectors) -> None:
        super().commit(ends)
        self.past |= ends


class FedNtd(FedAvg):
    """The received model's opinion on the classes that are not the true one is kept."""

    own: ClassVar[Options] = {"beta": 1.0, "temperature": 1.0}

    def direction(self, client: str) -> Direction:
        data = self.clients[client]
        received = self.net.logits(self.w, data.x)
        term = not_true(data.y, received, self.number("beta"), self.number("temperature"))
        return lambda x: self.net.gradient(x, data, term)


class FedTr(FedAvg):
    """Features near class centroids, a drift d_i per client: g + alpha_g (d_i + x - w); sent is x + d_i.

    additive: d_i += x+ - w at the round's end; descent: d_i -= eta_g alpha_g (d_i + x - w) after each step.
    A private head stays at its client (with its part of d_i), the model's own head is the initial one.
    """

    own: ClassVar[Options] = {
        "lam_r": 1.0,
        "alpha_g": 0.1,
        "drift": "additive",
        "eta_g": 0.001,
        "head": "shared",
    }
    training: ClassVar[dict[str, float]] = {"lr": 0.05}

    def begin(self) -> None:
        if self.word("drift") == "descent" and "alpha_g" not in self.run.options:
            self.options["alpha_g"] = 2.0
        self.drift = {client: self.zero for client in self.clients}
        self.heads = {client: self.w[self.net.body :] for client in self.clients}
        self.centroids = np.zeros((self.net.classes, self.net.hidden))
        self.known = np.zeros(self.net.classes)
        self.ends: dict[str, Vector] = {}  # without the drift

    def local(self, client: str) -> Vector:
        data, alpha = self.clients[client], self.number("alpha_g")
        anchor = self.w.copy()
        if self.word("head") == "private":
            anchor[self.net.body :] = self.heads[client]
        term = to_centroids(data.y, self.centroids, self.known, self.number("lam_r"))
        x, buffer, drift = anchor, self.zero, self.drift[client]
        for _ in range(self.steps):
            direction = self.net.gradient(x, data, term) + alpha * (drift + x - anchor)
            buffer = self.run.training.momentum * buffer + self.limited(direction, x)
            x = x - self.lr * buffer
            if self.word("drift") == "descent":
                drift = drift - self.number("eta_g") * alpha * (drift + x - anchor)
        if self.word("drift") == "additive":
            drift = drift + x - anchor
        self.ends[client], self.drift[client], self.heads[client] = x, drift, x[self.net.body :]
        return x + drift

    def commit(self, ends: Vectors) -> None:
        head = self.w[self.net.body :].copy()
        super().commit(ends)
        if self.word("head") == "private":
            self.w[self.net.body :] = head
        sums, counts = np.zeros_like(self.centroids), np.zeros(self.net.classes)
        for client in ends:
            data = self.clients[client]
            np.add.at(sums, data.y, self.net.features(self.ends[client], data.x))
            counts += np.bincount(data.y, minlength=self.net.classes)
        seen = counts > 0
        self.centroids[seen] = sums[seen] / counts[seen, None]
        self.known[seen] = 1.0
