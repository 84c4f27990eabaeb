"""Mime (Karimireddy et al. 2020, Algorithm 1 with SGDm): MimeLite with the correction of SVRG."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit.base import Batch
from edgeflock.methods.kit.values import Plan
from support.federation import COHORTS, LOST, PLANS, WIDTHS, Federation
from support.hand_mlp import Vector, gradient
from support.interrupted import check_that_kills_leave_no_trace
from support.training import bench_of, broadcast_of, half_of, local_of, samples


@pytest.mark.parametrize("weighting", ["table", "weighted"])
@pytest.mark.parametrize("name", PLANS)
def test_rounds_with_absent_clients_and_a_lost_update_equal_the_hand_computation(
    tmp_path: Path, name: str, weighting: str
) -> None:
    """g - g_w + c with c of the round before; none of it in round 1."""
    plan, b = PLANS[name], 0.7
    run = Federation(tmp_path, "mime", {"b": "0.7", "weighting": weighting}, plan=plan, lr_decay=0.8)
    w = run.model
    m = np.zeros_like(w)
    c: Vector | None = None
    for t, (cohort, lost) in enumerate(zip(COHORTS, LOST, strict=True), start=1):
        ends, full = {}, {}
        for i in set(cohort) - set(lost):
            x, v = w.copy(), np.zeros_like(w)
            for batch in run.batches(i, t):
                g = gradient(x, WIDTHS, *batch)
                if c is not None:
                    g = g - gradient(w, WIDTHS, *batch) + c
                v = plan.momentum * v + (1 - b) * g + b * m + plan.weight_decay * x
                x = x - run.lr(t) * v
            ends[i], full[i] = x, run.full_gradient(i, w)
        c = run.mean(full, weighted=weighting == "weighted")
        m = (1 - b) * c + b * m
        w = run.mean(ends, weighted=weighting == "weighted")
        run.round(*cohort, lost=lost)
        np.testing.assert_allclose(run.model, w, atol=1e-5)
        for vector, expected in (("momentum", m), ("control", c)):
            np.testing.assert_allclose(run.learner.state.vectors[vector].numpy(), expected, atol=1e-5)
    assert np.abs(m).max() > 0.01


def test_the_first_round_is_mimelite_s_bit_for_bit_and_the_second_is_not(tmp_path: Path) -> None:
    mime, lite = (Federation(tmp_path / name, name) for name in ("mime", "mimelite"))
    for same in (True, False):
        mime.round()
        lite.round()
        assert np.array_equal(mime.model, lite.model) == same


def test_the_correction_uses_the_step_s_own_dropout_mask(tmp_path: Path) -> None:
    """At x = w the batch's two gradients cancel to the last bit: what is left is (1 - b) c + b m."""
    bench, data = bench_of("mlp", (1, 4, 5), hidden="8", dropout="0.5"), samples(9, (1, 4, 5))
    received = broadcast_of(bench)
    received |= {
        Kind.CONTROL: torch.full_like(bench.params, 2.0),
        Kind.MOMENTUM: torch.full_like(bench.params, -4.0),
    }
    half = half_of("mime", bench, b="0.25")
    work = local_of(bench, data, PLANS["plain"], received=received)
    half.begin(work)
    batch = Batch(data.x, data.y, 0)
    half.backward(work, batch)
    assert float(work.grads.abs().max()) == 0
    half.gradient(work)
    torch.testing.assert_close(work.grads, torch.full_like(work.grads, 0.75 * 2 - 0.25 * 4))
    work.params.add_(0.1)
    half.backward(work, batch)
    assert float(work.grads.abs().max()) > 0


def test_with_full_batches_everybody_descends_along_the_mean_gradient(tmp_path: Path) -> None:
    """b = 0, K = 1, no change of the model between c and the step: D_i = -lr c for every client."""
    plan = Plan(lr=0.1, batch_size=0, steps=1)
    run = Federation(tmp_path, "mime", {"b": "0"}, plan=plan)
    start = run.learner.state.model.clone()
    run.round()
    run.learner.state.model.copy_(start)
    c = run.learner.state.vectors["control"].clone()
    for index in range(3):
        run.round(index)
        torch.testing.assert_close(run.learner.state.model, start - 0.1 * c, rtol=0, atol=1e-6)
        run.learner.state.model.copy_(start)
        run.learner.state.vectors["control"].copy_(c)


def test_what_travels_is_three_times_the_model_down_and_twice_up(tmp_path: Path) -> None:
    run = Federation(tmp_path, "mime")
    for number, down in ((1, {Kind.MODEL}), (2, {Kind.MODEL, Kind.MOMENTUM, Kind.CONTROL})):
        opened = run.learner.round(number, (0,), {0: 20})
        assert run.learner.half.broadcast(run.learner.state, opened).keys() == down
        assert run.learner.half.uploads(opened) == (Kind.DELTA, Kind.GRADIENT)


def test_a_real_run_keeps_its_vectors_over_kills(tmp_path: Path) -> None:
    flags = ("--method=mime", "--clients=3", "--cohort=2", "--rounds=12", "--codec=int8")
    check_that_kills_leave_no_trace(tmp_path, *flags)
