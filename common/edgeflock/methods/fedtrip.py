"""FedTrip: local steps pulled towards the global model and pushed away from the client's own last one.

Li et al., IPDPS 2023 (arXiv:2304.05824), Algorithm 1 and eq. 5. With a = w^{t-1} as received and w_hist the
client's final model of its last counted round t_last:
    g <- grad F(w; b) + mu ((w - a) - xi (w - w_hist)),    v <- m v + g,    w <- w - lr v,
    xi = 1 / (t - t_last), and 0 at a first participation.
The term enters before momentum (lines 7-8); the server is FedAvg's (line 12). The term is written mu (1 -
xi) w - mu (a - xi w_hist): two passes over |w| per step, one where xi = 1. Its curvature is mu (1 - xi),
hence never negative: xi stays in [0, 1].

Who takes part in every round has xi = 1: the quadratics cancel, and over its K steps the client moves by
about g = mu xi lr K / (1 - m) times its own last deviation w_hist - a, turned round. g above 1 grows from
round to round: the paper's mu 1.0 (MLP) has g = 2 with 4 clients on digits and 3.9 with LeNet-5 and 2
clients, which end at chance or not finite. So that the method works as it comes `push_limit` lowers xi until
g <= push_limit, with the client's own K; 0 is the printed method, of which is said at the start where g is
above 1. mu is .4 by default, the paper's for CNN and AlexNet.

`xi_mode=inverse` is the reading of eq. 5 under which the paper's E[xi] = p ln p / (p - 1) holds and
Appendix B's xi in (0, 1]; xi = gap (IV-C's wording) diverges. `xi_mode=const` is Algorithm 1's
"hyper-parameter xi": with 1 the quadratics cancel, and the constant mu (w_hist - a) is left, which acts
like momentum.

Confirmed: the code of the account named like the first author (xujli/ppllaattoo, examples/fedtrip, on
Plato) scales the push by alpha / gap with gap = t - t_last, so that consecutive rounds have gap 1, alpha =
mu = 0.4 for LeNet5, lr 0.01, momentum 0.9, batch 50, and adds the term before the optimizer's step;
xujli/fedcrac has 1 / gap too. Both push away from the initial model w^0 at a first participation, with xi =
1 / t: that is `first=initial`; by default xi is 0 then (the paper is silent). Later code of theirs divides
mu by E, which is `mu_per=epoch`. That the history is promoted only with a counted update is our rule: the
paper knows no lost updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from edgeflock.methods.kit.base import (
    Accumulators,
    Bundles,
    ClientHalf,
    Effort,
    Kind,
    Local,
    Method,
    Outlook,
    Round,
    ServerHalf,
    State,
    Training,
    Update,
)
from edgeflock.methods.kit.options import Params, at_least, one_of, option, unit

LIMITED = "push_limited"
ROUNDED = 1e-9


@dataclass(frozen=True, kw_only=True)
class FedTripParams(Params):
    """Options of FedTrip."""

    mu: float = option(0.4, "strength of the triplet term; 0 is FedAvg", at_least(0), symbol="mu")
    mu_per: str = option(
        "step",
        "what mu is the strength of: every step as printed, or an epoch (mu / E)",
        one_of("step", "epoch"),
        symbol="mu",
    )
    xi_mode: str = option(
        "inverse",
        "weight of the push away from the client's own last model: 1 / rounds since then, or xi_value",
        one_of("inverse", "const"),
        symbol="xi",
    )
    xi_value: float = option(
        1.0,
        "that weight with xi_mode const; 0 is FedProx, 1 acts like momentum",
        unit(),
        symbol="xi",
        when="xi_mode=const",
    )
    first: str = option(
        "none",
        "what a first participation is pushed away from: nothing, or the initial model as if of round 0",
        one_of("none", "initial"),
    )
    push_limit: float = option(
        1.0,
        "xi is lowered until mu xi lr K / (1 - momentum) is no more, above 1 the push grows; 0 is as printed",
        at_least(0),
        symbol="xi",
    )


class FedTripServer(ServerHalf[FedTripParams]):
    """FedAvg's; counts whose push was limited, and has the initial model for those who begin with it."""

    def begin(self, state: State) -> None:
        if self.params.first == "initial":
            state.vectors["initial"] = state.model.clone()

    def optional(self, state: State, round: Round) -> Bundles:
        apart = "initial" in state.vectors and round.number > 1  # in round 1 it is the broadcast
        return {Kind.ANCHOR: state.vectors["initial"]} if apart else {}

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        super().fold(sums, update, weight)
        if self.params.push_limit:
            sums.count(LIMITED, float(update.scalars.get(LIMITED, 0.0) > 0))

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        return super().commit(state, sums, round) | sums.scalars


