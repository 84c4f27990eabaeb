"""FedMRUR (An et al. 2023): the manifold term, the normalised mean, and what is left without them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from edgeflock.common.errors import BadValue
from edgeflock.methods.fedmrur import FedMRURParams, distance, lift, manifold
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.base import Batch
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan
from support.federation import WIDTHS, Federation
from support.hand_mlp import Vector, backward, forward, gradient
from support.interrupted import check_that_kills_leave_no_trace
from support.processes import flock
from support.tiny_run import layouts, learner, update
from support.training import bench_of, half_of, local_of, samples

COHORTS: list[tuple[int, ...]] = [(0, 1, 2), (0, 2), (1, 2), (0, 1, 2)]
LOST: list[tuple[int, ...]] = [(), (2,), (), ()]
PLANS = {
    "epochs": Plan(lr=0.1, batch_size=6, epochs=2, weight_decay=0.02),
    "part of an epoch": Plan(lr=0.1, batch_size=4, steps=3, momentum=0.5),
    "full batches": Plan(lr=0.1, batch_size=0, steps=4),
}
DEFAULTS = {
    "cm_alpha": 0.1,
    "sam_rho": 0.05,
    "reg_gamma": 0.005,
    "reg_sigma": 1e4,
    "reg_beta": 1.0,
    "eta_g": 1.0,
    "clip": 10.0,
}
STRONG = {"reg_gamma": "0.5", "reg_sigma": "2", "reg_beta": "1.5", "sam_rho": "0.3", "cm_alpha": "0.6"}
IMAGE = (1, 8, 8)


class Hand:
    """The algorithm, with dist as it is printed; `step` plays a round and moves w and D."""

    def __init__(self, run: Federation, options: dict[str, str]) -> None:
        self.run, self.weighted = run, options.get("weighting") == "weighted"
        self.normalised = options.get("aggregate") != "mean"
        given = {name: float(text) for name, text in options.items() if name in DEFAULTS}
        self.of = {**DEFAULTS, **given}
        self.w, self.d, self.t = run.model, np.zeros_like(run.model), 0
        self.share, self.ratio = 0.0, 0.0

    def step(self, counted: list[int]) -> None:
        self.t += 1
        played = {i: self.local(i) for i in counted}
        shares = np.array([self.run.sizes[i] if self.weighted else 1 for i in counted])
        deltas = np.array([played[i][0] - self.w for i in counted])
        total = shares @ deltas
        length = shares @ np.linalg.norm(deltas, axis=1) / shares.sum()
        self.ratio = length / np.linalg.norm(total / shares.sum())
        u = length * total / np.linalg.norm(total) if self.normalised else total / shares.sum()
        self.d = -u / (self.run.lr(self.t) * np.mean([len(self.run.batches(i, self.t)) for i in counted]))
        self.w = self.w + self.of["eta_g"] * u
        self.share = float(np.mean([share for _, share in played.values()]))

    def local(self, i: int) -> tuple[Vector, float]:
        """Return the end and the last step's ||gamma grad R|| / ||grad CE||."""
        plan, x, v, share = self.run.plan, self.w.copy(), np.zeros_like(self.w), 0.0
        for inputs, labels in self.run.batches(i, self.t):
            ce, term = gradient(x, WIDTHS, inputs, labels), self.term(x, inputs)
            share = float(np.linalg.norm(term) / np.linalg.norm(ce))
            there = x + self.of["sam_rho"] * (ce + term) / np.linalg.norm(ce + term)
            g2 = gradient(there, WIDTHS, inputs, labels) + self.term(there, inputs)
            g = self.of["cm_alpha"] * g2 + (1 - self.of["cm_alpha"]) * self.d + plan.weight_decay * x
            v = plan.momentum * v + g * min(1.0, float(self.of["clip"] / np.linalg.norm(g)))
            x = x - self.run.lr(self.t) * v
        return x, share

    def term(self, x: Vector, inputs: Vector) -> Vector:
        """Return gamma grad R: dist = -2 beta + 2 x0 x0g - 2 <z, zg>."""
        z, zg = forward(x, WIDTHS, inputs)[0], forward(self.w, WIDTHS, inputs)[0]
        x0, x0g = (np.sqrt(self.of["reg_beta"] + (rows**2).sum(1, keepdims=True)) for rows in (z, zg))
        dist = -2 * self.of["reg_beta"] + 2 * x0 * x0g - 2 * (z * zg).sum(1, keepdims=True)
        value = self.of["reg_gamma"] * np.exp(dist / self.of["reg_sigma"]) / len(z)
        slope = value / self.of["reg_sigma"] * (2 * x0g * z / x0 - 2 * zg)
        return backward(x, WIDTHS, inputs, np.zeros((len(z), WIDTHS[2])), slope)


