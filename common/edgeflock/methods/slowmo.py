"""SlowMo: momentum on the server, over what whole rounds of local steps have moved.

Wang, Tantia, Ballas, Rabbat, ICLR 2020 (arXiv:1910.00643), Algorithm 1 with local SGD as base optimizer:
    u <- beta u + (w - mean x_i) / lr,    w <- w - a lr u,    u_0 = 0,
lr is the round's (the paper's gamma_t), a is `slow_lr` (its alpha), beta is `beta`, and w - mean x_i is the
negated mean delta. The clients' momentum buffers begin anew every round (the paper's "reset"). beta 0, a 1
is FedAvg.

Confirmed against pytorch/torchdistx (slowmo_optimizer.py, by the paper's group): u.mul_(factor) plus
(previous - averaged) / lr, previous -= slowmo_lr * lr * u, with factor 0.5 and slowmo_lr 1.0 as defaults.
The paper's own listing was not at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from edgeflock.common import norms
from edgeflock.methods.kit.base import Accumulators, Method, Round, ServerHalf, State
from edgeflock.methods.kit.options import Params, above, option, unit


@dataclass(frozen=True, kw_only=True)
class SlowMoParams(Params):
    """Options of SlowMo."""

    slow_lr: float = option(1.0, "factor on the server's step", above(0), symbol="alpha")
    beta: float = option(0.5, "slow momentum; 0 with slow_lr 1 is FedAvg", unit(high=False), symbol="beta")


class SlowMoServer(ServerHalf[SlowMoParams]):
    """Keeps u beside the model."""

    def begin(self, state: State) -> None:
        state.vectors["momentum"] = torch.zeros_like(state.model)

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        if not round.lr:  # rounds without a step: nothing has moved, and there is no rate to divide by
            return {}
        momentum = state.vectors["momentum"]
        momentum.mul_(self.params.beta).sub_(sums.mean("delta"), alpha=1 / round.lr)
        state.model.sub_(momentum, alpha=self.params.slow_lr * round.lr)
        return {"momentum_norm": norms.norm(momentum)}


METHOD = Method(
    name="slowmo",
    summary="FedAvg with slow momentum on the server",
    params=SlowMoParams,
    server=SlowMoServer,
    any_optimizer=True,
)
