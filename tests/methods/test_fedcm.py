"""FedCM (Xu et al. 2021): local steps mixed with the direction of the last round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeflock.common.errors import BadValue
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan
from support.federation import WIDTHS, Federation
from support.hand_mlp import Vector, gradient
from support.interrupted import check_that_kills_leave_no_trace

COHORTS: list[tuple[int, ...]] = [(0, 1, 2), (0, 2), (1,), (0, 1, 2)]
LOST: list[tuple[int, ...]] = [(), (2,), (), ()]
PLANS = {
    "plain": Plan(lr=0.1, batch_size=6, epochs=2),
    "all of it": Plan(lr=0.1, batch_size=6, epochs=2, momentum=0.5, weight_decay=0.05),
}


class Hand:
    """The algorithm; `step` plays a round and moves w and D."""

    def __init__(self, run: Federation, alpha: float, eta_g: float, clip: float, weighted: bool) -> None:
        self.run, self.alpha, self.eta_g, self.clip, self.weighted = run, alpha, eta_g, clip, weighted
        self.w, self.d, self.t = run.model, np.zeros_like(run.model), 0

    def step(self, counted: list[int]) -> None:
        self.t += 1
        moved = {i: self.local(i) - self.w for i in counted}
        shares = {i: self.run.sizes[i] if self.weighted else 1 for i in counted}
        mean = np.sum([shares[i] * moved[i] for i in counted], axis=0) / sum(shares.values())
        steps = sum(len(self.run.batches(i, self.t)) for i in counted) / len(counted)
        self.d = -mean / (self.run.lr(self.t) * steps)
        self.w = self.w + self.eta_g * mean

    def local(self, i: int) -> Vector:
        plan, x, v = self.run.plan, self.w.copy(), np.zeros_like(self.w)
        for features, labels in self.run.batches(i, self.t):
            g = self.alpha * gradient(x, WIDTHS, features, labels) + (1 - self.alpha) * self.d
            g = g + plan.weight_decay * x
            if self.clip:
                g = g * min(1.0, float(self.clip / np.linalg.norm(g)))
            v = plan.momentum * v + g
            x = x - self.run.lr(self.t) * v
        return x


@pytest.mark.parametrize("weighting", ["table", "weighted"])
@pytest.mark.parametrize("name", PLANS)
def test_rounds_with_absent_clients_and_a_lost_update_equal_the_hand_computation(
    tmp_path: Path, name: str, weighting: str
) -> None:
    """K_i are 8, 4 and 6, D takes the plain mean of those that count; the rate decays over the rounds."""
    options = {"cm_alpha": "0.4", "eta_g": "1.3", "clip": "0.3", "weighting": weighting}
    run = Federation(tmp_path, "fedcm", options, plan=PLANS[name], lr_decay=0.8)
    hand = Hand(run, 0.4, 1.3, 0.3, weighting == "weighted")
    for cohort, lost in zip(COHORTS, LOST, strict=True):
        hand.step([i for i in cohort if i not in lost])
        metrics = run.round(*cohort, lost=lost)
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
        np.testing.assert_allclose(run.learner.state.vectors["momentum"].numpy(), hand.d, atol=1e-5)
        assert metrics["momentum_norm"] == pytest.approx(np.linalg.norm(hand.d), rel=1e-4)
    assert np.linalg.norm(hand.d) > 0.1


def test_alpha_1_is_fedavg_with_equal_weights_bit_for_bit(tmp_path: Path) -> None:
    plan = PLANS["all of it"]
    run = Federation(tmp_path / "cm", "fedcm", {"cm_alpha": "1", "clip": "0.5"}, plan=plan)
    plain = Federation(tmp_path / "plain", "fedavg", {"weighting": "uniform", "clip": "0.5"}, plan=plan)
    other = Federation(tmp_path / "other", "fedcm", {"cm_alpha": "0.9", "clip": "0.5"}, plan=plan)
    for cohort in COHORTS:
        for each in (run, plain, other):
            each.round(*cohort)
    assert np.array_equal(run.model, plain.model)
    assert not np.array_equal(other.model, plain.model)


def test_a_small_alpha_gathers_the_direction_round_by_round(tmp_path: Path) -> None:
    """With full batches g hardly changes: D is alpha g after one round, three times that after three."""
    plan = Plan(lr=0.1, batch_size=0, steps=3)
    run = Federation(tmp_path / "few", "fedcm", {"cm_alpha": "0.001"}, plan=plan)
    plain = Federation(tmp_path / "plain", "fedavg", {"weighting": "uniform"}, plan=plan)
    w = [run.model]
    for _ in range(3):
        run.round()
        w.append(run.model)
    plain.round()
    first, last, whole = w[1] - w[0], w[3] - w[2], plain.model - w[0]
    assert np.linalg.norm(first) == pytest.approx(0.001 * np.linalg.norm(whole), rel=0.1)
    np.testing.assert_allclose(last, 3 * first, atol=0.02 * float(np.linalg.norm(last)))


def test_rounds_without_a_step_and_without_a_rate_move_nothing(tmp_path: Path) -> None:
    run = Federation(tmp_path, "fedcm", plan=Plan(lr=0.0, steps=0))
    before = run.model
    assert [run.round()["momentum_norm"] for _ in range(2)] == [0.0, 0.0]
    assert np.array_equal(run.model, before)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cm_alpha": "0"}, r"cm_alpha is '0', allowed is a number in \(0, 1\]"),
        ({"cm_alpha": "1.1"}, r"cm_alpha is '1.1', allowed is a number in \(0, 1\]"),
        ({"eta_g": "0"}, "eta_g is '0', allowed is a number > 0"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("fedcm").params, options)


def test_a_real_run_keeps_its_direction_over_kills(tmp_path: Path) -> None:
    check_that_kills_leave_no_trace(tmp_path, "--method=fedcm", "--clients=3", "--cohort=2", "--rounds=12")
