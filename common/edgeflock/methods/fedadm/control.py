"""FedADM's search for tau: the bound G(t) from what was estimated, and what the budgets leave. Pure numbers.

Symbols as in METHODS 2.3: R, c, b of each resource; rho, beta, delta; mu_i, their mean mu, that of round 1.
`printed` is the paper's eq. 20/22, `corrected` what follows from its eq. 18; at mu = 0 the latter is the
bound of Wang et al. 2019 (arXiv:1804.05271), and h(t) is theirs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

LEAST = 1e-10  # seconds, joules, bytes: nothing is for free
LEAST_BETA = 1e-5
RESOLUTION = 1e-6  # of float32: vectors that differ by less than that of their length are equal
REACH = 10  # a search goes up to so many times the present tau


@dataclass(frozen=True)
class TauBudget:
    """One budget: its limit R, what is used of it, and what it last cost."""

    name: str
    limit: float
    used: float
    step: float  # c, of one local step; 0: it does not depend on tau
    round: float  # b, of a round beside its steps

    def shown(self, amount: float) -> str:
        return f"{amount:.6g} {'J' if self.name == 'energy' else 's'}"

    def rounds(self, t: Numbers) -> Numbers:
        """Return K(t), how often t steps fit into the whole budget beside the closing evaluation."""
        return (self.limit - self.round - self.step) / (self.step * t + self.round)

    def fits(self, tau: int) -> bool:
        """Whether a round of tau steps and one evaluation are left."""
        return self.used + self.step * tau + self.round + self.step + self.round <= self.limit

    def rest(self) -> int:
        """Return the steps of the last round, at least one."""
        left = (self.limit - self.used - 2 * self.round - self.step) / self.step
        return max(1, math.floor(left))


@dataclass(frozen=True)
class Estimates:
    """What the bound is made of."""

    rho: float
    beta: float
    delta: float
    mus: Sequence[tuple[float, float]]  # of each client: its weight, its mu_i
    mu_first: float
    eta: float
    phi: float
    xi: float

    @property
    def mu(self) -> float:
        return sum(weight * mu for weight, mu in self.mus) / sum(weight for weight, _ in self.mus)


def divergence(of: Estimates, t: Numbers) -> Numbers:
    """Return h(t), how far t local steps lead clients and centralised descent apart; infinite on overflow."""
    if of.delta == 0:
        return np.zeros_like(t)
    weights, mus = np.array(of.mus).T
    curvature = np.maximum(of.beta + mus, LEAST_BETA)[:, None]  # B_i
    with np.errstate(over="ignore"):
        grown = np.expm1(t * np.log1p(of.eta * curvature)) / curvature - of.eta * t
        mean = weights @ ((of.beta + of.mu) / curvature * grown) / weights.sum()
        return np.where(t == 1, 0.0, np.maximum(0.0, of.delta * mean))


def printed(of: Estimates, t: Numbers, total: Numbers) -> Numbers:
    """Return G of eq. 22 for tau = t and T = total."""
    h, scale = divergence(of, t), of.eta * of.phi
    inside = 2 * total * of.rho * h + 2 * t * of.mu * of.xi * h + t * (of.mu - of.mu_first)
    root = np.sqrt(np.maximum(0.0, inside) / (scale * total**2))
    return 1 / (4 * scale * total) + root + (of.rho + of.mu * of.xi) * of.rho * h


def corrected(of: Estimates, t: Numbers, total: Numbers) -> Numbers:
    """Return G as it follows from eq. 18."""
    h, scale = divergence(of, t), of.eta * of.phi
    inside = 2 * total * of.rho * h + 2 * t * of.mu * of.xi * h + t * of.xi**2 * (of.mu - of.mu_first)
    first = 1 / (2 * scale * total)
    root = np.sqrt(np.maximum(0.0, first**2 + inside / (2 * scale * total * t)))
    return first + root + (of.rho + of.mu * of.xi) * h


BOUNDS = {"printed": printed, "corrected": corrected}


def best_tau(of: Estimates, resources: Sequence[TauBudget], bound: str, longest: int) -> tuple[int, float]:
    """Return argmin G over 1..longest, and G there; tau 1 and an infinite G where no G is finite."""
    t = np.arange(1, longest + 1, dtype=np.float64)
    total = t * np.min([resource.rounds(t) for resource in resources], axis=0)
    with np.errstate(all="ignore"):
        values = np.where(total > 0, BOUNDS[bound](of, t, total), np.inf)
    values = np.where(np.isfinite(values), values, np.inf)
    place = int(np.argmin(values))
    return place + 1, float(values[place])


def granted(tau: int, resources: Sequence[TauBudget]) -> tuple[int, bool]:
    """Return the tau of the next round, and whether it is the last one that the budgets allow."""
    short = [resource for resource in resources if resource.step and not resource.fits(tau)]
    return min([tau, *(resource.rest() for resource in short)]), bool(short)


# What a round has cost, kept as scalars of the state: `used`, `step` (c) and `round` (b) of each resource.

_SHARE = {
    "time": "train_s",
    "cpu": "train_cpu_s",
    "energy": "train_energy_j",
}  # what of a round's costs grows with tau


def charge(kept: dict[str, float], names: Collection[str], costs: Mapping[str, float], tau: float) -> None:
    """Split what the round has used into tau steps (c) and the rest (b), such that c tau + b is all of it."""
    for name in names:
        before = kept.get(f"used {name}", 0.0)
        spent = max(0.0, costs.get(name, before) - before)
        steps = min(costs.get(_SHARE.get(name, ""), 0.0), spent)
        step, rest = steps / tau, spent - steps
        if name in _SHARE and not step:  # a server that came back does not know what training took
            step = kept.get(f"step {name}", LEAST)
        kept[f"used {name}"], kept[f"step {name}"] = before + spent, step
        kept[f"round {name}"] = max(LEAST, rest)


def resources(kept: Mapping[str, float], limits: Mapping[str, float]) -> list[TauBudget]:
    """Return the budgets as they stand."""
    return [
        TauBudget(name, limit, *(kept.get(f"{part} {name}", 0.0) for part in ("used", "step", "round")))
        for name, limit in limits.items()
    ]


def exhausted(tau: int, of: Sequence[TauBudget]) -> str:
    """Return the sentence that says which budgets have no room for a round of tau steps."""
    short = [resource for resource in of if resource.step and not resource.fits(tau)]
    words = ", ".join(
        f"{found.name} {found.shown(found.used)} of {found.shown(found.limit)}" for found in short
    )
    return f"the budget leaves no room for another round: {words}"
