"""FedCM, MoFedSAM and FedMRUR: steps along a global direction, gradients taken where the loss is high."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from support.reference.base import Direction, FedAvg, Options, Vectors
from support.reference.model import Vector
from support.reference.terms import manifold


class FedCm(FedAvg):
    """alpha g + (1 - alpha) D; D = - mean D_i / (lr K); w += eta_g mean D_i."""

    own: ClassVar[Options] = {"cm_alpha": 0.1, "eta_g": 1.0}
    training: ClassVar[dict[str, float]] = {"lr": 0.1}
    uniform = True

    def begin(self) -> None:
        self.d = self.zero

    def local_gradient(self, client: str) -> Direction:
        return lambda x: self.gradient(client, x)

    def direction(self, client: str) -> Direction:
        alpha, gradient = self.number("cm_alpha"), self.local_gradient(client)
        return lambda x: alpha * gradient(x) + (1 - alpha) * self.d

    def together(self, moved: Vectors) -> Vector:
        return self.mean(moved)

    def commit(self, ends: Vectors) -> None:
        step = self.together({client: end - self.w for client, end in ends.items()})
        self.d = -step / (self.lr * self.steps)
        self.w = self.w + self.number("eta_g") * step


class MoFedSam(FedCm):
    """FedCM with g taken at x + rho g / ||g||, on the same batch."""

    own: ClassVar[Options] = {"cm_alpha": 0.1, "sam_rho": 0.1, "eta_g": 1.0}

    def local_gradient(self, client: str) -> Direction:
        plain, rho = super().local_gradient(client), self.number("sam_rho")
        return lambda x: plain(x + rho * _unit(plain(x)))


class FedMrur(MoFedSam):
    """MoFedSAM with a term that keeps the features near the received model's, and means of full length."""

    own: ClassVar[Options] = {
        "cm_alpha": 0.1,
        "sam_rho": 0.05,
        "reg_gamma": 0.005,
        "reg_sigma": 1e4,
        "reg_beta": 1.0,
        "eta_g": 1.0,
        "aggregate": "normalised",
    }
    training: ClassVar[dict[str, float]] = {"lr": 0.1, "lr_decay": 0.998, "weight_decay": 5e-4}
    clip = 10.0

    def gradient(self, client: str, x: Vector) -> Vector:
        data = self.clients[client]
        received = self.net.features(self.w, data.x)
        knobs = [self.number(f"reg_{name}") for name in ("gamma", "sigma", "beta")]
        return self.net.gradient(x, data, manifold(received, *knobs))

    def together(self, moved: Vectors) -> Vector:
        if self.word("aggregate") == "mean":
            return self.mean(moved)
        length = self.mean_number({client: float(np.linalg.norm(d)) for client, d in moved.items()})
        return length * _unit(self.mean(moved))


def _unit(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector
