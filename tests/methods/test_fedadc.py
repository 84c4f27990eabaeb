"""FedADC (Ozfatura et al. 2021): the server's momentum spread over the clients' steps."""

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
PLANS = {
    "plain": Plan(lr=0.1, batch_size=6, epochs=2),
    "all of it": Plan(lr=0.05, batch_size=6, epochs=2, momentum=0.5, weight_decay=0.05),
}


class Hand:
    """The algorithm; `step` plays a round and moves w and m."""

    def __init__(self, run: Federation, variant: str, clip: float, weighted: bool) -> None:
        self.run, self.variant, self.clip, self.weighted = run, variant, clip, weighted
        self.w, self.m, self.t = run.model, np.zeros_like(run.model), 0

    def step(self, counted: list[int]) -> None:
        self.t += 1
        lr = self.run.lr(self.t)
        shares = {i: self.run.sizes[i] if self.weighted else 1 for i in counted}
        mean = sum(shares[i] * self.local(i) for i in counted) / sum(shares.values())
        self.m = (self.w - mean) / lr + (0.8 - 0.5) * self.m
        self.w = self.w - 0.7 * lr * self.m

    def local(self, i: int) -> Vector:
        plan, lr, batches = self.run.plan, self.run.lr(self.t), self.run.batches(i, self.t)
        x, v, share = self.w.copy(), np.zeros_like(self.w), 0.5 * self.m / len(batches)
        for features, labels in batches:
            there = x - lr * share if self.variant == "nesterov" else x
            g = gradient(there, WIDTHS, features, labels) + share + plan.weight_decay * x
            g = g * min(1.0, float(self.clip / np.linalg.norm(g)))
            v = plan.momentum * v + g
            x = x - lr * v
        return x


@pytest.mark.parametrize("weighting", ["table", "uniform"])
@pytest.mark.parametrize("variant", ["heavy", "nesterov"])
@pytest.mark.parametrize("name", PLANS)
def test_rounds_with_absent_clients_and_a_lost_update_equal_the_hand_computation(
    tmp_path: Path, name: str, variant: str, weighting: str
) -> None:
    """K_i are 8, 4 and 6, each client divides by its own; the rate decays over the rounds."""
    options = {"beta_g": "0.8", "beta_l": "0.5", "slow_lr": "0.7", "variant": variant}
    options |= {"clip": "0.6", "weighting": weighting}
    run = Federation(tmp_path, "fedadc", options, plan=PLANS[name], lr_decay=0.8)
    hand = Hand(run, variant, 0.6, weighting == "table")
    for cohort, lost in zip(COHORTS, LOST, strict=True):
        hand.step([i for i in cohort if i not in lost])
        metrics = run.round(*cohort, lost=lost)
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
        np.testing.assert_allclose(run.learner.state.vectors["momentum"].numpy(), hand.m, atol=3e-5)
        assert metrics["momentum_norm"] == pytest.approx(np.linalg.norm(hand.m), rel=1e-4)
    assert np.linalg.norm(hand.m) > 0.1


def after_rounds(folder: Path, method: str, **options: str) -> Vector:
    """Return the model after four rounds."""
    run = Federation(folder, method, options)
    for _ in range(4):
        run.round()
    return run.model


def test_without_momentum_it_is_fedavg(tmp_path: Path) -> None:
    """Up to the rounding of a division by lr."""
    expected = after_rounds(tmp_path / "plain", "fedavg")
    for variant in ("heavy", "nesterov"):
        found = after_rounds(tmp_path / variant, "fedadc", beta_g="0", beta_l="0", variant=variant)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_with_the_servers_momentum_alone_it_is_slowmo(tmp_path: Path) -> None:
    found = after_rounds(tmp_path / "adc", "fedadc", beta_g="0.6", beta_l="0", slow_lr="0.5")
    expected = after_rounds(tmp_path / "slow", "slowmo", beta="0.6", slow_lr="0.5")
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_equal_betas_make_m_the_mean_movement_of_the_round(tmp_path: Path) -> None:
    """So a run with slow_lr 1 ends every round at the mean of the clients' ends."""
    run = Federation(tmp_path, "fedadc")
    for _ in range(3):
        before = run.model
        run.round()
        moved = (before - run.model) / run.plan.lr
        np.testing.assert_allclose(run.learner.state.vectors["momentum"].numpy(), moved, atol=1e-5)


def test_the_variants_differ_from_round_2_on(tmp_path: Path) -> None:
    runs = [Federation(tmp_path / name, "fedadc", {"variant": name}) for name in ("heavy", "nesterov")]
    for same in (True, False):
        for run in runs:
            run.round()
        assert np.array_equal(runs[0].model, runs[1].model) == same


def test_rounds_without_a_step_and_without_a_rate_move_nothing(tmp_path: Path) -> None:
    run = Federation(tmp_path, "fedadc", plan=Plan(lr=0.0, steps=0))
    before = run.model
    assert [run.round()["momentum_norm"] for _ in range(2)] == [0.0, 0.0]
    assert np.array_equal(run.model, before)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"beta_g": "1.1"}, r"beta_g is '1.1', allowed is a number in \[0, 1\]"),
        ({"beta_l": "-0.1"}, r"beta_l is '-0.1', allowed is a number in \[0, 1\]"),
        ({"slow_lr": "0"}, "slow_lr is '0', allowed is a number > 0"),
        ({"variant": "plain"}, "variant is 'plain', allowed is heavy or nesterov"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("fedadc").params, options)


@pytest.mark.parametrize("variant", ["heavy", "nesterov"])
def test_a_real_run_keeps_its_momentum_over_kills(tmp_path: Path, variant: str) -> None:
    flags = ("--method=fedadc", "--clients=3", "--cohort=2", "--rounds=12", f"--set=variant={variant}")
    check_that_kills_leave_no_trace(tmp_path, *flags)