@pytest.mark.parametrize(
    "options",
    [
        {},
        STRONG,
        {**STRONG, "aggregate": "mean", "clip": "0.3"},
        {**STRONG, "weighting": "weighted", "eta_g": "0.7"},
    ],
    ids=["defaults", "strong", "mean and clip", "weighted"],
)
@pytest.mark.parametrize("name", PLANS)
def test_rounds_with_absent_clients_and_a_lost_update_equal_the_hand_computation(
    tmp_path: Path, name: str, options: dict[str, str]
) -> None:
    """K_i differ with epochs, and some clients see all their samples where others do not."""
    run = Federation(tmp_path, "fedmrur", options, plan=PLANS[name], lr_decay=0.8)
    hand = Hand(run, options)
    for cohort, lost in zip(COHORTS, LOST, strict=True):
        hand.step([i for i in cohort if i not in lost])
        metrics = run.round(*cohort, lost=lost)
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
        np.testing.assert_allclose(run.learner.state.vectors["momentum"].numpy(), hand.d, atol=1e-5)
        assert metrics["norm_ratio"] == pytest.approx(hand.ratio, rel=1e-4)
        assert metrics["momentum_norm"] == pytest.approx(np.linalg.norm(hand.d), rel=1e-4)
        assert metrics["manifold_share"] == pytest.approx(hand.share, rel=1e-3)
    assert hand.ratio > 1.01
    assert (hand.share > 0.01) == bool(options)  # the paper's own numbers make the term next to nothing


# ------------------------------------------------------------------------- what is left without its parts

SAME = {"clip": "0.4"}


def after_rounds(folder: Path, method: str, options: dict[str, str]) -> list[Vector]:
    """Return the model after every round, the loss of the round as its last number."""
    plan = Plan(lr=0.1, batch_size=6, epochs=2, momentum=0.5, weight_decay=0.05)
    run = Federation(folder, method, {**SAME, **options}, plan=plan, lr_decay=0.9)
    found = []
    for cohort in COHORTS:
        loss = run.round(*cohort)["loss"]
        found.append(np.append(run.model, loss))
    return found


@pytest.mark.parametrize(
    ("method", "ablation", "options"),
    [
        ("mofedsam", {}, {"sam_rho": "0.05"}),
        ("fedcm", {"sam_rho": "0"}, {}),
        ("fedcm", {"sam_rho": "0", "cm_alpha": "0.7"}, {"cm_alpha": "0.7"}),
        ("fedavg", {"sam_rho": "0", "cm_alpha": "1"}, {"weighting": "uniform"}),
        ("fedavg", {"sam_rho": "0", "cm_alpha": "1", "weighting": "weighted"}, {}),
    ],
)
def test_switched_off_part_by_part_it_is_another_method_bit_for_bit(
    tmp_path: Path, method: str, ablation: dict[str, str], options: dict[str, str]
) -> None:
    off = {"reg_gamma": "0", "aggregate": "mean", **ablation}
    found, expected = (
        after_rounds(tmp_path / "off", "fedmrur", off),
        after_rounds(tmp_path / "other", method, options),
    )
    assert all(map(np.array_equal, found, expected))
    for name, switch in (("term", {"reg_gamma": "0.5"}), ("length", {"aggregate": "normalised"})):
        with_it = after_rounds(tmp_path / name, "fedmrur", {**off, **switch})
        assert not np.array_equal(with_it[-1], expected[-1])


# ------------------------------------------------------------------------- the distance


