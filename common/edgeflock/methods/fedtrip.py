"""FedTrip: local steps pulled towards the global model and pushed away from the client's own last one.

Li et al., IPDPS 2023 (arXiv:2304.05824), Algorithm 1 and eq. 5. With a = w^{t-1} as received and w_hist the
client's final model of its last counted round t_last:
    g <- grad F(w; b) + mu ((w - a) - xi (w - w_hist)),    v <- m v + g,    w <- w - lr v,
    xi = 1 / (t - t_last), and 0 at a first participation.
The term enters before momentum (lines 7-8); the server is FedAvg's (line 12). The term is written mu (1 -
xi) w - mu (a - xi w_hist): two passes over |w| per step, one where xi = 1. Its curvature is mu (1 - xi),
hence never negative: xi stays in [0, 1].

`xi_mode=inverse` is the reading of eq. 5 under which the paper's E[xi] = p ln p / (p - 1) holds and
Appendix B's xi in (0, 1]; xi = gap (IV-C's wording) diverges. `xi_mode=const` is Algorithm 1's
"hyper-parameter xi": with 1 the quadratics cancel, and the constant mu (w_hist - a) is left, which acts
like momentum.

Confirmed: the code of the account named like the first author (xujli/ppllaattoo, examples/fedtrip, on
Plato) scales the push by alpha / gap with gap = t - t_last, so that consecutive rounds have gap 1, alpha =
mu = 0.4 for LeNet5, lr 0.01, momentum 0.9, batch 50, and adds the term before the optimizer's step;
xujli/fedcrac has 1 / gap too. Both push away from the initial model at a first participation; here xi is 0
then (the paper is silent). That the history is promoted only with a counted update is our rule: the paper
knows no lost updates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from edgeflock.methods.base import Bundles, ClientHalf, Effort, Local, Method, Training
from edgeflock.methods.options import Params, at_least, one_of, option, unit


@dataclass(frozen=True, kw_only=True)
class FedTripParams(Params):
    """Options of FedTrip."""

    mu: float = option(1.0, "strength of the triplet term; 0 is FedAvg", at_least(0), symbol="mu")
    xi_mode: str = option(
        "inverse",
        "weight of the push away from the client's own last model: 1 / rounds since then, or xi_value",
        one_of("inverse", "const"),
        symbol="xi",
    )
    xi_value: float = option(
        1.0, "that weight with xi_mode const; 0 is FedProx, 1 acts like momentum", unit(), symbol="xi"
    )


class FedTripClient(ClientHalf[FedTripParams]):
    """Adds the closed-form gradient of the triplet term, and remembers model and round."""

    def begin(self, work: Local) -> None:
        xi, anchor = self.xi(work), work.start
        if xi:
            history = work.state.vectors["history"]
            anchor = torch.sub(work.start, history, alpha=xi, out=work.scratch("anchor"))
        work.memo["anchor"] = anchor

    def gradient(self, work: Local) -> None:
        mu, xi = self.params.mu, self.xi(work)
        if xi < 1:
            work.grads.add_(work.params, alpha=mu * (1 - xi))
        work.grads.sub_(work.memo["anchor"], alpha=mu)

    def end(self, work: Local) -> Bundles:
        work.keep("history", work.params)
        work.new_state.scalars["round"] = work.round
        return super().end(work)

    def xi(self, work: Local) -> float:
        """Return the round's weight of the push, in [0, 1]; 0 without a history."""
        if "history" not in work.state.vectors:
            return 0.0
        if self.params.xi_mode == "const":
            return self.params.xi_value
        return 1 / max(1.0, work.round - work.state.scalars["round"])


def extra_flops(params: FedTripParams, effort: Effort) -> float:
    """Return 4 |w| for every step (Table V), although it takes two passes over |w| here."""
    return effort.vectors(4) if params.mu else 0.0


METHOD = Method(
    name="fedtrip",
    summary="pulled towards the global model, pushed away from the client's own last one",
    params=FedTripParams,
    client=FedTripClient,
    training=Training(lr=0.01, momentum=0.9, batch_size=50, epochs=1),
    extra_flops=extra_flops,
)
