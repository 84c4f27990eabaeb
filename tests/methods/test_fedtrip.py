"""FedTrip (Li et al. 2023, Algorithm 1): the triplet term, its history, and the paper's own arithmetic."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgeflock.common.errors import BadValue
from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.flops import forward_flops, parameter_count
from edgeflock.common.payload.package import Kind
from edgeflock.lab.history import read
from edgeflock.lab.report.limits import limits
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan, State
from support.federation import WIDTHS, Federation
from support.hand_mlp import Vector, gradient
from support.interrupted import check_that_kills_leave_no_trace
from support.processes import flock
from support.training import bench_of, broadcast_of, half_of, local_of, samples

PLAN = Plan(lr=0.1, batch_size=6, epochs=2, momentum=0.9, weight_decay=0.01)
SHORT = Plan(lr=0.1, steps=1)  # so short that nothing needs a limit
COHORTS = [(0, 1, 2), (0, 2), (0, 1), (1, 2), (0, 1, 2)]
LOST = [(), (), (0,), (), ()]


@dataclass(frozen=True)
class Hand:
    """Algorithm 1 with the history of counted updates, and with what is not printed there."""

    mu: float = 0.7
    mode: str = "inverse"  # or xi
    limit: float = 0.0
    first: bool = False
    per_epoch: bool = False

    def rounds(
        self, run: Federation, cohorts: list[tuple[int, ...]], lost: Sequence[tuple[int, ...]]
    ) -> list[tuple[Vector, int]]:
        """Return w and the number of limited clients after every round."""
        w, after = run.model, list[tuple[Vector, int]]()
        history = (
            {k: (0, w) for k in range(len(run.sizes))} if self.first else dict[int, tuple[int, Vector]]()
        )
        for t, (cohort, dropped) in enumerate(zip(cohorts, lost, strict=True), start=1):
            ends, limited = dict[int, Vector](), 0
            for k in cohort:
                end, at_limit = self.local(run, k, t, w, history.get(k))
                if k not in dropped:
                    ends[k], limited = end, limited + at_limit
            n = sum(run.sizes[k] for k in ends)
            w = np.sum([run.sizes[k] / n * end for k, end in ends.items()], axis=0)
            history |= {k: (t, end) for k, end in ends.items()}
            after.append((w, limited))
        return after

    def local(
        self, run: Federation, k: int, t: int, w: Vector, before: tuple[int, Vector] | None
    ) -> tuple[Vector, bool]:
        """Return the client's end, and whether xi was lowered to limit / (mu lr K / (1 - m))."""
        plan, batches = run.plan, run.batches(k, t)
        mu = self.mu / plan.epochs if self.per_epoch else self.mu
        last, past = before or (0, w)
        xi = 0.0 if before is None else 1 / (t - last) if self.mode == "inverse" else float(self.mode)
        growth = mu * plan.lr * len(batches) / (1 - plan.momentum)
        limited = bool(self.limit) and xi * growth > self.limit
        xi = self.limit / growth if limited else xi
        x, v = w.copy(), np.zeros_like(w)
        for features, labels in batches:
            g = gradient(x, WIDTHS, features, labels) + mu * (x - w - xi * (x - past))
            v = plan.momentum * v + g + plan.weight_decay * x
            x = x - plan.lr * v
        return x, limited


PRINTED = {"mu": "0.7", "push_limit": "0"}
HANDS = [
    pytest.param(Hand(), PRINTED, id="printed"),
    pytest.param(Hand(mode="1.0"), {**PRINTED, "xi_mode": "const"}, id="xi-1"),
    pytest.param(Hand(mode="0.4"), {**PRINTED, "xi_mode": "const", "xi_value": "0.4"}, id="xi-0.4"),
    pytest.param(Hand(limit=1.0), {"mu": "0.7"}, id="limited"),
    pytest.param(Hand(limit=3.0), {"mu": "0.7", "push_limit": "3"}, id="limited-where-K-is-large"),
    pytest.param(Hand(first=True), {**PRINTED, "first": "initial"}, id="first-initial"),
    pytest.param(Hand(first=True, limit=1.0), {"mu": "0.7", "first": "initial"}, id="first-initial-limited"),
    pytest.param(Hand(per_epoch=True), {**PRINTED, "mu_per": "epoch"}, id="mu-per-epoch"),
    pytest.param(
        Hand(per_epoch=True, limit=1.0), {"mu": "0.7", "mu_per": "epoch"}, id="mu-per-epoch-limited"
    ),
]


@pytest.mark.parametrize(("hand", "options"), HANDS)
def test_rounds_with_absent_clients_and_a_lost_update_equal_the_hand_computation(
    tmp_path: Path, hand: Hand, options: dict[str, str]
) -> None:
    """Client 0's third update is lost: in round 5 its history is that of round 2, three rounds ago."""
    run = Federation(tmp_path, "fedtrip", options, plan=PLAN)
    expected = hand.rounds(run, COHORTS, LOST)
    without = hand.rounds(run, COHORTS, [()] * len(COHORTS))
    for cohort, lost, (w, limited) in zip(COHORTS, LOST, expected, strict=True):
        metrics = run.round(*cohort, lost=lost)
        np.testing.assert_allclose(run.model, w, atol=1e-5)
        assert metrics.get("push_limited") == (limited if hand.limit else None)
    assert np.abs(expected[-1][0] - without[-1][0]).max() > 1e-4


@pytest.mark.parametrize("late", [2, 3])
def test_late_joiners_of_first_initial_are_pushed_from_the_model_before_round_1(
    tmp_path: Path, late: int
) -> None:
    """Client 1 comes in a later round for the first time, where w has left w^0."""
    cohorts: list[tuple[int, ...]] = [*[(0, 2)] * (late - 1), (0, 1, 2)]
    lost: list[tuple[int, ...]] = [()] * late
    hand = Hand(first=True)
    run = Federation(tmp_path, "fedtrip", {**PRINTED, "first": "initial"}, plan=PLAN)
    expected = hand.rounds(run, cohorts, lost)
    silent = replace(hand, first=False).rounds(run, cohorts, lost)
    for cohort in cohorts:
        run.round(*cohort)
    np.testing.assert_allclose(run.model, expected[-1][0], atol=1e-5)
    assert np.abs(expected[-1][0] - silent[-1][0]).max() > 1e-3


def work_with(history: dict[str, float], *, round: int, plan: Plan = SHORT, **options: str) -> float:
    """Return xi in a round, with the scalars of a history."""
    bench = bench_of("linear", (1, 4, 5))
    vectors = {"history": torch.zeros_like(bench.params)} if history else {}
    half = half_of("fedtrip", bench, **options)
    work = local_of(bench, samples(4, (1, 4, 5)), plan, round=round, state=State(vectors, dict(history)))
    return float(half.xi(work))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("last", "now", "xi"), [(1, 2, 1.0), (2, 5, 1 / 3), (1, 101, 0.01), (7, 7, 1.0)])
def test_xi_is_the_inverse_of_the_gap_and_never_above_1(last: int, now: int, xi: float) -> None:
    assert work_with({"round": last}, round=now) == xi


def test_a_first_participation_has_no_push_in_either_mode() -> None:
    assert work_with({}, round=4) == 0
    assert work_with({}, round=4, xi_mode="const", xi_value="0.5") == 0
    assert work_with({"round": 1}, round=4, xi_mode="const", xi_value="0.5") == 0.5


@pytest.mark.parametrize(
    ("limit", "steps", "momentum", "xi"),
    [
        ("0", 20, 0.9, 1.0),  # as printed
        ("1", 20, 0.9, 0.5),  # g = 1 x 1 x 0.01 x 20 / 0.1 = 2
        ("0.5", 20, 0.9, 0.25),
        ("1", 20, 0.0, 1.0),  # g = 0.2
        ("1", 10, 0.9, 1.0),  # g = 1, which may be
        ("1", 40, 0.9, 0.25),
    ],
)
def test_xi_is_lowered_until_the_push_is_no_more_than_its_limit(
    limit: str, steps: int, momentum: float, xi: float
) -> None:
    plan = Plan(lr=0.01, steps=steps, momentum=momentum)
    found = work_with({"round": 1}, round=2, plan=plan, mu="1", push_limit=limit)
    assert found == pytest.approx(xi)


def test_the_limit_counts_the_client_s_own_steps_and_the_lr_of_the_round() -> None:
    """Four samples in batches of one: 4 steps an epoch. xi is 1/2 by the gap, g = lr x 4 E / 0.1 x xi."""
    plan = Plan(lr=0.01, batch_size=1, epochs=5, momentum=0.9)
    state = {"round": 1.0}
    assert work_with(state, round=3, plan=plan, mu="1") == pytest.approx(0.5)  # g is 1
    assert work_with(state, round=3, plan=replace(plan, epochs=10), mu="1") == pytest.approx(0.25)
    assert work_with(state, round=3, plan=replace(plan, lr=0.04), mu="1") == pytest.approx(0.125)
    assert work_with(state, round=3, plan=replace(plan, lr=0.04, steps=1), mu="1") == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("epochs", "steps", "mu"), [(1, None, 0.6), (3, None, 0.2), (1, 8, 0.3), (1, 2, 0.6), (1, 10, 0.24)]
)
def test_mu_per_epoch_is_mu_over_the_passes_of_the_round(epochs: int, steps: int | None, mu: float) -> None:
    """With --steps the passes are those that the steps make, and at least one: 4 batches an epoch."""
    bench, plan = bench_of("linear", (1, 4, 5)), Plan(lr=0.1, batch_size=1, epochs=epochs, steps=steps)
    work = local_of(bench, samples(4, (1, 4, 5)), plan)
    found = half_of("fedtrip", bench, mu="0.6", mu_per="epoch")
    assert found.mu(work) == pytest.approx(mu)  # type: ignore[attr-defined]
    assert half_of("fedtrip", bench, mu="0.6").mu(work) == 0.6  # type: ignore[attr-defined]