def features(rows: int, scale: float, seed: int) -> Tensor:
    return scale * torch.randn((rows, 20), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("beta", [0.01, 1.0, 50.0])
def test_a_lifted_vector_has_the_square_minus_beta(beta: float) -> None:
    """<L, L>_L = -x0^2 + ||z||^2."""
    z = features(9, 3.0, 1).double()
    torch.testing.assert_close(
        -lift(z, beta).square() + z.square().sum(1, keepdim=True), -beta + 0 * lift(z, 1)
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_the_distance_of_a_vector_to_itself_is_exactly_0(scale: float) -> None:
    z = features(9, scale, 1)
    found = distance(z, z.clone(), lift(z, 1.0), 1.0)[0]
    assert torch.equal(found, torch.zeros(9, 1))


@pytest.mark.parametrize("apart", [1e-4, 1e-2, 1.0])
def test_a_small_distance_of_large_vectors_is_right_where_the_printed_form_cancels(apart: float) -> None:
    z = features(9, 100.0, 1)
    others = z + features(9, apart, 2)

    def printed(a: Tensor, b: Tensor) -> Tensor:
        return 2 * lift(a, 1.0) * lift(b, 1.0) - 2 * (a * b).sum(1, keepdim=True) - 2

    right = printed(z.double(), others.double())
    found = distance(z, others, lift(others, 1.0), 1.0)[0]
    torch.testing.assert_close(found.double(), right, rtol=1e-3, atol=1e-8)
    if apart < 1:
        assert float((printed(z, others).double() - right).abs().max() / right.max()) > 0.1


@pytest.mark.parametrize("sigma", [0.5, 10.0, 1e4])
def test_the_closed_form_is_the_gradient_of_the_term_as_printed(sigma: float) -> None:
    """Against autograd in float64."""
    z, others = features(9, 1.0, 1), features(9, 0.2, 2) + features(9, 1.0, 1)
    params = FedMRURParams(reg_gamma=0.3, reg_sigma=sigma, reg_beta=2.0)
    value, slope = manifold(z.clone(), others, lift(others, 2.0), params)
    wide, far = z.double().requires_grad_(), others.double()
    dist = 2 * lift(wide.clone(), 2.0) * lift(far, 2.0) - 2 * (wide * far).sum(1, keepdim=True) - 4
    expected = 0.3 * (dist / sigma).exp().mean()
    (by_z,) = torch.autograd.grad(expected, wide)
    torch.testing.assert_close(value.double(), expected.detach(), rtol=1e-5, atol=0)
    torch.testing.assert_close(slope.double(), by_z, rtol=1e-4, atol=1e-7 * float(by_z.abs().max()))


def test_beyond_the_largest_exponent_the_term_is_finite_and_pulls_no_more() -> None:
    near, far = features(3, 1.0, 1), features(3, 1e4, 2)
    params = FedMRURParams(reg_gamma=1e-20, reg_sigma=1.0)
    value, slope = manifold(far, near, lift(near, 1.0), params)
    assert float(value) == pytest.approx(1e-20 * math.exp(50), rel=1e-5)
    assert torch.equal(slope, torch.zeros_like(slope))


# ------------------------------------------------------------------------- the client's passes


@pytest.mark.parametrize("name", ["lenet5", "cnn", "logistic"])
def test_the_direction_is_the_gradient_at_the_perturbed_point_of_the_whole_loss(name: str) -> None:
    """Against autograd through the printed loss; logistic has no body, its features are the input."""
    bench = bench_of("cnn", IMAGE, dropout="0") if name == "cnn" else bench_of(name, IMAGE)
    data = samples(12, IMAGE)
    work = local_of(bench, data, Plan(lr=0.1, batch_size=0, steps=1))
    half = half_of("fedmrur", bench, reg_gamma="20", reg_sigma="5", sam_rho="0.2")
    work.params.add_(0.03 * torch.randn(work.params.shape, generator=torch.Generator().manual_seed(2)))
    work.term = lambda batch, features, logits: half.loss(work, batch, features, logits)
    batch = Batch(data.x, data.y, 0)
    zg = work.features_at(work.start, batch).clone()
    here = work.params.clone()
    half.begin(work)
    half.backward(work, batch)

    def printed(at: Tensor) -> Tensor:
        def term(batch: Batch, z: Tensor, logits: Tensor) -> Tensor:
            x0, x0g = (torch.sqrt(1 + rows.square().sum(1)) for rows in (z, zg))
            return 20 * torch.exp((2 * x0 * x0g - 2 * (z * zg).sum(1) - 2) / 5).mean()

        out = torch.empty_like(at)
        with bench.at(at):
            bench.gradient(batch, out, term)
        return out

    first = printed(here)
    expected = printed(here + 0.2 * first / first.norm())
    torch.testing.assert_close(work.grads, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
    assert torch.equal(work.params, here)
    assert (work.scalars["manifold_share"] > 0) == (name != "logistic")


def test_the_global_features_are_those_of_the_received_model_in_eval_mode() -> None:
    """With dropout the features differ from those in the first step already: the term has a gradient."""
    plan = Plan(lr=0.1, batch_size=0, steps=1)
    shares = {}
    for dropout in ("0", "0.5"):
        bench = bench_of("mlp", IMAGE, dropout=dropout)
        work = local_of(bench, samples(12, IMAGE), plan)
        steps.run(half_of("fedmrur", bench), work)
        shares[dropout] = work.scalars["manifold_share"]
    assert shares["0"] == 0 < shares["0.5"]


# ------------------------------------------------------------------------- the server's mean


def move(folder: Path, deltas: list[Tensor], **options: str) -> tuple[Tensor, dict[str, float]]:
    """Return what one round with these updates moves the model by, and its metrics."""
    of = layouts(40)
    server = learner(of, method="fedmrur", clients=len(deltas), **options)
    before = server.state.model.clone()
    members = range(len(deltas))
    opened = server.round(1, members, dict.fromkeys(members, 10))
    server.begin_fold(opened)
    updates = {i: update(of, i, delta=deltas[i], samples=10 + i).spooled(i, folder, of) for i in members}
    assert server.fold(members, updates) == {}
    metrics = server.step(opened)
    return server.state.model - before, metrics


def test_identical_updates_move_the_model_by_themselves(tmp_path: Path) -> None:
    delta = torch.linspace(-1, 1, 40)
    moved, metrics = move(tmp_path, [delta] * 3)
    torch.testing.assert_close(moved, delta, rtol=0, atol=1e-6)
    assert metrics["norm_ratio"] == pytest.approx(1, abs=1e-6)


def test_orthogonal_updates_of_one_length_move_it_by_the_root_of_their_number_more(tmp_path: Path) -> None:
    deltas = [3 * row for row in torch.eye(40)[:4]]
    moved, metrics = move(tmp_path, deltas)
    torch.testing.assert_close(moved, 2 * torch.stack(deltas).mean(0), rtol=0, atol=1e-6)
    assert metrics["norm_ratio"] == pytest.approx(2)
    plain, same = move(tmp_path, deltas, aggregate="mean")
    torch.testing.assert_close(plain, torch.stack(deltas).mean(0), rtol=0, atol=1e-6)
    assert same["norm_ratio"] == pytest.approx(2)


@pytest.mark.parametrize("length", [0.0, 1.0])
def test_updates_that_cancel_move_nothing(tmp_path: Path, length: float) -> None:
    delta = length * torch.ones(40)
    moved, metrics = move(tmp_path, [delta, -delta])
    assert torch.equal(moved, torch.zeros(40))
    assert metrics["norm_ratio"] == metrics["momentum_norm"] == 0


def test_rounds_without_a_step_and_without_a_rate_move_nothing(tmp_path: Path) -> None:
    run = Federation(tmp_path, "fedmrur", plan=Plan(lr=0.0, steps=0))
    before = run.model
    assert [run.round()["momentum_norm"] for _ in range(2)] == [0.0, 0.0]
    assert np.array_equal(run.model, before)


# ------------------------------------------------------------------------- options and a real run


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"reg_gamma": "-1"}, "reg_gamma is '-1', allowed is a number >= 0"),
        ({"reg_sigma": "0"}, "reg_sigma is '0', allowed is a number > 0"),
        ({"reg_beta": "0"}, "reg_beta is '0', allowed is a number > 0"),
        ({"sam_rho": "-1"}, "sam_rho is '-1', allowed is a number >= 0"),
        ({"cm_alpha": "0"}, r"cm_alpha is '0', allowed is a number in \(0, 1\]"),
        ({"aggregate": "median"}, "aggregate is 'median', allowed is normalised or mean"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("fedmrur").params, options)


def test_the_defaults_are_the_papers_but_for_rho() -> None:
    params, training = FedMRURParams(), load("fedmrur").training
    assert {name: getattr(params, name) for name in DEFAULTS} == DEFAULTS
    assert params.aggregate == "normalised"
    assert (training.lr, training.lr_decay, training.weight_decay) == (0.1, 0.998, 5e-4)
    assert (training.batch_size, training.epochs) == (50, 3)


def test_a_real_run_keeps_its_direction_over_kills(tmp_path: Path) -> None:
    check_that_kills_leave_no_trace(
        tmp_path, "--method=fedmrur", "--clients=3", "--cohort=2", "--rounds=12", "--epochs=1"
    )


def test_a_real_run_logs_every_round_s_norms_and_the_share_of_the_term(tmp_path: Path) -> None:
    with flock(tmp_path) as made:
        server = made.server("--method=fedmrur", "--clients=2", "--rounds=3", "--set=reg_sigma=1")
        client = made.client("c0,c1")
        assert [server.ended(), client.ended()] == [0, 0]
        lines = server.events("round_committed")
    assert len(lines) == 3
    for line in lines:
        assert line["norm_ratio"] >= 1
        assert line["momentum_norm"] > 0
        assert line["manifold_share"] > 0
