"""The passes that a client counts are those that torch counts: every method, first rounds and later ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.utils.flop_counter import FlopCounterMode

from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.flops import training_flops
from edgeflock.methods.kit import registry
from edgeflock.methods.kit.effort import Effort
from edgeflock.methods.kit.local import Local
from edgeflock.server.learning.fold import SpooledUpdate
from edgeflock.server.learning.work import RoundWork
from support.contract import HeldData
from support.federation import PLAN, SHAPE, WIDTHS, Federation
from support.training import bench_of

ROUNDS = 2


class Counted(Federation):
    """A run whose local work torch looks at."""

    told: list[tuple[int, float, Local]]  # of each training: the client, torch's operations, the work

    def _local(self, work: RoundWork, index: int) -> Local:
        self._last = super()._local(work, index)
        return self._last

    def _train(self, work: RoundWork, index: int, counts: bool) -> SpooledUpdate:
        with FlopCounterMode(display=False) as counter:
            update = super()._train(work, index, counts)
        self.told.append((index, float(counter.get_total_flops()), self._last))
        return update


@pytest.mark.parametrize(
    ("name", "steps"), [*((name, None) for name in registry.names()), ("fedmrur", 2), ("moon", 2)]
)
def test_operations_are_those_that_were_done(tmp_path: Path, name: str, steps: int | None) -> None:
    """Also in a client's first rounds, and in local work below an epoch."""
    plan, tools = replace(PLAN, steps=steps), HeldData(_net, SHAPE, WIDTHS[-1])
    run = Counted(tmp_path, name, plan=plan, budgets=_budgets(name), tools=tools)
    run.told = []
    for _ in range(ROUNDS):
        run.round()
    forward, backward = training_flops(_net(), SHAPE)
    assert len(run.told) == ROUNDS * len(run.sizes)
    for _, counted, work in run.told:
        assert work.forward_samples * forward + work.backward_samples * backward == pytest.approx(
            counted,
            rel=0.03 if name == "fedmrur" else 0.0,  # once a round it derives the body alone
        )


def test_operations_of_a_server_that_trains_are_counted(tmp_path: Path) -> None:
    """pFedMo's S0 and its scores, with the vectors of the steps, and the fold of two bundles each."""
    run = Counted(tmp_path, "pfedmo", plan=PLAN, tools=HeldData(_net, SHAPE, WIDTHS[-1]))
    run.told = []
    forward, backward = training_flops(_net(), SHAPE)
    run.learner._terms = replace(run.learner._terms, passes=(forward, backward))
    with FlopCounterMode(display=False) as counter:
        run.round()
    passes = counter.get_total_flops() - sum(counted for _, counted, _ in run.told)
    prepared = run.learner._fold.round.prepared
    assert prepared is not None
    numbers, method = run.learner.state.model.numel(), registry.load("pfedmo")
    steps, samples = (int(prepared.scalars[name]) for name in ("steps", "samples"))
    effort = Effort(numbers, 0, forward, backward, steps=steps, samples=samples, held=0)
    vectors = method.extra_flops(run.learner.params, effort.still())
    fold = 2 * 2 * numbers * len(run.sizes)
    assert run.learner.own_operations() == {"server_flops": pytest.approx(passes + vectors + fold)}
    assert passes > 0


def _net() -> Net:
    return bench_of("mlp", SHAPE, hidden=str(WIDTHS[1])).net


def _budgets(name: str) -> dict[str, Any]:
    return {"time": 60.0} if name == "fedadm" else {}
