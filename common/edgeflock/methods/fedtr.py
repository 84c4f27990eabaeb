"""FedTR: features drawn to the global centroids of their classes, and a drift that every client keeps.

At client i, with a = w as received, z the input of the head, C_y the centroid of the class, f its length:
    loss = CE + lam_r mean_b(||z - C_y||^2 / f)           eqs. 4, 5; no term for a class without centroid;
    g <- grad loss + alpha_g (d_i + w_i - a)              eqs. 3, 5: G = alpha_g / 2 ||d_i + w_i - a||^2;
    additive: d_i <- d_i + (w_i - a) once at the end      Appendix A, the only reading with the effect;
    descent:  d_i <- d_i - eta_g alpha_g (d_i + w_i - a)  after every step; line 11 has alpha_g 2;
    up go u_i = w_i + d_i and, in eval mode at w_i, the class means c_ij of z and counts n_ij (line 13).
Server: w <- weighted mean of u_i (eq. 8); C_j <- sum_i n_ij c_ij / sum_i n_ij (eq. 9), where n_ij are.
d_i stays at the client from round to round, and so does w_i, the client's own model that is tested.

`drift=descent` harms: its fixed point d_i = a - w_i makes every upload the OLD model. `off`: d_i = 0.
`head=private`: the head with its part of d_i stays at the client, MODEL and DELTA hold the body. Who has no
head fetches the initial one (`anchor`). There is no global head, hence no global test.

No code of FedTR was found. Confirmed in its ancestor's: gaoliang13/FedDC (arXiv:2203.11751) adds the move
w_i - a to the drift once per round, never resets it and averages w_i + drift, there over the drifts of ALL
clients, here of those that took part. From FedPAC (arXiv:2306.11867): the mean over batch and features where
eq. 4 has a sum, lam 1, no term in the first round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from edgeflock.common import norms
from edgeflock.common.errors import BadValue
from edgeflock.common.payload.layout import Layout
from edgeflock.methods.kit.base import (
    Accumulators,
    Batch,
    Bundles,
    ClientHalf,
    Effort,
    Kind,
    Local,
    Method,
    Outlook,
    Plan,
    Round,
    ServerHalf,
    Setting,
    State,
    Training,
    Update,
)
from edgeflock.methods.kit.options import Params, above, at_least, one_of, option
from edgeflock.methods.kit.split import split
from edgeflock.methods.kit.tools import Tools

AS_PRINTED = 2.0  # gradient of ||.||^2 without a coefficient


@dataclass(frozen=True, kw_only=True)
class FedTRParams(Params):
    """Options of FedTR."""

    lam_r: float = option(
        1.0, "strength of the pull of features to their class's centroid", at_least(0), symbol="R"
    )
    alpha_g: float = option(
        0.1,
        f"strength of the pull to the received model less the drift; with drift descent {AS_PRINTED:g}",
        at_least(0),
        symbol="G",
    )
    drift: str = option(
        "additive",
        "rule of the drift: once per round, by a gradient step after each step (harmful), or none",
        one_of("additive", "descent", "off"),
        symbol="d_i",
    )
    eta_g: float = option(
        0.001,
        "step of the drift, with drift descent only",
        above(0),
        symbol="eta_g",
        when="drift=descent",
    )
    head: str = option(
        "shared",
        "whether the head is averaged like the rest or stays at its client",
        one_of("shared", "private"),
    )

    @classmethod
    def defaults(cls, given: Mapping[str, str]) -> Mapping[str, str]:
        return {"alpha_g": str(AS_PRINTED)} if given.get("drift") == "descent" else {}


class FedTRServer(ServerHalf[FedTRParams]):
    """Keeps the centroids and which classes have one."""

    closing_tests = True

    def __init__(self, params: FedTRParams, setting: Setting, tools: Tools | None = None) -> None:
        super().__init__(params, setting, tools)
        self.private = params.head == "private"
        self.body, self.head = split(setting.layout, setting.head)
        if self.private and not (self.body.layout.elements and self.head.layout.elements):
            raise BadValue("head", params.head, "shared for a model that is not made of a body and a head")

    def begin(self, state: State) -> None:
        for kind in (Kind.CENTROIDS, Kind.COUNTS):
            state.vectors[kind] = torch.zeros(self.layout(kind).elements)

    def broadcast(self, state: State, round: Round) -> Bundles:
        bundles = {Kind.MODEL: self.body.take(state.model) if self.private else state.model}
        if round.number > 1:
            bundles[Kind.CENTROIDS] = state.vectors[Kind.CENTROIDS]
            bundles[Kind.COUNTS] = state.vectors[Kind.COUNTS]
        return bundles

    def optional(self, state: State, round: Round) -> Bundles:
        return {Kind.ANCHOR: self.head.take(state.model)} if self.private else {}

    def layout(self, kind: Kind) -> Layout:
        own = {
            Kind.CENTROIDS: Layout.single("centroids", self.setting.classes, self.setting.features),
            Kind.COUNTS: Layout.single("counts", self.setting.classes),
        }
        if self.private:
            own |= {Kind.MODEL: self.body.layout, Kind.DELTA: self.body.layout, Kind.ANCHOR: self.head.layout}
        return own.get(kind, self.setting.layout)

    def uploads(self, round: Round) -> tuple[Kind, ...]:
        return (Kind.DELTA, Kind.CENTROIDS, Kind.COUNTS)

    def sums(self) -> Mapping[str, Layout]:
        return {str(kind): self.layout(kind) for kind in (Kind.DELTA, Kind.CENTROIDS, Kind.COUNTS)}

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        super().fold(sums, update, weight)
        counts = update.tensor(Kind.COUNTS)
        means = update.tensor(Kind.CENTROIDS).view(len(counts), -1)
        sums.add_tensor(Kind.CENTROIDS, means.mul_(counts[:, None]), 0)
        sums.add_tensor(Kind.COUNTS, counts, 0)
        sums.count("drift", update.scalars.get("drift", 0.0))

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        self._move(state, sums.mean("delta"))
        counts, known = sums.vectors[Kind.COUNTS], state.vectors[Kind.COUNTS]
        seen = counts > 0
        means = sums.vectors[Kind.CENTROIDS].view(len(counts), -1)[seen] / counts[seen, None]
        state.vectors[Kind.CENTROIDS].view(len(counts), -1)[seen] = means
        known[seen] = 1.0
        return {"drift_norm": sums.scalars["drift"] / sums.updates, "centroids": float(known.sum())}

    def _move(self, state: State, step: Tensor) -> None:
        if self.private:
            self.body.put(self.body.take(state.model) + step, state.model)
        else:
            state.model.add_(step)

    @property
    def has_global(self) -> bool:
        return self.has_result and super().has_global

    @property
    def has_result(self) -> bool:
        return not self.private

    def closing(self, state: State) -> Plan | None:
        """Let everybody test the model of his last participation."""
        return Plan(lr=0.0) if self.setting.tested else None


class FedTRClient(ClientHalf[FedTRParams]):
    """Pulls features to centroids and the model to `pull` = a - d_i; keeps drift and own model."""

    def __init__(self, params: FedTRParams, setting: Setting) -> None:
        super().__init__(params, setting)
        self.private = params.head == "private"
        self.body, self.head = split(setting.layout, setting.head)

    def lacks(self, state: State, flags: Mapping[str, float]) -> bool:
        return self.private and "model" not in state.vectors

    def begin(self, work: Local) -> None:
        if self.private:
            work.start_from(self._with_own_head(work))
        drift, before = work.scratch("drift"), work.state.vectors.get("drift")
        work.memo["drift"] = drift.zero_() if before is None else drift.copy_(before)
        work.memo["pull"] = torch.sub(work.start, drift, out=work.scratch("pull"))

    def _with_own_head(self, work: Local) -> Tensor:
        start, own = work.scratch("start"), work.state.vectors.get("model")
        self.body.put(work.received[Kind.MODEL], start)
        self.head.put(work.received[Kind.ANCHOR] if own is None else self.head.take(own), start)
        return start

    def loss(self, work: Local, batch: Batch, features: Tensor, logits: Tensor) -> Tensor | None:
        if not self.params.lam_r or Kind.CENTROIDS not in work.received:
            return None
        centroids = work.received[Kind.CENTROIDS].view(-1, features.shape[1])
        apart = (features - centroids[batch.y]).square().mean(1)
        return (apart * work.received[Kind.COUNTS][batch.y]).mean() * self.params.lam_r

    def gradient(self, work: Local) -> None:
        alpha = self.params.alpha_g
        if alpha:
            work.grads.add_(work.params, alpha=alpha).sub_(work.memo["pull"], alpha=alpha)

    def after_step(self, work: Local) -> None:
        if self.params.drift != "descent":
            return
        step, drift = self.params.eta_g * self.params.alpha_g, work.memo["drift"]
        drift.mul_(1 - step).sub_(work.params, alpha=step).add_(work.start, alpha=step)
        torch.sub(work.start, drift, out=work.memo["pull"])

    def end(self, work: Local) -> Bundles:
        drift, delta = work.memo["drift"], work.delta()
        if self.params.drift == "additive":
            drift.add_(delta)
        if self.params.drift != "off":
            work.keep("drift", drift)
        work.keep("model", work.params)
        if work.model.buffers.numel():
            work.keep("buffers", work.model.buffers)
        work.scalars["drift"] = norms.norm(drift)
        delta.add_(drift)
        means, counts = self._centroids(work)
        sent = self.body.take(delta) if self.private else delta
        return {Kind.DELTA: sent, Kind.CENTROIDS: means.reshape(-1), Kind.COUNTS: counts}

    def _centroids(self, work: Local) -> tuple[Tensor, Tensor]:
        """Return the means of the features by class, zero where there are no samples, and the counts."""
        classes = self.setting.classes
        sums = torch.zeros(classes, self.setting.features, dtype=torch.float64)
        sums = sums.to(work.params.device) if norms.has_float64(work.params.device) else sums
        counts = torch.zeros(classes, device=work.params.device)
        for batch in work.walk():
            features = norms.precise(work.features_at(work.params, batch)).double()
            sums.index_add_(0, batch.y.to(sums.device), features)
            counts += torch.bincount(batch.y, minlength=classes)
        means = (sums / counts.to(sums.device).clamp_min(1)[:, None]).float()
        return means.to(counts.device), counts

    def own_model(self, work: Local) -> Tensor | None:
        """Return w_i: just trained, or in the closing task as it was kept; else what was received."""
        if work.steps_done:
            return work.params
        return work.state.vectors.get("model", None if self.private else work.params)

    def own_buffers(self, work: Local) -> Tensor | None:
        return None if work.steps_done else work.state.vectors.get("buffers")

    def kept_model(self, state: State) -> tuple[Tensor, Tensor | None] | None:
        own = state.vectors.get("model")
        return None if own is None else (own, state.vectors.get("buffers"))


def extra_flops(params: FedTRParams, effort: Effort) -> float:
    """Return those of pull, drift, centroid term and centroids."""
    pull = effort.vectors(2) if params.alpha_g else 0.0
    drift = effort.vectors(4) if params.drift == "descent" else 2.0 * effort.parameters
    term = 4.0 * effort.samples * effort.features if params.lam_r else 0.0
    return pull + drift + term + effort.walk() + effort.held * effort.features


def caution(params: FedTRParams, outlook: Outlook) -> str:
    """Say what a drift that is never reset does where a client's is old when it takes part again."""
    if params.drift != "additive" or not outlook.partial:
        return ""
    return (
        "with a part of the clients in a round its model falls for good after some rounds, for a drift that "
        "is never reset grows old: ask all clients (--cohort 0), or give --set drift=off"
    )


METHOD = Method(
    name="fedtr",
    summary="features drawn to class centroids, a drift kept by every client",
    classes="draws features to the centroids of their classes",
    params=FedTRParams,
    server=FedTRServer,
    client=FedTRClient,
    training=Training(lr=0.05, batch_size=50, epochs=1),
    client_models="both",
    extra_flops=extra_flops,
    caution=caution,
)
