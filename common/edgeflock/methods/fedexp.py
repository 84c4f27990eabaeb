"""FedExP: a server step that grows with the disagreement of the clients' updates.

Jhunjhunwala, Wang, Joshi, ICLR 2023 (arXiv:2301.09604), Algorithm 1. With D_i = x_i - w as decoded:
    eta_g = max(1, mean ||D_i||^2 / (2 (||mean D_i||^2 + eps_t))),    w <- w + eta_g mean D_i,
eps_t = eps eps_decay^(t-1); both means have the run's weights. ||D_i||^2 is summed in float32 within rows of
1,024 numbers and in float64 over them (norms.py): in float64 alone the fold would cost more than it may.
`result=average` tests and hands out (w_t + w_{t-1}) / 2, as the paper does against the oscillation of its
last iterates; the clients go on from w_t. BatchNorm statistics are then those of w_t.

Confirmed against Divyansh03/FedExP (main.py): the step with its factor 1/2 and max with 1, means weighted
by samples, the tested mean of the last two iterates, eps 0.001 (0.1 for EMNIST), multiplied by 0.998^2 per
round, already before the first one. It differs from the paper: S eps in the denominator; and its first
round tests w_1 alone, where here the last two iterates are w_0 and w_1. Its clip 10 and weight decay 1e-4
are the run's options.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeflock.common import norms
from edgeflock.methods.kit.base import Accumulators, Kind, Method, Round, ServerHalf, State, Update
from edgeflock.methods.kit.options import Params, above, one_of, option, unit


@dataclass(frozen=True, kw_only=True)
class FedExpParams(Params):
    """Options of FedExP."""

    eps: float = option(1e-3, "keeps the step small where the updates cancel", above(0), symbol="epsilon")
    eps_decay: float = option(
        1.0, "factor on eps after every round; 0.996004 is 0.998^2, the paper's", unit(low=False)
    )
    result: str = option(
        "last",
        "the model of the run: the last iterate, or the average of the last two (the paper evaluates that)",
        one_of("last", "average"),
    )


class FedExpServer(ServerHalf[FedExpParams]):
    """Sums the squared norms beside the deltas; keeps the previous model if the average is wanted."""

    def begin(self, state: State) -> None:
        if self.params.result == "average":
            state.vectors["previous"] = state.model.clone()

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        sums.count("squares", weight * sums.add("delta", update, Kind.DELTA, weight, norm=True))

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        squares, mean = sums.scalars["squares"] / sums.weights["delta"], sums.mean("delta")
        eps = self.params.eps * self.params.eps_decay ** (round.number - 1)
        below = 2 * (norms.squared_norm(mean) + eps)
        # eps has decayed to 0 after very many rounds, and nobody has moved
        eta = max(1.0, squares / below) if below else 1.0
        if self.params.result == "average":
            state.vectors["previous"].copy_(state.model)
        state.model.add_(mean, alpha=eta)
        return {"eta_g": eta, "eps": eps}

    def result(self, state: State) -> Tensor:
        if self.params.result == "last":
            return state.model
        return torch.lerp(state.vectors["previous"], state.model, 0.5)


METHOD = Method(
    name="fedexp",
    summary="FedAvg with a server step that grows with the updates' disagreement",
    params=FedExpParams,
    server=FedExpServer,
    any_optimizer=True,
)
