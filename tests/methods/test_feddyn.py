"""FedDyn (Acar et al. 2021, Algorithm 1): the dynamic regulariser at both ends."""

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
    """The algorithm; `step` plays a round and moves w, h and every h_i."""

    def __init__(self, run: Federation, alpha: float, weighted: bool = False) -> None:
        self.run, self.alpha, self.weighted, self.t = run, alpha, weighted, 0
        self.w = run.model
        self.h = np.zeros_like(self.w)
        self.h_of = [np.zeros_like(self.w) for _ in run.sizes]

    def step(self, cohort: tuple[int, ...], lost: tuple[int, ...] = ()) -> None:
        self.t += 1
        ends = {i: self.local(i) for i in cohort if i not in lost}
        shares = {i: self.run.sizes[i] if self.weighted else 1 for i in ends}
        for i, end in ends.items():
            self.h_of[i] = self.h_of[i] - self.alpha * (end - self.w)
            self.h = self.h - self.alpha / len(self.run.sizes) * (end - self.w)
        mean = sum(shares[i] * end for i, end in ends.items()) / sum(shares.values())
        self.w = mean - self.h / self.alpha

    def local(self, i: int) -> Vector:
        plan, x, v = self.run.plan, self.w.copy(), np.zeros_like(self.w)
        for features, labels in self.run.batches(i, self.t):
            g = gradient(x, WIDTHS, features, labels) - self.h_of[i] + self.alpha * (x - self.w)
            v = plan.momentum * v + g + plan.weight_decay * x
            x = x - self.run.lr(self.t) * v
        return x


@pytest.mark.parametrize("weighting", ["table", "weighted"])
@pytest.mark.parametrize("name", PLANS)
def test_rounds_with_absent_clients_and_a_lost_update_equal_the_hand_computation(
    tmp_path: Path, name: str, weighting: str
) -> None:
    """K_i are 8, 4 and 6; the weighting changes the mean of x_i and nothing else."""
    options = {"alpha": "0.4", "weighting": weighting}
    run = Federation(tmp_path, "feddyn", options, plan=PLANS[name], lr_decay=0.8)
    hand = Hand(run, 0.4, weighting == "weighted")
    for cohort, lost in zip(COHORTS, LOST, strict=True):
        hand.step(cohort, lost)
        run.round(*cohort, lost=lost)
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
        np.testing.assert_allclose(run.learner.state.vectors["h"].numpy(), hand.h, atol=1e-5)
        for index, h_i in enumerate(hand.h_of):
            kept = run.states[index].vectors.get("h", torch.zeros(run.model.size))
            np.testing.assert_allclose(kept.numpy(), h_i, atol=1e-5)
    assert np.abs(hand.h).max() > 0.01


def test_the_first_local_round_is_fedprox_s(tmp_path: Path) -> None:
    """Without any h_i the term is alpha (x - w); the server then adds the mean movement once more."""
    dyn = Federation(tmp_path / "dyn", "feddyn", {"alpha": "0.4"})
    prox = Federation(tmp_path / "prox", "fedprox", {"mu": "0.4", "weighting": "uniform"})
    start = dyn.model
    dyn.round()
    prox.round()
    np.testing.assert_allclose(dyn.model - start, 2 * (prox.model - start), atol=1e-6)


def parts(run: Federation) -> tuple[Vector, Vector]:
    """Return h and the mean of all h_i."""
    mine = [state.vectors.get("h", torch.zeros(run.model.size)).double() for state in run.states]
    return run.learner.state.vectors["h"].double().numpy(), torch.stack(mine).mean(0).numpy()


@pytest.mark.parametrize("codec", ["identity", "fp16", "bf16", "int8", "topk:0.3"])
def test_h_stays_the_mean_of_all_h_i_whatever_the_codec(tmp_path: Path, codec: str) -> None:
    run = Federation(tmp_path / "coded", "feddyn", codec=codec)
    exact = Federation(tmp_path / "exact", "feddyn")
    for cohort, lost in zip(COHORTS, LOST, strict=True):
        run.round(*cohort, lost=lost)
        exact.round(*cohort, lost=lost)
        np.testing.assert_allclose(*parts(run), atol=3e-8)
    error = np.abs(parts(run)[0] - parts(exact)[0]).max()
    assert (error > 3e-7) == (codec != "identity")  # ten times the tolerance: the codec did lose something