def test_clients_swing_ever_further_as_printed_and_not_with_the_limit(tmp_path: Path) -> None:
    """g is up to 24 here: what one round moves is turned round in the next and grows."""
    lengths = {}
    for limit in ("0", "1"):
        run = Federation(tmp_path / limit, "fedtrip", {"mu": "3", "push_limit": limit}, plan=PLAN)
        for _ in range(8):
            run.round()
        lengths[limit] = float(np.linalg.norm(run.model))
    assert lengths["0"] > 100 * lengths["1"]


def test_the_history_is_the_model_and_the_round_of_the_last_counted_update(tmp_path: Path) -> None:
    run = Federation(tmp_path, "fedtrip", plan=PLAN)
    for cohort, lost in zip(COHORTS, LOST, strict=True):
        before = [state.vectors.get("history") for state in run.states]
        run.round(*cohort, lost=lost)
        for index, state in enumerate(run.states):
            moved = index in cohort and index not in lost
            assert (state.scalars.get("round") == run.number) == moved
            assert (state.vectors.get("history") is before[index]) != moved
    run.round(1)  # alone: its end is the model
    np.testing.assert_allclose(run.states[1].vectors["history"].numpy(), run.model, atol=1e-6)


def test_a_lost_history_is_a_first_participation(tmp_path: Path) -> None:
    """After round 2 the state is gone: round 3 is FedProx's from the same model, bit for bit."""
    run = Federation(tmp_path / "trip", "fedtrip", {"mu": "0.7"}, plan=PLAN)
    prox = Federation(tmp_path / "prox", "fedprox", {"mu": "0.7"}, plan=PLAN)
    for _ in range(2):
        run.round()
        prox.round()
    prox.learner.state.model.copy_(run.learner.state.model)
    for index in range(3):
        run.forget(index)
    run.round()
    prox.round()
    assert np.array_equal(run.model, prox.model)


@pytest.mark.parametrize(
    ("options", "other", "same"),
    [
        ({"mu": "0"}, {}, True),
        ({"mu": "0.7", "xi_mode": "const", "xi_value": "0"}, {"mu": "0.7"}, True),
        ({"mu": "0.7", "push_limit": "1e-30"}, {"mu": "0.7"}, True),
        ({"mu": "0.7", "xi_mode": "const", "xi_value": "1"}, {"mu": "0.7"}, False),
    ],
)
def test_mu_0_is_fedavg_and_xi_0_is_fedprox_bit_for_bit(
    tmp_path: Path, options: dict[str, str], other: dict[str, str], same: bool
) -> None:
    trip = Federation(tmp_path / "trip", "fedtrip", options, plan=PLAN)
    plain = Federation(tmp_path / "plain", "fedprox" if other else "fedavg", other, plan=PLAN)
    for _ in range(3):
        trip.round()
        plain.round()
    assert np.array_equal(trip.model, plain.model) == same


def test_with_xi_1_the_extra_gradient_is_constant() -> None:
    """mu (w_hist - a), wherever w is (METHODS 2.1b)."""
    bench = bench_of("mlp", (1, 4, 5), hidden="8")
    history = torch.randn(bench.params.numel(), generator=torch.Generator().manual_seed(1))
    half = half_of("fedtrip", bench, mu="0.7", xi_mode="const", xi_value="1", push_limit="0")
    state = State({"history": history}, {"round": 1.0})
    work = local_of(bench, samples(9, (1, 4, 5)), PLAN, round=4, state=state)
    half.begin(work)
    for shift in (0.0, 3.0):
        work.params.add_(shift)
        work.grads.zero_()
        half.gradient(work)
        torch.testing.assert_close(work.grads, 0.7 * (history - work.start))


