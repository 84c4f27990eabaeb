"""SCAFFOLD (Karimireddy et al. 2020, Algorithm 1, option II): control variates at both ends."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from edgeflock.common.errors import BadValue
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import State
from edgeflock.methods.scaffold import effective
from support.federation import COHORTS, LOST, PLANS, WIDTHS, Federation
from support.hand_mlp import Vector, gradient
from support.interrupted import check_that_kills_leave_no_trace
from support.mirrors import client_vectors, server_vector
from support.processes import flock, until
from support.training import bench_of, broadcast_of, half_of, local_of, samples


class Hand:
    """The algorithm; `step` plays a round and moves w, c and every c_i."""

    def __init__(self, run: Federation, eta_g: float, weighted: bool = False) -> None:
        self.run, self.eta_g, self.weighted, self.t = run, eta_g, weighted, 0
        self.w = run.model
        self.c = np.zeros_like(self.w)
        self.c_of = [np.zeros_like(self.w) for _ in run.sizes]

    def step(self, cohort: tuple[int, ...], lost: tuple[int, ...] = ()) -> None:
        self.t += 1
        counted = [i for i in cohort if i not in lost]
        found = {i: self.local(i) for i in counted}
        shares = {i: self.run.sizes[i] if self.weighted else 1 for i in counted}
        mean = sum(shares[i] * found[i][0] for i in counted) / sum(shares.values())
        c = self.c.copy()
        for i in counted:
            plus = self.c_of[i] - c + found[i][1]
            self.c = self.c + (plus - self.c_of[i]) / len(self.run.sizes)
            self.c_of[i] = plus
        self.w = self.w + self.eta_g * mean

    def local(self, i: int) -> tuple[Vector, Vector]:
        """Return D_i and (w - x+)/(K lr), K as the sum of what each gradient moves under momentum."""
        plan, lr = self.run.plan, self.run.lr(self.t)
        x, v, count, reach = self.w.copy(), np.zeros_like(self.w), 0.0, 0.0
        for features, labels in self.run.batches(i, self.t):
            g = gradient(x, WIDTHS, features, labels) - self.c_of[i] + self.c + plan.weight_decay * x
            v = plan.momentum * v + g
            x = x - lr * v
            reach = plan.momentum * reach + 1
            count += reach
        return x - self.w, (self.w - x) / (count * lr)


@pytest.mark.parametrize("weighting", ["table", "weighted"])
@pytest.mark.parametrize("name", PLANS)
def test_rounds_with_absent_clients_and_a_lost_update_equal_the_hand_computation(
    tmp_path: Path, name: str, weighting: str
) -> None:
    """K_i are 8, 4 and 6; the weighting changes the mean of D_i and nothing else."""
    run = Federation(
        tmp_path, "scaffold", {"eta_g": "0.7", "weighting": weighting}, plan=PLANS[name], lr_decay=0.8
    )
    hand = Hand(run, 0.7, weighting == "weighted")
    for cohort, lost in zip(COHORTS, LOST, strict=True):
        hand.step(cohort, lost)
        run.round(*cohort, lost=lost)
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
        np.testing.assert_allclose(run.learner.state.vectors["control"].numpy(), hand.c, atol=1e-5)
        for index, c_i in enumerate(hand.c_of):
            kept = run.states[index].vectors.get("control", torch.zeros(run.model.size))
            np.testing.assert_allclose(kept.numpy(), c_i, atol=1e-5)
    assert np.abs(hand.c).max() > 0.01


def test_the_first_round_is_fedavg_s_with_equal_weights_bit_for_bit(tmp_path: Path) -> None:
    plan = PLANS["momentum"]
    run = Federation(tmp_path / "a", "scaffold", plan=plan)
    plain = Federation(tmp_path / "b", "fedavg", {"weighting": "uniform"}, plan=plan)
    for same in (True, False):
        run.round()
        plain.round()
        assert np.array_equal(run.model, plain.model) == same


def controls(run: Federation) -> tuple[Vector, Vector]:
    """Return c and the mean of all c_i."""
    mine = [state.vectors.get("control", torch.zeros(run.model.size)).double() for state in run.states]
    return run.learner.state.vectors["control"].double().numpy(), torch.stack(mine).mean(0).numpy()


@pytest.mark.parametrize("codec", ["identity", "fp16", "bf16", "int8", "int8+zstd"])
def test_c_stays_the_mean_of_all_c_i_whatever_the_codec(tmp_path: Path, codec: str) -> None:
    run = Federation(tmp_path / "coded", "scaffold", codec=codec)
    exact = Federation(tmp_path / "exact", "scaffold")
    for cohort, lost in zip(COHORTS, LOST, strict=True):
        run.round(*cohort, lost=lost)
        exact.round(*cohort, lost=lost)
        c, mean = controls(run)
        np.testing.assert_allclose(c, mean, atol=3e-7)
    error = np.abs(controls(run)[0] - controls(exact)[0]).max()
    assert (error > 3e-6) == (codec != "identity")  # ten times the tolerance: the codec did lose something


def test_an_update_that_does_not_count_leaves_both_ends(tmp_path: Path) -> None:
    run = Federation(tmp_path, "scaffold")
    run.round()
    before = run.states[1].vectors["control"].clone()
    c = run.learner.state.vectors["control"].clone()
    run.round(1, 2, lost=(1,))
    assert torch.equal(run.states[1].vectors["control"], before)
    assert not torch.equal(run.learner.state.vectors["control"], c)
    np.testing.assert_allclose(*controls(run), atol=3e-7)


def test_a_lost_c_i_is_a_first_participation_and_the_server_says_so(tmp_path: Path) -> None:
    """The lost share stays in c for ever: c is apart from the mean of the c_i by it."""
    run = Federation(tmp_path, "scaffold")
    hand = Hand(run, 1.0)
    gone = hand.w
    for number in range(4):
        if number == 2:
            gone = hand.c_of[1]
            run.forget(1)
            hand.c_of[1] = np.zeros_like(hand.w)
        hand.step((0, 1, 2))
        assert run.round().get("lost_states", 0) == (number == 2)
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
    c, mean = controls(run)
    np.testing.assert_allclose(c, mean + gone / 3, atol=1e-6)
    assert np.abs(gone).max() > 0.01


def test_a_late_first_participation_is_no_loss(tmp_path: Path) -> None:
    run = Federation(tmp_path, "scaffold")
    for cohort, lost in (((0, 1), ()), ((1, 2), (2,)), ((0, 2), ())):
        assert "lost_states" not in run.round(*cohort, lost=lost)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_k_counts_what_a_constant_gradient_moves(steps: int, momentum: float) -> None:
    moved = v = 0.0
    for _ in range(steps):
        v = momentum * v + 1
        moved += v
    assert effective(steps, momentum) == pytest.approx(moved)


def test_n_is_everybody_who_was_ready_when_the_round_opened(tmp_path: Path) -> None:
    run = Federation(tmp_path, "scaffold")
    half, sums = run.learner.half, run.learner._fold.total.sums
    sums.reset()
    sums.vectors["control"].fill_(6.0)
    state = State({name: torch.zeros_like(vector) for name, vector in run.learner.state.vectors.items()})
    half.commit(state, sums, run.learner.round(1, (0, 1), dict.fromkeys(range(4), 10)))
    assert float(state.vectors["control"][0]) == 1.5


def test_what_travels_is_twice_the_model_and_once_in_the_first_round(tmp_path: Path) -> None:
    run = Federation(tmp_path, "scaffold")
    for number, down in ((1, {Kind.MODEL}), (2, {Kind.MODEL, Kind.CONTROL})):
        opened = run.learner.round(number, (0,), {0: 20})
        assert run.learner.half.broadcast(run.learner.state, opened).keys() == down
        assert run.learner.half.uploads(opened) == (Kind.DELTA, Kind.CONTROL)


def test_a_client_without_samples_is_not_counted_but_is_of_the_roster(tmp_path: Path) -> None:
    run = Federation(tmp_path, "scaffold", sizes=(12, 0))
    hand = Hand(run, 1.0)
    for _ in range(2):
        hand.step((0,))
        run.round()
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
    assert run.states[1].vectors == {}
    np.testing.assert_allclose(*controls(run), atol=3e-7)


def test_the_term_of_a_step_is_c_less_c_i() -> None:
    bench = bench_of("mlp", (1, 4, 5), hidden="8")
    half, received = half_of("scaffold", bench), broadcast_of(bench)
    c, c_i = torch.full_like(bench.params, 3.0), torch.full_like(bench.params, 1.0)
    for given, state, expected in (
        ({}, State(), 0.0),
        ({Kind.CONTROL: c}, State(), 3.0),
        ({Kind.CONTROL: c}, State({"control": c_i}), 2.0),
        ({}, State({"control": c_i}), -1.0),
    ):
        plan = PLANS["plain"]
        work = local_of(bench, samples(9, (1, 4, 5)), plan, received={**received, **given}, state=state)
        half.begin(work)
        work.grads.zero_()
        half.gradient(work)
        assert torch.equal(work.grads, torch.full_like(work.grads, expected))


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf"])
def test_an_eta_g_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match=f"eta_g is '{text}', allowed is a number > 0"):
        parse(load("scaffold").params, {"eta_g": text})


@pytest.mark.parametrize("codec", ["identity", "int8+zstd", "topk:0.2"])
def test_a_real_run_keeps_the_controls_over_kills(tmp_path: Path, codec: str) -> None:
    flags = ("--method=scaffold", "--clients=3", "--cohort=2", "--rounds=12", "--momentum=0.5")
    check_that_kills_leave_no_trace(tmp_path, *flags, f"--codec={codec}")
    for folder in (tmp_path / "calm", tmp_path / "killed"):
        c, mine = server_vector(folder, "control"), client_vectors(folder, "control")
        assert len(mine) == 3
        np.testing.assert_allclose(c, np.mean(mine, axis=0), atol=1e-6)
        assert np.abs(c).max() > 1e-3


def test_in_online_mode_who_comes_later_counts_from_the_next_round_on(tmp_path: Path) -> None:
    """N of each round, as the journal names it: two, then perhaps three, then four."""
    flags = ("--method=scaffold", "--clients=4", "--participation=online", "--cohort=2", "--rounds=100000")
    with flock(tmp_path) as made:
        server = made.server(*flags)
        made.client("c0,c1")
        server.wait_for("round_committed", count=3)

        def known() -> list[int]:
            query = "SELECT samples FROM rounds JOIN rosters ON number = roster ORDER BY round"
            return [len(json.loads(samples)) for (samples,) in made.rows(query)]

        before = known()
        made.client("c2,c3")
        after = until(lambda: found if (found := known())[-1] == 4 else None, lambda: f"4 in {known()}")
    assert set(before) == {2}
    assert after == sorted(after)
