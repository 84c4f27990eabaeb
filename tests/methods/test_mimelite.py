"""MimeLite (Karimireddy et al. 2020, Algorithm 1 with SGDm, without the correction)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgeflock.common.errors import BadValue
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan
from support.federation import COHORTS, LOST, PLANS, WIDTHS, Federation
from support.hand_mlp import gradient
from support.interrupted import check_that_kills_leave_no_trace
from support.training import bench_of, broadcast_of, half_of, local_of, samples


@pytest.mark.parametrize("weighting", ["table", "weighted"])
@pytest.mark.parametrize("name", PLANS)
def test_rounds_with_absent_clients_and_a_lost_update_equal_the_hand_computation(
    tmp_path: Path, name: str, weighting: str
) -> None:
    plan, b = PLANS[name], 0.7
    run = Federation(tmp_path, "mimelite", {"b": "0.7", "weighting": weighting}, plan=plan, lr_decay=0.8)
    w = run.model
    m = np.zeros_like(w)
    for t, (cohort, lost) in enumerate(zip(COHORTS, LOST, strict=True), start=1):
        ends, full = {}, {}
        for i in set(cohort) - set(lost):
            x, v = w.copy(), np.zeros_like(w)
            for features, labels in run.batches(i, t):
                g = (1 - b) * gradient(x, WIDTHS, features, labels) + b * m
                v = plan.momentum * v + g + plan.weight_decay * x
                x = x - run.lr(t) * v
            ends[i], full[i] = x, run.full_gradient(i, w)
        m = (1 - b) * run.mean(full, weighted=weighting == "weighted") + b * m
        w = run.mean(ends, weighted=weighting == "weighted")
        run.round(*cohort, lost=lost)
        np.testing.assert_allclose(run.model, w, atol=1e-5)
        np.testing.assert_allclose(run.learner.state.vectors["momentum"].numpy(), m, atol=1e-5)
    assert np.abs(m).max() > 0.01


def test_b_0_is_fedavg_with_equal_weights_bit_for_bit(tmp_path: Path) -> None:
    lite = Federation(tmp_path / "lite", "mimelite", {"b": "0"}, plan=PLANS["momentum"])
    plain = Federation(tmp_path / "plain", "fedavg", {"weighting": "uniform"}, plan=PLANS["momentum"])
    for _ in range(3):
        lite.round()
        plain.round()
    assert np.array_equal(lite.model, plain.model)


def test_much_b_makes_every_step_the_server_s(tmp_path: Path) -> None:
    """With b near 1 the clients of a later round go the same way, whatever their data."""
    ends = {}
    for b in ("0.01", "0.99"):
        run = Federation(tmp_path / b, "mimelite", {"b": b}, plan=Plan(lr=0.1, batch_size=0, steps=3))
        for _ in range(40):
            run.round()
        before, kept = run.model, run.learner.state.model.clone()
        moves = []
        for index in range(3):
            run.learner.state.model.copy_(kept)
            run.round(index)
            moves.append(run.model - before)
        apart = np.linalg.norm(moves[0] - moves[1]) / np.linalg.norm(moves[0])
        ends[b] = float(apart)
    assert 10 * ends["0.99"] < ends["0.01"]


def test_the_full_gradient_is_that_of_the_received_model_in_eval_mode() -> None:
    """It neither uses dropout, nor weight decay, nor where the client has got to."""
    bench, data = bench_of("mlp", (1, 4, 5), hidden="8", dropout="0.5"), samples(30, (1, 4, 5))
    received = broadcast_of(bench)
    plan = Plan(lr=0.5, batch_size=7, epochs=2, weight_decay=0.3)
    work = local_of(bench, data, plan, received=received)
    sent = steps.run(half_of("mimelite", bench), work)
    x, y = data.x.flatten(1).double().numpy(), data.y.numpy()
    expected = gradient(received[Kind.MODEL].double().numpy(), WIDTHS, x, y)
    np.testing.assert_allclose(sent[Kind.GRADIENT].numpy(), expected, atol=1e-5)
    assert float(sent[Kind.DELTA].norm()) > 0.1


def test_what_travels_is_twice_the_model_and_once_in_the_first_round(tmp_path: Path) -> None:
    run = Federation(tmp_path, "mimelite")
    for number, down in ((1, {Kind.MODEL}), (2, {Kind.MODEL, Kind.MOMENTUM})):
        opened = run.learner.round(number, (0,), {0: 20})
        assert run.learner.half.broadcast(run.learner.state, opened).keys() == down
        assert run.learner.half.uploads(opened) == (Kind.DELTA, Kind.GRADIENT)


def test_an_empty_client_counts_in_no_mean(tmp_path: Path) -> None:
    run = Federation(tmp_path / "a", "mimelite", sizes=(12, 0))
    alone = Federation(tmp_path / "b", "mimelite", sizes=(12, 0))
    for _ in range(3):
        run.round()
        alone.round(0)
    assert np.array_equal(run.model, alone.model)
    assert torch.equal(run.learner.state.vectors["momentum"], alone.learner.state.vectors["momentum"])


@pytest.mark.parametrize("method", ["mimelite", "mime"])
@pytest.mark.parametrize("text", ["1", "-0.1", "nan"])
def test_a_b_out_of_range_is_refused(method: str, text: str) -> None:
    with pytest.raises(BadValue, match=rf"b is '{text}', allowed is a number in \[0, 1\)"):
        parse(load(method).params, {"b": text})


def test_a_real_run_keeps_its_momentum_over_kills(tmp_path: Path) -> None:
    flags = ("--method=mimelite", "--clients=3", "--cohort=2", "--rounds=12", "--codec=fp16")
    check_that_kills_leave_no_trace(tmp_path, *flags)