def test_an_update_that_does_not_count_leaves_both_ends(tmp_path: Path) -> None:
    run = Federation(tmp_path, "feddyn")
    run.round()
    before, h = run.states[1].vectors["h"].clone(), run.learner.state.vectors["h"].clone()
    run.round(1, 2, lost=(1,))
    assert torch.equal(run.states[1].vectors["h"], before)
    assert not torch.equal(run.learner.state.vectors["h"], h)
    np.testing.assert_allclose(*parts(run), atol=3e-8)


def test_a_lost_h_i_is_a_first_participation_and_the_server_says_so(tmp_path: Path) -> None:
    """The lost share stays in h for ever: h is apart from the mean of the h_i by it."""
    run = Federation(tmp_path, "feddyn")
    hand = Hand(run, 0.1)
    gone = hand.w
    for number in range(4):
        if number == 2:
            gone = hand.h_of[1]
            run.forget(1)
            hand.h_of[1] = np.zeros_like(hand.w)
        hand.step((0, 1, 2))
        assert run.round().get("lost_states", 0) == (number == 2)
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
    h, mean = parts(run)
    np.testing.assert_allclose(h, mean + gone / 3, atol=1e-7)
    assert np.abs(gone).max() > 0.01


def test_n_is_everybody_who_was_ready_when_the_round_opened(tmp_path: Path) -> None:
    run = Federation(tmp_path, "feddyn", {"alpha": "2"})
    half, sums = run.learner.half, run.learner._fold.total.sums
    sums.reset()
    sums.vectors["delta"].fill_(6.0)  # of two clients
    sums.weights["delta"] = 2.0
    state = State({name: torch.zeros_like(vector) for name, vector in run.learner.state.vectors.items()})
    half.commit(state, sums, run.learner.round(1, (0, 1), dict.fromkeys(range(4), 10)))
    assert float(state.vectors["h"][0]) == -3.0  # 2/4 of 6
    assert float(state.model[0]) == 4.5  # 6/2 + 3/2


def test_a_client_without_samples_is_not_counted_but_is_of_the_roster(tmp_path: Path) -> None:
    run = Federation(tmp_path, "feddyn", sizes=(12, 0))
    hand = Hand(run, 0.1)
    for _ in range(2):
        hand.step((0,))
        run.round()
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
    assert run.states[1].vectors == {}


def test_the_term_of_a_step_is_autograd_s_gradient() -> None:
    """-<h_i, x> + alpha/2 ||x - w||^2, through PyTorch."""
    bench = bench_of("mlp", (1, 4, 5), hidden="8")
    half, received = half_of("feddyn", bench, alpha="0.4"), broadcast_of(bench)
    h_i = torch.randn(bench.params.numel(), generator=torch.Generator().manual_seed(1))
    work = local_of(bench, samples(9, (1, 4, 5)), PLANS["plain"], received=received, state=State({"h": h_i}))
    half.begin(work)
    work.params.add_(0.02)
    work.grads.zero_()
    half.gradient(work)
    x = work.params.clone().requires_grad_()
    loss = -(h_i @ x) + 0.4 / 2 * (x - received[Kind.MODEL]).square().sum()
    (expected,) = torch.autograd.grad(loss, x)
    torch.testing.assert_close(work.grads, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf"])
def test_an_alpha_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match=f"alpha is '{text}', allowed is a number > 0"):
        parse(load("feddyn").params, {"alpha": text})


def test_a_large_alpha_holds_the_clients_and_a_small_one_lets_them_go(tmp_path: Path) -> None:
    moved = {}
    for alpha in ("0.01", "9"):
        run = Federation(tmp_path / alpha, "feddyn", {"alpha": alpha})
        start = run.model
        run.round()
        moved[alpha] = float(np.linalg.norm(run.model - start))
    assert 2 * moved["9"] < moved["0.01"]


@pytest.mark.parametrize("codec", ["identity", "topk:0.2+zstd"])
def test_a_real_run_keeps_every_h_i_over_kills(tmp_path: Path, codec: str) -> None:
    flags = ("--method=feddyn", "--clients=3", "--cohort=2", "--rounds=12")
    check_that_kills_leave_no_trace(tmp_path, *flags, f"--codec={codec}")
    for folder in (tmp_path / "calm", tmp_path / "killed"):
        h, mine = server_vector(folder, "h"), client_vectors(folder, "h")
        assert len(mine) == 3
        np.testing.assert_allclose(h, np.mean(mine, axis=0), atol=1e-7)
        assert np.abs(h).max() > 1e-4
