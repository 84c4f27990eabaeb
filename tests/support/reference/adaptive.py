"""References of the server steps that adapt: Reddi et al. 2021, Algorithm 2, as it is printed."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from support.reference.base import FedAvg, Options, Vectors
from support.reference.model import Vector


class FedAdam(FedAvg):
    """m = b1 m + (1 - b1) D; v = b2 v + (1 - b2) D^2; w += eta m / (sqrt(v) + tau); v_0 = tau^2."""

    own: ClassVar[Options] = {"eta": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}

    def begin(self) -> None:
        self.m = self.zero
        self.v = self.zero + self.number("tau") ** 2

    def spread(self, d: Vector) -> Vector:
        return self.number("beta2") * self.v + (1 - self.number("beta2")) * d**2

    def commit(self, ends: Vectors) -> None:
        d = self.mean(ends) - self.w
        self.m = self.number("beta1") * self.m + (1 - self.number("beta1")) * d
        self.v = self.spread(d)
        self.w = self.w + self.number("eta") * self.m / (np.sqrt(self.v) + self.number("tau"))


class FedYogi(FedAdam):
    """v = v - (1 - b2) D^2 sign(v - D^2)."""

    def spread(self, d: Vector) -> Vector:
        return self.v - (1 - self.number("beta2")) * d**2 * np.sign(self.v - d**2)


class FedAdagrad(FedAdam):
    """v = v + D^2."""

    own: ClassVar[Options] = {"eta": 0.1, "beta1": 0.0, "tau": 1e-3}

    def spread(self, d: Vector) -> Vector:
        return self.v + d**2
