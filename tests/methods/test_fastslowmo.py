"""FastSlowMo (Yang et al. 2022): FedNAG with Nesterov's momentum on the server, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeflock.common.errors import BadValue
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan
from support.federation import Federation, nag
from support.interrupted import check_that_kills_leave_no_trace

PLAN = Plan(lr=0.1, batch_size=6, epochs=2, weight_decay=0.02)


@pytest.mark.parametrize("weighting", ["table", "uniform"])
@pytest.mark.parametrize("carry", ["y", "buffer"])
def test_rounds_equal_the_hand_computation(tmp_path: Path, carry: str, weighting: str) -> None:
    """x_+ = y_+ + gamma_a (y_+ - y_+ before); with carry=y the clients start with y = mean y_i."""
    options = {"gamma": "0.6", "gamma_a": "0.7", "carry": carry, "weighting": weighting}
    run = Federation(tmp_path, "fastslowmo", options, plan=PLAN, lr_decay=0.8)
    shares = run.sizes if weighting == "table" else (1, 1, 1)
    x = y = plus = jump = run.model
    for t in range(1, 6):
        ends = [nag(run, i, t, x, y, 0.6) for i in range(3)]
        mean_x, minus = np.average(np.array(ends), axis=0, weights=shares)
        jump = 0.7 * (mean_x - plus)
        x, plus = mean_x + jump, mean_x
        y = minus if carry == "y" else minus + jump
        run.round()
        np.testing.assert_allclose(run.model, x, atol=2e-5)
        np.testing.assert_allclose(run.learner.state.vectors["momentum"].numpy(), x - y, atol=2e-5)
    assert np.abs(jump).max() > 0.01


@pytest.mark.parametrize("carry", ["y", "buffer"])
def test_gamma_a_0_is_fednag_bit_for_bit(tmp_path: Path, carry: str) -> None:
    fast = Federation(tmp_path / "fast", "fastslowmo", {"gamma_a": "0", "carry": carry}, plan=PLAN)
    nag_run = Federation(tmp_path / "nag", "fednag", plan=PLAN)
    for _ in range(3):
        fast.round()
        nag_run.round()
    assert np.array_equal(fast.model, nag_run.model)


def test_what_the_clients_carry_changes_the_second_round_and_not_the_first(tmp_path: Path) -> None:
    runs = [
        Federation(tmp_path / carry, "fastslowmo", {"carry": carry}, plan=PLAN) for carry in ("y", "buffer")
    ]
    for same in (True, False):
        for run in runs:
            run.round()
        assert np.array_equal(runs[0].model, runs[1].model) == same


def test_gamma_0_leaves_the_server_s_momentum_alone(tmp_path: Path) -> None:
    """Then y_i = x_i, and it is FedMom with eta 1 as long as everybody has as many samples."""
    fast = Federation(
        tmp_path / "fast", "fastslowmo", {"gamma": "0", "gamma_a": "0.7", "carry": "buffer"}, sizes=(12, 12)
    )
    mom = Federation(tmp_path / "mom", "fedmom", {"eta": "1", "beta": "0.7"}, sizes=(12, 12))
    for _ in range(3):
        fast.round()
        mom.round()
    np.testing.assert_allclose(fast.model, mom.model, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gamma": "1"}, r"gamma is '1', allowed is a number in \[0, 1\)"),
        ({"gamma_a": "1"}, r"gamma_a is '1', allowed is a number in \[0, 1\)"),
        ({"gamma_a": "-0.1"}, r"gamma_a is '-0.1', allowed is a number in \[0, 1\)"),
        ({"carry": "x"}, "carry is 'x', allowed is y or buffer"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("fastslowmo").params, options)


def test_a_real_run_keeps_its_momenta_over_kills(tmp_path: Path) -> None:
    check_that_kills_leave_no_trace(tmp_path, "--method=fastslowmo", "--clients=3", "--rounds=12")
