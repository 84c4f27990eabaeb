"""A method that has a closing task: what tests of it need, and nothing else."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgeflock.methods.kit.base import Accumulators, Plan, Round, ServerHalf, State, Update


class Asks(ServerHalf[Any]):
    """Asks for a number at the end; the result is the model moved by the weighted sum of the answers."""

    closing_scalars = ("wish",)
    second_walk = True

    def begin(self, state: State) -> None:
        state.vectors["chosen"] = torch.zeros_like(state.model)

    def second(self, sums: Accumulators, update: Update, weight: float) -> None:
        assert not sums.round.closing, "nothing is walked twice that holds no bundles"

    def result(self, state: State) -> Tensor:
        return state.vectors["chosen"]

    def closing(self, state: State) -> Plan | None:
        return Plan(lr=0.5, steps=7).with_flags(question=1.0)

    def fold_closing(self, sums: Accumulators, update: Update, weight: float) -> None:
        sums.count("wishes", weight * update.scalars["wish"])

    def commit_closing(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        total = sums.scalars.get("wishes", 0.0)
        torch.add(state.model, total, out=state.vectors["chosen"])
        return {"wishes": total, "answered": float(len(round.cohort))}
