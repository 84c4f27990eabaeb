"""FedDC (Gao et al. 2022): the drift and the control variates at both ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgeflock.common.errors import BadValue
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import State
from support.federation import COHORTS, LOST, PLANS, WIDTHS, Federation
from support.hand_mlp import Vector, gradient
from support.interrupted import check_that_kills_leave_no_trace
from support.mirrors import client_vectors, server_vector
from support.training import bench_of, broadcast_of, half_of, local_of, samples


class Hand:
    """The authors' code in float64, with the client's own K and the round's rate; `step` plays a round."""

    def __init__(self, run: Federation, alpha: float, weighted: bool = False) -> None:
        self.run, self.alpha, self.weighted, self.t = run, alpha, weighted, 0
        self.w = run.model
        self.c = np.zeros_like(self.w)
        self.c_of = [np.zeros_like(self.w) for _ in run.sizes]
        self.h_of = [np.zeros_like(self.w) for _ in run.sizes]
        self.kept = np.zeros_like(self.w)  # shares of clients that have lost theirs, over N

    def step(self, cohort: tuple[int, ...], lost: tuple[int, ...] = ()) -> None:
        self.t += 1
        found = {i: self.local(i) for i in cohort if i not in lost}
        shares = {i: self.run.sizes[i] if self.weighted else 1 for i in found}
        mean = sum(shares[i] * end for i, (end, _) in found.items()) / sum(shares.values())
        c = self.c.copy()
        for i, (end, slope) in found.items():
            self.h_of[i] = self.h_of[i] + (end - self.w)
            self.c = self.c + (slope - c) / len(self.run.sizes)
            self.c_of[i] = self.c_of[i] - c + slope
        self.w = mean + np.mean(self.h_of, axis=0) + self.kept

    def local(self, i: int) -> tuple[Vector, Vector]:
        """Return x+ and (w - x+)/(K lr), K as the sum of what each gradient moves under momentum."""
        plan, lr = self.run.plan, self.run.lr(self.t)
        x, v, count, reach = self.w.copy(), np.zeros_like(self.w), 0.0, 0.0
        for features, labels in self.run.batches(i, self.t):
            g = gradient(x, WIDTHS, features, labels) + plan.weight_decay * x
            g = g + self.alpha * (x - (self.w - self.h_of[i])) - self.c_of[i] + self.c
            v = plan.momentum * v + g
            x = x - lr * v
            reach = plan.momentum * reach + 1
            count += reach
        return x, (self.w - x) / (count * lr)

    def forget(self, i: int) -> Vector:
        """A client has lost its state: the server's mean keeps the share."""
        gone = self.h_of[i]
        self.kept = self.kept + gone / len(self.run.sizes)
        self.h_of[i], self.c_of[i] = np.zeros_like(self.w), np.zeros_like(self.w)
        return gone


def kept(run: Federation, name: str) -> list[Vector]:
    """Return that vector of every client, zero where it has none."""
    none = torch.zeros(run.model.size)
    return [state.vectors.get(name, none).double().numpy() for state in run.states]


def drifts(run: Federation) -> tuple[Vector, Vector]:
    """Return h and the mean of all h_i."""
    return run.learner.state.vectors["drift"].double().numpy(), np.mean(kept(run, "drift"), axis=0)


