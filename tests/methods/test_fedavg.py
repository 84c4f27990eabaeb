"""FedAvg's client half: the local round against NumPy, and what every method inherits from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from edgeflock.common.models.kit.base import Net
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.values import Plan
from support.contract import NormalisedNet
from support.federation import Federation
from support.hand_mlp import local_round
from support.training import batches_of, bench_of, broadcast_of, half_of, local_of, samples

SHAPE, WIDTHS = (1, 4, 5), (20, 16, 3)
PLANS = {
    "full batch": Plan(lr=0.1, batch_size=0, steps=4),
    "mini batches": Plan(lr=0.1, batch_size=6, epochs=2),
    "momentum": Plan(lr=0.05, batch_size=6, epochs=2, momentum=0.9),
    "weight decay": Plan(lr=0.1, batch_size=6, epochs=2, weight_decay=0.05),
    "clip": Plan(lr=0.1, batch_size=6, epochs=2, clip=0.3),
    "all of it": Plan(lr=0.1, batch_size=5, steps=9, momentum=0.5, weight_decay=0.01, clip=0.3),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_local_round_equals_the_hand_computation(name: str) -> None:
    """The program in support/hand_mlp.py, on the batches of the pure order."""
    plan, data = PLANS[name], samples(20, SHAPE)
    bench = bench_of("mlp", SHAPE, hidden="16")
    work = local_of(bench, data, plan)
    start = work.start.double().numpy()
    batches = batches_of(data, plan)
    expected = local_round(
        start,
        WIDTHS,
        batches,
        lr=plan.lr,
        momentum=plan.momentum,
        weight_decay=plan.weight_decay,
        clip=plan.clip,
    )
    delta = steps.run(half_of("fedavg", bench), work)[Kind.DELTA]
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(delta.numpy(), expected, atol=1e-5)
    assert work.steps_done == work.steps_total == len(batches)
    assert work.samples_done == sum(len(labels) for _, labels in batches)


def test_a_round_without_steps_returns_delta_0_and_leaves_the_state() -> None:
    bench = bench_of("mlp", SHAPE, hidden="16")
    for data, plan in (
        (samples(20, SHAPE), Plan(lr=0.0, steps=0)),
        (samples(0, SHAPE), Plan(lr=0.1, epochs=3)),
    ):
        work = local_of(bench, data, plan)
        delta = steps.run(half_of("fedavg", bench), work)[Kind.DELTA]
        assert torch.equal(delta, torch.zeros_like(delta))
        assert (work.steps_done, work.mean_loss(), work.new_state) == (0, 0.0, work.state)


def test_the_same_round_gives_the_same_bits_on_a_used_workbench() -> None:
    """Momentum, dropout and batch order begin anew in every round, whoever used the slot before."""
    data, plan = samples(23, (1, 8, 8)), Plan(lr=0.1, batch_size=5, epochs=2, momentum=0.9)
    bench = bench_of("cnn", (1, 8, 8), dropout="0.3")
    half, sent = half_of("fedavg", bench), broadcast_of(bench)
    first = steps.run(half, local_of(bench, data, plan, received=sent))[Kind.DELTA].clone()
    other = steps.run(half, local_of(bench, data, plan, received=sent, index=1))[Kind.DELTA].clone()
    later = steps.run(half, local_of(bench, data, plan, received=sent, round=2))[Kind.DELTA].clone()
    again = steps.run(half, local_of(bench, data, plan, received=sent))[Kind.DELTA]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, later)


def test_the_mean_loss_is_over_the_samples_used() -> None:
    data, plan = samples(7, SHAPE), Plan(lr=1e-9, batch_size=4, epochs=1)
    bench = bench_of("mlp", SHAPE, hidden="16")
    work = local_of(bench, data, plan)
    steps.run(half_of("fedavg", bench), work)
    expected = bench.net.loss(bench.net(data.x)[1], data.y).item()
    assert work.mean_loss() == pytest.approx(expected, rel=1e-5)


def test_an_allowance_that_is_used_up_ends_the_round_early() -> None:
    bench = bench_of("mlp", SHAPE, hidden="16")
    work = local_of(bench, samples(20, SHAPE), Plan(lr=0.1, batch_size=4, epochs=2))
    steps.run(half_of("fedavg", bench), work, proceed=lambda: work.steps_done < 3)
    assert (work.steps_done, work.steps_total) == (3, 10)
    assert math.isfinite(work.mean_loss())


@pytest.mark.parametrize("net", [None, NormalisedNet], ids=["plain", "BatchNorm"])
def test_the_simulated_seconds_of_a_round_are_those_that_were_foreseen(
    tmp_path: Path, net: Callable[[], Net] | None
) -> None:
    """Shards of 13 and 7 have a last batch of one sample, which a model with BatchNorm joins to another."""
    plan, sizes = Plan(lr=0.1, batch_size=6, epochs=2), (13, 7)
    run = Federation(tmp_path, "fedavg", plan=plan, sizes=sizes, net=net, clock="simulated")
    for number in (1, 2):
        foreseen = run.learner.expected(run.learner.round(number, (0, 1), dict(enumerate(sizes))))["time"]
        assert run.round()["simulated_s"] == foreseen
