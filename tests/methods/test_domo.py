"""DOMO (Xu and Huang 2022): momentum at the clients and on the server, joined or not."""

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

COHORTS: list[tuple[int, ...]] = [(0, 1, 2), (0, 2), (1, 2), (0, 1, 2)]
LOST: list[tuple[int, ...]] = [(), (), (1,), ()]
PLAN = Plan(lr=0.05, batch_size=6, epochs=2, weight_decay=0.05)
OPTIONS = {"mu_l": "0.6", "mu_s": "0.7", "slow_lr": "0.8", "beta": "0.4"}


class Hand:
    """The algorithm with momenta, not deltas; `step` plays a round and moves w and m_s."""

    def __init__(self, run: Federation, fusion: str, weighted: bool) -> None:
        self.run, self.fusion, self.weighted = run, fusion, weighted
        self.w, self.m_s, self.t = run.model, np.zeros_like(run.model), 0

    def step(self, counted: list[int]) -> None:
        self.t += 1
        lr, found = self.run.lr(self.t), {i: self.local(i) for i in counted}
        shares = {i: self.run.sizes[i] if self.weighted else 1 for i in counted}
        mean = sum(shares[i] * total / count for i, (total, count) in found.items()) / sum(shares.values())
        self.m_s = 0.7 * self.m_s + mean
        steps = sum(count for _, count in found.values()) / len(found)
        self.w = self.w - 0.8 * lr * steps * self.m_s

    def local(self, i: int) -> tuple[Vector, int]:
        """Return the sum over the steps of m, and how many they were."""
        lr, batches = self.run.lr(self.t), self.run.batches(i, self.t)
        x = self.w - (lr * 0.4 * len(batches) * self.m_s if self.fusion == "pre" else 0.0)
        m, total = np.zeros_like(x), np.zeros_like(x)
        for features, labels in batches:
            g = gradient(x, WIDTHS, features, labels) + self.run.plan.weight_decay * x
            m = 0.6 * m + g * min(1.0, float(0.5 / np.linalg.norm(g)))
            x = x - lr * (m + (0.4 * self.m_s if self.fusion == "intra" else 0.0))
            total = total + m
        return total, len(batches)


@pytest.mark.parametrize("weighting", ["table", "uniform"])
@pytest.mark.parametrize("fusion", ["pre", "intra", "none"])
def test_rounds_with_absent_clients_and_a_lost_update_equal_the_hand_computation(
    tmp_path: Path, fusion: str, weighting: str
) -> None:
    """K_i are 8, 4 and 6; the rate decays, so that what divides by it must take the round's own."""
    options = {**OPTIONS, "clip": "0.5", "fusion": fusion, "weighting": weighting}
    run = Federation(tmp_path, "domo", options, plan=PLAN, lr_decay=0.8)
    hand = Hand(run, fusion, weighting == "table")
    for cohort, lost in zip(COHORTS, LOST, strict=True):
        hand.step([i for i in cohort if i not in lost])
        metrics = run.round(*cohort, lost=lost)
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
        np.testing.assert_allclose(run.learner.state.vectors["momentum"].numpy(), hand.m_s, atol=1e-5)
        assert metrics["momentum_norm"] == pytest.approx(np.linalg.norm(hand.m_s), rel=1e-4)
    assert np.linalg.norm(hand.m_s) > 0.1


def after_rounds(folder: Path, method: str, options: dict[str, str], plan: Plan = PLAN) -> Vector:
    """Return the model after four rounds of everybody, with shards of equal size."""
    run = Federation(folder, method, options, sizes=(12, 12, 12), plan=plan)
    for _ in range(4):
        run.round()
    return run.model


def test_without_fusion_and_server_momentum_it_is_fedavg_with_local_momentum(tmp_path: Path) -> None:
    """Where all K_i are the same; up to the rounding of a division by lr K."""
    options = {"fusion": "none", "mu_s": "0", "slow_lr": "1", "mu_l": "0.6"}
    found = after_rounds(tmp_path / "domo", "domo", options)
    momentum = Plan(lr=0.05, batch_size=6, epochs=2, weight_decay=0.05, momentum=0.6)
    expected = after_rounds(tmp_path / "fedavg", "fedavg", {}, momentum)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    plain = after_rounds(tmp_path / "plain", "fedavg", {})
    assert np.abs(found - plain).max() > 1e-2


def test_without_fusion_and_local_momentum_it_is_slowmo(tmp_path: Path) -> None:
    options = {"fusion": "none", "mu_s": "0.7", "mu_l": "0", "slow_lr": "0.5"}
    found = after_rounds(tmp_path / "domo", "domo", options)
    expected = after_rounds(tmp_path / "slowmo", "slowmo", {"beta": "0.7", "slow_lr": "0.5"})
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("fusion", ["pre", "intra"])
def test_beta_0_joins_nothing(tmp_path: Path, fusion: str) -> None:
    none = after_rounds(tmp_path / "none", "domo", {"fusion": "none"})
    joined = after_rounds(tmp_path / "joined", "domo", {"fusion": fusion, "beta": "0"})
    other = after_rounds(tmp_path / "other", "domo", {"fusion": fusion, "beta": "0.5"})
    assert np.array_equal(joined, none)
    assert np.abs(other - none).max() > 1e-3


def test_rounds_without_a_step_and_without_a_rate_move_nothing(tmp_path: Path) -> None:
    run = Federation(tmp_path, "domo", plan=Plan(lr=0.0, steps=0))
    before = run.model
    assert [run.round()["momentum_norm"] for _ in range(2)] == [0.0, 0.0]
    assert np.array_equal(run.model, before)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mu_l": "1"}, r"mu_l is '1', allowed is a number in \[0, 1\)"),
        ({"mu_s": "-1"}, r"mu_s is '-1', allowed is a number in \[0, 1\)"),
        ({"beta": "1"}, r"beta is '1', allowed is a number in \[0, 1\)"),
        ({"slow_lr": "0"}, "slow_lr is '0', allowed is a number > 0"),
        ({"fusion": "post"}, "fusion is 'post', allowed is pre or intra or none"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("domo").params, options)


def test_a_momentum_of_the_run_is_refused_since_the_clients_have_their_own(tmp_path: Path) -> None:
    from support.processes import flock

    with flock(tmp_path) as made:
        server = made.begin_server("--method=domo", "--clients=1", "--dataset=digits", "--momentum=0.5")
        assert server.ended() == 2
        assert "momentum" in server.sentence()
        assert "domo" in server.sentence()


def test_a_real_run_keeps_its_momentum_over_kills(tmp_path: Path) -> None:
    check_that_kills_leave_no_trace(tmp_path, "--method=domo", "--clients=3", "--cohort=2", "--rounds=12")