@pytest.mark.parametrize("weighting", ["table", "weighted"])
@pytest.mark.parametrize("name", PLANS)
def test_rounds_with_absent_clients_and_a_lost_update_equal_the_hand_computation(
    tmp_path: Path, name: str, weighting: str
) -> None:
    """K_i are 8, 4 and 6; the weighting changes the mean of x_i and nothing else."""
    options = {"alpha": "0.4", "weighting": weighting}
    run = Federation(tmp_path, "feddc", options, plan=PLANS[name], lr_decay=0.8)
    hand = Hand(run, 0.4, weighting == "weighted")
    for cohort, lost in zip(COHORTS, LOST, strict=True):
        hand.step(cohort, lost)
        run.round(*cohort, lost=lost)
        np.testing.assert_allclose(run.model, hand.w, atol=2e-5)
        np.testing.assert_allclose(run.learner.state.vectors["control"].numpy(), hand.c, atol=2e-5)
        np.testing.assert_allclose(drifts(run)[0], np.mean(hand.h_of, axis=0), atol=2e-5)
        np.testing.assert_allclose(kept(run, "drift"), hand.h_of, atol=2e-5)
        np.testing.assert_allclose(kept(run, "control"), hand.c_of, atol=2e-5)
    assert np.abs(hand.h_of).max() > 0.05
    assert np.abs(hand.c).max() > 0.05


def test_the_first_round_is_fedprox_s_and_the_server_goes_twice_as_far(tmp_path: Path) -> None:
    """Without drifts and control variates the terms are alpha (x - w); the mean drift is the mean move."""
    run = Federation(tmp_path / "dc", "feddc", {"alpha": "0.4"})
    prox = Federation(tmp_path / "prox", "fedprox", {"mu": "0.4", "weighting": "uniform"})
    start = run.model
    run.round()
    prox.round()
    np.testing.assert_allclose(run.model - start, 2 * (prox.model - start), atol=1e-6)


def test_without_control_variates_it_is_feddyn(tmp_path: Path) -> None:
    """h_i is minus FedDyn's over alpha: what is left of the difference are c and the c_i."""
    run = Federation(tmp_path / "dc", "feddc", {"alpha": "0.4"})
    dyn = Federation(tmp_path / "dyn", "feddyn", {"alpha": "0.4"})
    for cohort in COHORTS:
        for state in run.states:
            if "control" in state.vectors:
                state.vectors["control"].zero_()
        run.learner.state.vectors["control"].zero_()
        run.round(*cohort)
        dyn.round(*cohort)
        np.testing.assert_allclose(run.model, dyn.model, atol=1e-5)
        np.testing.assert_allclose(kept(run, "drift"), [-h / 0.4 for h in kept(dyn, "h")], atol=1e-5)


@pytest.mark.parametrize("codec", ["identity", "fp16", "int8"])
def test_both_means_stay_what_they_are_whatever_the_codec(tmp_path: Path, codec: str) -> None:
    run = Federation(tmp_path / "coded", "feddc", codec=codec)
    exact = Federation(tmp_path / "exact", "feddc")
    for cohort, lost in zip(COHORTS, LOST, strict=True):
        run.round(*cohort, lost=lost)
        exact.round(*cohort, lost=lost)
        np.testing.assert_allclose(*drifts(run), atol=3e-7)
        c = run.learner.state.vectors["control"].double().numpy()
        np.testing.assert_allclose(c, np.mean(kept(run, "control"), axis=0), atol=3e-6)
    error = np.abs(drifts(run)[0] - drifts(exact)[0]).max()
    assert (error > 3e-6) == (codec != "identity")  # ten times the tolerance: the codec did lose something


def test_an_update_that_does_not_count_leaves_both_ends(tmp_path: Path) -> None:
    run = Federation(tmp_path, "feddc")
    run.round()
    before = dict(run.states[1].vectors)
    run.round(1, 2, lost=(1,))
    assert before.keys() == {"drift", "control"}
    assert all(torch.equal(run.states[1].vectors[name], vector) for name, vector in before.items())
    np.testing.assert_allclose(*drifts(run), atol=3e-7)


def test_a_lost_state_is_a_first_participation_and_the_server_says_so(tmp_path: Path) -> None:
    """The lost share stays in h for ever: h is apart from the mean of the h_i by it."""
    run = Federation(tmp_path, "feddc")
    hand, gone = Hand(run, 0.1), run.model
    for number in range(4):
        if number == 2:
            gone = hand.forget(1)
            run.forget(1)
        hand.step((0, 1, 2))
        assert run.round().get("lost_states", 0) == (number == 2)
        np.testing.assert_allclose(run.model, hand.w, atol=2e-5)
    h, mean = drifts(run)
    np.testing.assert_allclose(h, mean + gone / 3, atol=1e-6)
    assert np.abs(gone).max() > 0.01


