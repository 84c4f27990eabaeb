"""SlowMo (Wang et al. 2020, Algorithm 1): slow momentum on the server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeflock.common.errors import BadValue
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan
from support.federation import WIDTHS, Federation
from support.hand_mlp import local_round
from support.interrupted import check_that_kills_leave_no_trace

COHORTS = [(0, 1, 2), (0, 2), (1,), (0, 1, 2)]
PLAN = Plan(lr=0.1, batch_size=6, epochs=2, momentum=0.5)


@pytest.mark.parametrize("weighting", ["table", "uniform"])
def test_rounds_equal_the_hand_computation(tmp_path: Path, weighting: str) -> None:
    """u <- beta u + (w - mean x)/lr, w <- w - a lr u, with a rate that decays over the rounds."""
    run = Federation(
        tmp_path, "slowmo", {"slow_lr": "0.7", "beta": "0.6", "weighting": weighting}, plan=PLAN, lr_decay=0.8
    )
    w = run.model
    u = np.zeros_like(w)
    for t, cohort in enumerate(COHORTS, start=1):
        lr = 0.1 * 0.8 ** (t - 1)
        ends = {k: w + local_round(w, WIDTHS, run.batches(k, t), lr=lr, momentum=0.5) for k in cohort}
        shares = {k: run.sizes[k] if weighting == "table" else 1 for k in cohort}
        mean = sum(shares[k] * end for k, end in ends.items()) / sum(shares.values())
        u = 0.6 * u + (w - mean) / lr
        w = w - 0.7 * lr * u
        metrics = run.round(*cohort)
        np.testing.assert_allclose(run.model, w, atol=1e-5)
        assert metrics["momentum_norm"] == pytest.approx(np.linalg.norm(u), rel=1e-4)
    assert np.linalg.norm(u) > 0.1


def test_beta_0_and_a_1_is_fedavg(tmp_path: Path) -> None:
    slow = Federation(tmp_path / "slow", "slowmo", {"beta": "0", "slow_lr": "1"})
    plain = Federation(tmp_path / "plain", "fedavg")
    for _ in range(3):
        slow.round()
        plain.round()
    np.testing.assert_allclose(slow.model, plain.model, atol=1e-6)


def test_beta_0_and_a_2_is_fedavg_with_a_doubled_server_step(tmp_path: Path) -> None:
    """The control of FedTR's tables: w + 2 mean(x_i - w), whatever was before, and FedAvg's clients."""
    run = Federation(tmp_path, "slowmo", {"beta": "0", "slow_lr": "2"}, plan=PLAN, lr_decay=0.8)
    w = run.model
    for t, cohort in enumerate(COHORTS, start=1):
        lr = 0.1 * 0.8 ** (t - 1)
        moved = {k: local_round(w, WIDTHS, run.batches(k, t), lr=lr, momentum=0.5) for k in cohort}
        w = w + 2 * run.mean(moved, weighted=True)
        run.round(*cohort)
        np.testing.assert_allclose(run.model, w, atol=1e-5)
    once = Federation(tmp_path / "once", "fedavg", plan=PLAN)
    twice = Federation(tmp_path / "twice", "slowmo", {"beta": "0", "slow_lr": "2"}, plan=PLAN)
    start = once.model
    once.round()
    twice.round()
    np.testing.assert_allclose(twice.model - start, 2 * (once.model - start), atol=1e-6)


def test_the_extremes_of_the_options_do_what_they_say(tmp_path: Path) -> None:
    """A small slow_lr moves little; much momentum carries the model on in the same direction."""
    moved = {}
    for name, options in (
        ("still", {"slow_lr": "0.001"}),
        ("less", {"beta": "0"}),
        ("more", {"beta": "0.9"}),
    ):
        run = Federation(tmp_path / name, "slowmo", options)
        start = run.model
        for _ in range(4):
            run.round()
        moved[name] = float(np.linalg.norm(run.model - start))
    assert 100 * moved["still"] < moved["less"] < moved["more"]


def test_rounds_without_a_step_and_without_a_rate_move_nothing(tmp_path: Path) -> None:
    run = Federation(tmp_path, "slowmo", plan=Plan(lr=0.0, steps=0))
    before = run.model
    run.round()
    assert np.array_equal(run.model, before)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"slow_lr": "0"}, "slow_lr is '0', allowed is a number > 0"),
        ({"beta": "1"}, r"beta is '1', allowed is a number in \[0, 1\)"),
        ({"beta": "-0.1"}, r"beta is '-0.1', allowed is a number in \[0, 1\)"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("slowmo").params, options)


def test_a_real_run_keeps_its_momentum_over_kills(tmp_path: Path) -> None:
    check_that_kills_leave_no_trace(tmp_path, "--method=slowmo", "--clients=3", "--cohort=2", "--rounds=30")