def test_the_step_on_a_convolution_equals_autograd_s() -> None:
    """mu/2 (||w - a||^2 - xi ||w - w_hist||^2) through PyTorch, gap 3."""
    bench, data = bench_of("lenet5", (1, 8, 8)), samples(10, (1, 8, 8))
    sent = broadcast_of(bench)
    history = sent[Kind.MODEL] + 0.01
    plan, state = Plan(lr=0.1, batch_size=0, steps=1), State({"history": history}, {"round": 2.0})
    work = local_of(bench, data, plan, round=5, received=sent, state=state)
    half = half_of("fedtrip", bench, mu="0.4")
    half.begin(work)
    work.params.add_(0.02)
    work.grads.zero_()
    half.gradient(work)
    w = work.params.clone().requires_grad_()
    loss = 0.4 / 2 * ((w - sent[Kind.MODEL]).square().sum() - (w - history).square().sum() / 3)
    (expected,) = torch.autograd.grad(loss, w)
    torch.testing.assert_close(work.grads, expected, rtol=1e-5, atol=1e-6)


def test_a_round_without_a_step_leaves_the_history(tmp_path: Path) -> None:
    run = Federation(tmp_path, "fedtrip", sizes=(8, 0))
    run.round()
    assert (run.states[0].scalars, run.states[1].scalars) == ({"round": 1.0}, {})
    bench = bench_of("linear", (1, 4, 5))
    work = local_of(bench, samples(4, (1, 4, 5)), Plan(lr=0.0, steps=0))
    steps.run(half_of("fedtrip", bench), work)
    assert work.new_state == work.state


@pytest.mark.parametrize(("p", "expected"), [(0.4, 0.6109), (0.08, 0.2196)])
def test_the_mean_xi_is_the_paper_s(p: float, expected: float) -> None:
    """E[1/gap] = p ln p / (p - 1) when a client takes part with probability p (IV-C)."""
    assert p * math.log(p) / (p - 1) == pytest.approx(expected, abs=5e-5)
    present = np.flatnonzero(np.random.default_rng(1).random(400_000) < p) + 1
    seen = [work_with({"round": last}, round=int(now)) for last, now in itertools.pairwise(present[:201])]
    gaps = np.diff(present)
    np.testing.assert_array_equal(seen, 1 / gaps[:200])
    assert np.mean(1 / gaps) == pytest.approx(expected, abs=3e-3)


def test_table_5_is_what_the_formula_gives() -> None:
    """GFLOPs of one client's forward passes: 600 samples, 12 steps per round, 4 |w| per step for the term."""
    net = models.build("mlp", input_shape=(1, 28, 28), classes=10, seed=1)
    weights, macs = parameter_count(net), forward_flops(net, (1, 28, 28)) // 2
    assert (weights, macs) == (79_510, 79_400)
    assert round(49 * 600 * macs / 1e9, 3) == 2.334  # FedAvg, 49 rounds
    assert round(28 * (600 * macs + 4 * 12 * weights) / 1e9, 3) == 1.441  # FedTrip, 28 rounds


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mu": "-0.1"}, "mu is '-0.1', allowed is a number >= 0"),
        ({"xi_mode": "gap"}, "xi_mode is 'gap', allowed is inverse or const"),
        ({"mu_per": "round"}, "mu_per is 'round', allowed is step or epoch"),
        ({"first": "last"}, "first is 'last', allowed is none or initial"),
        ({"push_limit": "-1"}, "push_limit is '-1', allowed is a number >= 0"),
        ({"xi_value": "1.1"}, r"xi_value is '1.1', allowed is a number in \[0, 1\]"),
        ({"xi_value": "-0.1"}, r"xi_value is '-0.1', allowed is a number in \[0, 1\]"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("fedtrip").params, options)


def test_a_real_run_keeps_its_history_over_kills_and_skipped_rounds(tmp_path: Path) -> None:
    script = tmp_path / "cohorts.txt"
    lines = ["c0 c1 c2", "c0 c2", "c1 c2", "c0 c1"] * 8
    script.write_text("\n".join(lines))
    flags = ("--method=fedtrip", "--clients=3", f"--rounds={len(lines)}", f"--cohort-script={script}")
    check_that_kills_leave_no_trace(tmp_path, *flags, "--partition=dirichlet:0.5")


def test_the_line_of_a_round_and_the_report_say_how_many_were_limited(tmp_path: Path) -> None:
    """Two clients and 39 steps: g is 3.9 with mu 1. The first round has nothing to limit."""
    with flock(tmp_path) as made:
        server = made.server(
            "--method=fedtrip", "--set=mu=1", "--clients=2", "--rounds=3", "--dataset=digits"
        )
        client = made.client("c0,c1")
        assert [server.ended(), client.ended()] == [0, 0]
    assert [line["push_limited"] for line in server.events("round_committed")] == [0, 2, 2]
    sentence = "push_limit was active in 2 of 3 rounds, for up to 2 clients."
    assert sentence in " ".join(limits(read(made.run_dir)))
