"""MoFedSAM (Qu et al. 2022): FedCM with the gradient taken uphill."""

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
from support.federation import WIDTHS, Federation
from support.hand_mlp import Vector, gradient
from support.interrupted import check_that_kills_leave_no_trace
from support.training import bench_of, broadcast_of, half_of, local_of, samples

COHORTS: list[tuple[int, ...]] = [(0, 1, 2), (0, 2), (1,), (0, 1, 2)]
PLAN = Plan(lr=0.1, batch_size=6, epochs=2, momentum=0.5, weight_decay=0.05)
IMAGE = (1, 8, 8)


class Hand:
    """The algorithm; `step` plays a round and moves w and D."""

    def __init__(self, run: Federation, alpha: float, rho: float, eta_g: float) -> None:
        self.run, self.alpha, self.rho, self.eta_g = run, alpha, rho, eta_g
        self.w, self.d, self.t = run.model, np.zeros_like(run.model), 0

    def step(self, cohort: tuple[int, ...]) -> None:
        self.t += 1
        mean = np.mean([self.local(i) - self.w for i in cohort], axis=0)
        steps_taken = np.mean([len(self.run.batches(i, self.t)) for i in cohort])
        self.d = -mean / (self.run.lr(self.t) * steps_taken)
        self.w = self.w + self.eta_g * mean

    def local(self, i: int) -> Vector:
        plan, x, v = self.run.plan, self.w.copy(), np.zeros_like(self.w)
        for features, labels in self.run.batches(i, self.t):
            g1 = gradient(x, WIDTHS, features, labels)
            g2 = gradient(x + self.rho * g1 / np.linalg.norm(g1), WIDTHS, features, labels)
            g = self.alpha * g2 + (1 - self.alpha) * self.d + plan.weight_decay * x
            v = plan.momentum * v + g
            x = x - self.run.lr(self.t) * v
        return x


def test_rounds_with_absent_clients_equal_the_hand_computation(tmp_path: Path) -> None:
    """rho is so large that the second pass lies elsewhere; the same without it is far away."""
    options = {"cm_alpha": "0.6", "eta_g": "1.3", "sam_rho": "0.5"}
    run = Federation(tmp_path, "mofedsam", options, plan=PLAN, lr_decay=0.8)
    hand, without = Hand(run, 0.6, 0.5, 1.3), Hand(run, 0.6, 0.0, 1.3)
    for cohort in COHORTS:
        hand.step(cohort)
        without.step(cohort)
        run.round(*cohort)
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
        np.testing.assert_allclose(run.learner.state.vectors["momentum"].numpy(), hand.d, atol=1e-5)
    assert np.abs(hand.w - without.w).max() > 1e-2


def test_an_update_that_does_not_count_leaves_no_trace(tmp_path: Path) -> None:
    run = Federation(tmp_path / "lost", "mofedsam", plan=PLAN)
    other = Federation(tmp_path / "absent", "mofedsam", plan=PLAN)
    run.round(0, 1, 2, lost=(1,))
    other.round(0, 2)
    for each in (run, other):
        each.round()
    assert np.array_equal(run.model, other.model)


@pytest.mark.parametrize("alpha", ["0.1", "1"])
def test_rho_0_is_fedcm_bit_for_bit(tmp_path: Path, alpha: str) -> None:
    sam = Federation(tmp_path / "sam", "mofedsam", {"sam_rho": "0", "cm_alpha": alpha}, plan=PLAN)
    plain = Federation(tmp_path / "cm", "fedcm", {"cm_alpha": alpha}, plan=PLAN)
    other = Federation(tmp_path / "far", "mofedsam", {"sam_rho": "0.01", "cm_alpha": alpha}, plan=PLAN)
    for cohort in COHORTS:
        for each in (sam, plain, other):
            each.round(*cohort)
    assert np.array_equal(sam.model, plain.model)
    assert not np.array_equal(other.model, plain.model)


def test_both_passes_share_the_dropout_mask() -> None:
    """With a rho that moves nothing in float32 the second pass repeats the first: what is left is FedCM."""
    data, plan = samples(23, IMAGE), Plan(lr=0.1, batch_size=5)
    bench = bench_of("cnn", IMAGE, dropout="0.5")
    sent = broadcast_of(bench)
    deltas = [
        steps.run(half_of(name, bench, **options), local_of(bench, data, plan, received=sent))[
            Kind.DELTA
        ].clone()
        for name, options in (("fedcm", {}), ("mofedsam", {"sam_rho": "1e-30"}), ("mofedsam", {}))
    ]
    assert torch.equal(deltas[0], deltas[1])
    assert not torch.equal(deltas[0], deltas[2])


def test_the_loss_that_is_reported_is_that_of_the_first_pass() -> None:
    """On one batch and with one step it is the loss of the received model."""
    bench, data, plan = bench_of("mlp", IMAGE), samples(12, IMAGE), Plan(lr=0.1, batch_size=0, steps=1)
    losses, sent = [], broadcast_of(bench)
    for options in ({"sam_rho": "0"}, {"sam_rho": "5"}):
        work = local_of(bench, data, plan, received=sent)
        steps.run(half_of("mofedsam", bench, **options), work)
        losses.append(work.mean_loss())
    assert losses[0] == losses[1]


def test_a_rho_below_0_is_refused() -> None:
    with pytest.raises(BadValue, match=r"sam_rho is '-0\.1', allowed is a number >= 0"):
        parse(load("mofedsam").params, {"sam_rho": "-0.1"})


def test_a_real_run_keeps_its_direction_over_kills(tmp_path: Path) -> None:
    check_that_kills_leave_no_trace(tmp_path, "--method=mofedsam", "--clients=3", "--cohort=2", "--rounds=12")