def test_n_is_everybody_who_was_ready_when_the_round_opened(tmp_path: Path) -> None:
    run = Federation(tmp_path, "feddc")
    half, sums = run.learner.half, run.learner._fold.total.sums
    sums.reset()
    sums.vectors["delta"].fill_(6.0)  # of two clients
    sums.vectors["control"].fill_(8.0)
    sums.weights["delta"] = 2.0
    state = State({name: torch.zeros_like(vector) for name, vector in run.learner.state.vectors.items()})
    half.commit(state, sums, run.learner.round(1, (0, 1), dict.fromkeys(range(4), 10)))
    assert float(state.vectors["drift"][0]) == 1.5  # 6/4
    assert float(state.vectors["control"][0]) == 2.0
    assert float(state.model[0]) == 4.5  # 6/2 + 3/2


def test_a_client_without_samples_is_not_counted_but_is_of_the_roster(tmp_path: Path) -> None:
    run = Federation(tmp_path, "feddc", sizes=(12, 0))
    hand = Hand(run, 0.1)
    for _ in range(2):
        hand.step((0,))
        run.round(0, 1)
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
    assert run.states[1].vectors == {}


def test_the_terms_of_a_step_are_autograd_s_gradient() -> None:
    """alpha/2 ||x - (w - h_i)||^2 + <x, c - c_i>, through PyTorch."""
    bench = bench_of("mlp", (1, 4, 5), hidden="8")
    half, received = half_of("feddc", bench, alpha="0.4"), broadcast_of(bench)
    random = torch.Generator().manual_seed(1)
    h_i, c_i, c = (torch.randn(bench.params.numel(), generator=random) for _ in range(3))
    state = State({"drift": h_i, "control": c_i})
    work = local_of(
        bench,
        samples(9, (1, 4, 5)),
        PLANS["plain"],
        received={**received, Kind.CONTROL: c},
        state=state,
    )
    half.begin(work)
    work.params.add_(0.02)
    work.grads.zero_()
    half.gradient(work)
    x = work.params.clone().requires_grad_()
    loss = 0.4 / 2 * (x - (received[Kind.MODEL] - h_i)).square().sum() + x @ (c - c_i)
    (expected,) = torch.autograd.grad(loss, x)
    torch.testing.assert_close(work.grads, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf"])
def test_an_alpha_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match=f"alpha is '{text}', allowed is a number > 0"):
        parse(load("feddc").params, {"alpha": text})


def test_a_large_alpha_holds_the_clients_and_a_small_one_lets_them_go(tmp_path: Path) -> None:
    moved = {}
    for alpha in ("0.01", "9"):
        run = Federation(tmp_path / alpha, "feddc", {"alpha": alpha})
        start = run.model
        run.round()
        moved[alpha] = float(np.linalg.norm(run.model - start))
    assert 2 * moved["9"] < moved["0.01"]


def test_a_real_run_keeps_every_drift_over_kills(tmp_path: Path) -> None:
    flags = ("--method=feddc", "--clients=3", "--cohort=2", "--rounds=12")
    check_that_kills_leave_no_trace(tmp_path, *flags)
    for folder in (tmp_path / "calm", tmp_path / "killed"):
        h, mine = server_vector(folder, "drift"), client_vectors(folder, "drift")
        assert len(mine) == 3
        np.testing.assert_allclose(h, np.mean(mine, axis=0), atol=1e-6)
        assert np.abs(h).max() > 1e-3
        c, variates = server_vector(folder, "control"), client_vectors(folder, "control")
        np.testing.assert_allclose(c, np.mean(variates, axis=0), atol=1e-6)
