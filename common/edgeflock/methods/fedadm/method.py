"""FedADM: a proximal weight that every client adapts, and a tau that the server chooses by the budgets.

"FedADM: Adaptive Federated Learning via Dissimilarity Measure" (openreview IsHWcsk4Fz), read as METHODS 2.3
settles it. The control is that of Wang et al. 2019 (arXiv:1804.05271), whose code was read: tau stays as it
is until a client has a last round to compare with; one batch serves three times at most while tau is 1; a
round that does not fit is shortened, and is the last one.

    mu_i <- max(0, mu_i + alpha (||w_i(last) - w_best|| - xi))           from the second participation on
    x <- x - eta (grad F_i(x) + mu_i (x - w_best)), tau times            eq. 8, as the gradient of eq. 6
    w <- sum (n_i/n) w_i; w_best <- the w received if F was smaller      eq. 4, known one round late
    rho_i, beta_i: quotients of F_i and its gradient between w_i(last) and w, on one batch
    delta = sum (n_i/n) ||grad F_i(w) - grad F(w)||, by a second walk over the gradients

F_i and its gradient at w_i(last) are computed on the batch of the first step: the numbers that would have
been kept from the round before, under the same dropout mask as F_i(w).
A client keeps the last w it received and its anchor w_best; without the one that is meant it fetches it.
delta, rho_i and beta_i are those of the plain F_i: where w is not w_best the clients' directions at w are
also (mu_i - mu_bar) (w - w_best) apart, a part of delta that is dropped.
B_k and H_k (eqs. 10-11) and what is told beside them stand in `dissimilarity.py`; w_k,global is there the
anchor as this round's comparison leaves it.
`batches=equal` is the ancestor's way: all clients draw their batches from one seed, so that those with the
same data (case 3) do the same, and delta is 0. (Dropout masks stay each client's own.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from edgeflock.common import norms
from edgeflock.methods.fedadm import control, dissimilarity, memory
from edgeflock.methods.fedadm.control import RESOLUTION, Estimates, TauBudget
from edgeflock.methods.fedadm.measure import measure
from edgeflock.methods.fedadm.options import FedAdmParams, default_budget
from edgeflock.methods.kit.base import (
    Accumulators,
    Batch,
    Bundles,
    ClientHalf,
    Effort,
    Kind,
    Local,
    Method,
    Plan,
    Round,
    ServerHalf,
    State,
    Training,
    Update,
)


class FedAdmServer(ServerHalf[FedAdmParams]):
    """Keeps w_best, and searches tau if it is not fixed."""

    scalars = ("f", "f_best", "mu")
    closing_scalars = ("f", "f_best")

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.second_walk = self.params.adaptive
        self.closing_tests = self.params.result == "latest"

    def begin(self, state: State) -> None:
        state.vectors["best"] = state.model.clone()
        for name in ("buffers of best", "buffers before"):
            state.vectors[name] = state.vectors.get("buffers", torch.zeros(0)).clone()
        state.scalars |= {"tau": float(self.params.fixed or 1), "best_round": 1.0}

    # The work of a round and what goes down

    def plan(self, state: State, plan: Plan, round: Round) -> Plan:
        tau, last = self._granted(state)
        if plan.steps != 0:  # which asks for no work at all
            plan = replace(plan, steps=tau, steered=self.params.adaptive)
        if last and "last_round" in state.scalars:
            plan = replace(plan, stop=control.exhausted(int(state.scalars["tau"]), self._resources(state)))
        return plan.with_flags(**self._flags(state), last_round=float(last))

    def closing(self, state: State) -> Plan | None:
        """F at the last aggregate is not known yet."""
        if self.params.result == "latest" and not self.setting.tested:
            return None
        return Plan(lr=0.0).with_flags(**self._flags(state))

    def _flags(self, state: State) -> dict[str, float]:
        return {name: state.scalars[name] for name in ("best_round", "mu_bar") if name in state.scalars}

    def optional(self, state: State, round: Round) -> Bundles:
        known = state.scalars["best_round"] == round.number  # it is the broadcast
        return {} if known else {Kind.ANCHOR: state.vectors["best"]}

    def uploads(self, round: Round) -> tuple[Kind, ...]:
        return (Kind.DELTA, Kind.GRADIENT) if self.params.adaptive else (Kind.DELTA,)

    def sums(self) -> dict[str, Any]:
        names = ("delta", "gradient") if self.params.adaptive else ("delta",)
        return dict.fromkeys(names, self.setting.layout)

    # What comes up

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        super().fold(sums, update, weight)
        if not update.steps:
            return
        self.fold_closing(sums, update, weight)
        for name in ("f", "f_best"):
            sums.count(f"{name} squared", update.scalars[name] ** 2)
        sums.count("taken", 1.0)
        sums.count(f"weight of {update.seat}", weight)
        sums.count(f"mu of {update.seat}", update.scalars["mu"])
        if not self.params.adaptive:
            return
        sums.count("g squared", sums.add("gradient", update, Kind.GRADIENT, weight, norm=True))
        if "beta" in update.scalars and "rho" in update.scalars:
            for name, value in {"estimated": 1.0, **_pick(update.scalars, "rho", "beta")}.items():
                sums.count(name, weight * value)

    def second(self, sums: Accumulators, update: Update, weight: float) -> None:
        if not update.steps:
            return
        total, whole, apart = sums.vectors["gradient"], sums.weights["gradient"], 0.0
        for start, block in update.blocks(Kind.GRADIENT):
            apart += norms.squared_norm(block - total[start : start + block.numel()] / whole)
            sums.operations += 4 * block.numel()  # a quotient, a difference, a norm
        sums.count("delta", weight * math.sqrt(apart))
        sums.count("walked", weight)

    def fold_closing(self, sums: Accumulators, update: Update, weight: float) -> None:
        sums.count("weight", weight)
        for name in ("f", "f_best"):
            sums.count(name, weight * update.scalars[name])

    # The next state

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        tau, last = self._granted(state)
        base = state.vectors["best"] if self.params.restart == "best" else state.model
        after = sums.mean("delta").add_(base)
        metrics = {"tau": float(self.params.fixed or tau)}
        if sums.scalars.get("weight"):
            metrics |= self._judge(state, sums, round) | self._dissimilarity(state, sums)
        state.model.copy_(after)
        if "buffers" in state.vectors:
            state.vectors["buffers before"].copy_(state.vectors["buffers"])
        control.charge(state.scalars, self.limits, round.costs, metrics["tau"])
        if self.params.adaptive and sums.scalars.get("weight"):
            metrics |= self._search(state, sums, round)
            state.scalars.pop("last_round", None)
            if last:
                state.scalars["last_round"] = float(round.number)
        return metrics

    def commit_closing(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        return self._judge(state, sums, round) if sums.scalars.get("weight") else {}

    def _judge(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        """Make the w that was evaluated the anchor if F is smaller there."""
        f, f_best = (sums.scalars[name] / sums.scalars["weight"] for name in ("f", "f_best"))
        if f < f_best:
            state.vectors["best"].copy_(state.model)
            state.vectors["buffers of best"].copy_(state.vectors["buffers before"])
            state.scalars["best_round"] = float(round.number)
        return {"F": f, "F_best": min(f, f_best)}

    def _dissimilarity(self, state: State, sums: Accumulators) -> dict[str, float]:
        """Note mu_bar, and return it with B and H of the losses."""
        weight = sums.scalars["weight"]
        mu = sum(share * mu for share, mu in _mus(sums)) / weight
        state.scalars.setdefault("mu_bar_1", mu)
        state.scalars["mu_bar"] = mu
        found = sums.scalars
        name = "f" if found["f"] < found["f_best"] else "f_best"  # the anchor's, as `_judge` has settled it
        squares = found[f"{name} squared"] / found["taken"]
        return {"mu_bar": mu, **dissimilarity.of_losses(state.scalars, squares, found[name] / weight)}

    def _search(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        """Choose tau once a client could compare two models; the estimates are those of this round."""
        found, slope = sums.scalars, norms.norm(sums.mean("gradient"))
        told = dissimilarity.of_gradients(state.scalars, found["g squared"] / found["taken"], slope)
        delta = found["delta"] / found["walked"]
        state.scalars["delta"] = delta if delta > RESOLUTION * slope else 0.0
        if found.get("estimated"):
            state.scalars |= {name: found[name] / found["estimated"] for name in ("rho", "beta")}
        known = _pick(state.scalars, "delta", "rho", "beta")
        return told | known | (self._chosen(state, sums, round, known) if len(known) == 3 else {})

    def _chosen(
        self, state: State, sums: Accumulators, round: Round, known: Mapping[str, float]
    ) -> dict[str, float]:
        """Set tau to what the bound says of the estimates, and return G there."""
        estimates = Estimates(
            **known,
            mus=_mus(sums),
            mu_first=state.scalars["mu_bar_1"],
            eta=round.lr,
            phi=self.params.phi,
            xi=self.params.xi,
        )
        longest = min(control.REACH * int(state.scalars["tau"]), self.params.tau_max)
        tau, value = control.best_tau(estimates, self._resources(state), self.params.bound, longest)
        state.scalars["tau"] = float(tau)
        return {"G": value} if math.isfinite(value) else {}

    # The budgets

    @property
    def limits(self) -> Mapping[str, float]:
        return {**default_budget(self.params), **self.setting.budgets}

    def _resources(self, state: State) -> list[TauBudget]:
        return control.resources(state.scalars, self.limits)

    def _granted(self, state: State) -> tuple[int, bool]:
        tau = int(state.scalars["tau"])
        return control.granted(tau, self._resources(state)) if self.params.adaptive else (tau, False)

    # The result

    def result(self, state: State) -> Tensor:
        return state.vectors["best"] if self.params.result == "best" else state.model

    def buffers(self, state: State, name: str) -> Tensor:
        return state.vectors["buffers of best" if self.params.result == "best" else "buffers"]


class FedAdmClient(ClientHalf[FedAdmParams]):
    """Pulls towards the anchor, and measures F around the w it received."""

    def lacks(self, state: State, flags: Mapping[str, float]) -> bool:
        return memory.lacks_anchor(state.scalars, flags)

    def begin(self, work: Local) -> None:
        self._order(work)
        anchor, last = memory.anchor_of(work), work.state.vectors.get("last")
        mu = work.state.scalars.get("mu", self.params.mu0)
        if last is not None:
            apart = norms.norm(torch.sub(last, anchor, out=work.scratch("apart")))
            mu = max(0.0, mu + self.params.alpha * (apart - self.params.xi))
        work.memo["anchor"] = anchor
        work.scalars["mu"] = work.new_state.scalars["mu"] = mu
        if self.params.restart == "best":
            work.start_from(anchor)
        if self.params.adaptive and work.order.batches > 1:
            work.first_batch = memory.last_batch(work)

    def _order(self, work: Local) -> None:
        if self.params.batches == "equal":
            memory.share_order(work)

    def backward(self, work: Local, batch: Batch) -> Tensor:
        loss = work.compute(batch)
        if work.step_index == 0:
            measure(work, batch, float(loss), adaptive=self.params.adaptive)
        return loss

    def gradient(self, work: Local) -> None:
        mu = work.scalars["mu"]
        work.grads.add_(work.params, alpha=mu).sub_(work.memo["anchor"], alpha=mu)

    def end(self, work: Local) -> Bundles:
        memory.keep_anchor(work, work.memo["anchor"])
        work.keep("last", work.params)
        if self.params.adaptive:
            memory.keep_batch(work)
        bundles = super().end(work)
        return bundles | ({Kind.GRADIENT: work.memo["gradient"]} if self.params.adaptive else {})

    def close(self, work: Local) -> None:
        self._order(work)
        received, anchor = work.received[Kind.MODEL], memory.anchor_of(work)
        work.scalars |= {"f": 0.0, "f_best": 0.0}
        if len(work.data):
            batch = (memory.last_batch(work) if self.params.adaptive else None) or work.batch_in(
                work.round, 0
            )
            work.scalars |= {"f": work.loss_at(received, batch), "f_best": work.loss_at(anchor, batch)}


def _mus(sums: Accumulators) -> list[tuple[float, float]]:
    """Return weight and mu_i of every client that was folded."""
    seats = [name.removeprefix("mu of ") for name in sums.scalars if name.startswith("mu of ")]
    return [(sums.scalars[f"weight of {seat}"], sums.scalars[f"mu of {seat}"]) for seat in seats]


def _pick(scalars: Mapping[str, float], *names: str) -> dict[str, float]:
    return {name: scalars[name] for name in names if name in scalars}


def extra_flops(params: FedAdmParams, effort: Effort) -> float:
    """Return those of the pull, and of further passes on the first batch: at w_best, and at the last w."""
    return effort.vectors(2) + effort.first_batch(2 if params.adaptive else 1)


METHOD = Method(
    name="fedadm",
    summary="adaptive proximal weights, and local steps by the budgets of time, bytes, CPU and energy",
    params=FedAdmParams,
    server=FedAdmServer,
    client=FedAdmClient,
    training=Training(lr=0.01, batch_size=100),
    own_steps=True,
    budget=default_budget,
    extra_flops=extra_flops,
)
