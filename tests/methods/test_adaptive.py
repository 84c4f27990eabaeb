"""FedAdam, FedYogi, FedAdagrad (Reddi et al. 2021, Algorithm 2): server steps that adapt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgeflock.common.errors import BadValue
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan
from support.federation import WIDTHS, Federation
from support.hand_mlp import Vector, local_round
from support.interrupted import check_that_kills_leave_no_trace

COHORTS = [(0, 1, 2), (0, 2), (1,), (0, 1, 2)]
PLAN = Plan(lr=0.1, batch_size=6, epochs=2, momentum=0.5)
Spread = Callable[[Vector, Vector], Vector]
SPREADS: dict[str, Spread] = {
    "fedadam": lambda v, d: 0.8 * v + 0.2 * d**2,
    "fedyogi": lambda v, d: v - 0.2 * d**2 * np.sign(v - d**2),
    "fedadagrad": lambda v, d: v + d**2,
}


def options(method: str, **given: str) -> dict[str, str]:
    return {"beta1": "0.6", **({} if method == "fedadagrad" else {"beta2": "0.8"}), **given}


@pytest.mark.parametrize("weighting", ["table", "uniform"])
@pytest.mark.parametrize("method", SPREADS)
def test_rounds_equal_the_hand_computation(tmp_path: Path, method: str, weighting: str) -> None:
    """m <- b1 m + (1 - b1) D, v as the method says, w <- w + eta m / (sqrt(v) + tau), v_0 = tau^2."""
    given = options(method, eta="0.03", tau="0.02", weighting=weighting)
    run = Federation(tmp_path, method, given, plan=PLAN, lr_decay=0.8)
    w = run.model
    m, v = np.zeros_like(w), np.full_like(w, 0.02**2)
    for t, cohort in enumerate(COHORTS, start=1):
        lr = 0.1 * 0.8 ** (t - 1)
        moved = {k: local_round(w, WIDTHS, run.batches(k, t), lr=lr, momentum=0.5) for k in cohort}
        d = run.mean(moved, weighted=weighting == "table")
        m = 0.6 * m + 0.4 * d
        v = SPREADS[method](v, d)
        w = w + 0.03 * m / (np.sqrt(v) + 0.02)
        metrics = run.round(*cohort)
        np.testing.assert_allclose(run.model, w, atol=1e-5)
        assert metrics["m_norm"] == pytest.approx(np.linalg.norm(m), rel=1e-4)
        assert metrics["v_norm"] == pytest.approx(np.linalg.norm(v), rel=1e-4)
    assert np.linalg.norm(m) > 0.1


@pytest.mark.parametrize("method", ["fedyogi", "fedadagrad"])  # FedAdam's v forgets tau, too
def test_a_huge_tau_makes_it_fedavg_with_a_server_step(tmp_path: Path, method: str) -> None:
    """Where tau is far above every delta, sqrt(v) + tau is 2 tau for all, so eta = 2 tau is FedAvg."""
    run = Federation(tmp_path / "adaptive", method, options(method, beta1="0", tau="1000", eta="2000"))
    plain = Federation(tmp_path / "plain", "fedavg")
    for _ in range(3):
        run.round()
        plain.round()
    np.testing.assert_allclose(run.model, plain.model, atol=1e-5)


def test_yogi_comes_down_slower_than_adam_and_adagrad_never(tmp_path: Path) -> None:
    """After one round of large deltas and some of none, v is ordered so."""
    left = {}
    for method in SPREADS:
        given = options(method, eta="1e-6", tau="1e-4", beta1="0")
        run = Federation(tmp_path / method, method, given, plan=Plan(lr=1.0, batch_size=6), lr_decay=1e-4)
        first, *_, last = (run.round()["v_norm"] for _ in range(4))
        left[method] = last / first
    assert left["fedadam"] < 0.9 * left["fedyogi"]
    assert left["fedyogi"] <= 1 <= left["fedadagrad"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"eta": "0"}, "eta is '0', allowed is a number > 0"),
        ({"tau": "0"}, "tau is '0', allowed is a number > 0"),
        ({"beta1": "1"}, r"beta1 is '1', allowed is a number in \[0, 1\)"),
        ({"beta2": "-0.1"}, r"beta2 is '-0.1', allowed is a number in \[0, 1\)"),
    ],
)
def test_an_option_out_of_range_is_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("fedyogi").params, given)


def test_a_real_run_keeps_its_moments_over_kills(tmp_path: Path) -> None:
    check_that_kills_leave_no_trace(tmp_path, "--method=fedyogi", "--clients=3", "--cohort=2", "--rounds=20")