class FedTripClient(ClientHalf[FedTripParams]):
    """Adds the closed-form gradient of the triplet term, and remembers model and round."""

    def lacks(self, state: State, flags: Mapping[str, float]) -> bool:
        return self.params.first == "initial" and "history" not in state.vectors

    def begin(self, work: Local) -> None:
        xi, anchor, history = self.xi(work), work.start, self._history(work)
        if xi and history is not None:
            anchor = torch.sub(work.start, history, alpha=xi, out=work.scratch("anchor"))
        work.memo["anchor"] = anchor
        if self.params.push_limit:
            work.scalars[LIMITED] = float(xi < self._printed_xi(work))

    def gradient(self, work: Local) -> None:
        mu, xi = self.mu(work), self.xi(work)
        if xi < 1:
            work.grads.add_(work.params, alpha=mu * (1 - xi))
        work.grads.sub_(work.memo["anchor"], alpha=mu)

    def end(self, work: Local) -> Bundles:
        work.keep("history", work.params)
        work.new_state.scalars["round"] = work.round
        return super().end(work)

    def mu(self, work: Local) -> float:
        """Return the strength of the term in every step."""
        if self.params.mu_per == "step":
            return self.params.mu
        return self.params.mu / max(1.0, work.steps_total / work.order.batches)

    def xi(self, work: Local) -> float:
        """Return the round's weight of the push, in [0, 1]; 0 without a history."""
        xi, plan = self._printed_xi(work), work.plan
        growth = self.mu(work) * plan.lr * work.steps_total / (1 - plan.momentum)
        if not self.params.push_limit or growth * xi <= self.params.push_limit:
            return xi
        return self.params.push_limit / growth

    def _printed_xi(self, work: Local) -> float:
        if self._history(work) is None:
            return 0.0
        if self.params.xi_mode == "const":
            return self.params.xi_value
        return 1 / max(1.0, work.round - work.state.scalars.get("round", 0.0))

    def _history(self, work: Local) -> Tensor | None:
        """Return w_hist, or the initial model where that stands for it."""
        found = work.state.vectors.get("history")
        if found is None and self.params.first == "initial":
            return work.received.get(Kind.ANCHOR, work.start)
        return found


def extra_flops(params: FedTripParams, effort: Effort) -> float:
    """Return 4 |w| for every step (Table V), although it takes two passes over |w| here."""
    return effort.vectors(4) if params.mu else 0.0


def caution(params: FedTripParams, outlook: Outlook) -> str:
    """Say that the push grows as printed, where g of those who take part again at once is above 1."""
    passes = 1 if params.mu_per == "step" else outlook.epochs
    if params.push_limit or outlook.steps is None or passes is None:
        return ""
    xi = params.xi_value if params.xi_mode == "const" else 1.0
    growth = params.mu / passes * xi * outlook.lr * outlook.steps / (1 - outlook.momentum)
    if growth <= 1 + ROUNDED:
        return ""
    where = "can grow from round to round" if outlook.partial else "grows from round to round"
    return (
        f"with push_limit 0 who takes part twice in succession is pushed by mu xi lr K / (1 - momentum) = "
        f"{growth:.3g} times its own last move, turned round, which above 1 {where}: give a smaller mu or "
        "--lr, fewer local steps, or --set push_limit=1"
    )


METHOD = Method(
    name="fedtrip",
    summary="pulled towards the global model, pushed away from the client's own last one",
    params=FedTripParams,
    server=FedTripServer,
    client=FedTripClient,
    training=Training(lr=0.01, momentum=0.9, batch_size=50, epochs=1),
    extra_flops=extra_flops,
    caution=caution,
)
