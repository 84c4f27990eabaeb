"""FedTR (Algorithm 1): centroids and drift by hand, both rules of the drift, the private head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgeflock.common.errors import BadValue
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.package import Kind
from edgeflock.methods.fedtr import FedTRParams, FedTRServer
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.local import LocalData
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.split import split
from edgeflock.methods.kit.values import Plan, State
from edgeflock.server.start.describe import describe_method
from support.federation import SHAPE, WIDTHS, Federation
from support.hand_mlp import Vector, backward, forward, gradient
from support.interrupted import check_that_kills_leave_no_trace
from support.processes import flock
from support.training import bench_of, broadcast_of, half_of, local_of, samples, setting_of

PLAN = Plan(lr=0.1, batch_size=6, epochs=2)
BODY = WIDTHS[0] * WIDTHS[1] + WIDTHS[1]  # elements below the head
COHORTS = [(0, 1), (0, 1, 2), (1, 2), (0, 2), (0, 1, 2)]
LOST = [(), (), (2,), (), ()]
CLIENTS = ("client_local", "client_pooled")
ADDITIVE = {"lam_r": "1.5", "alpha_g": "0.3"}


@dataclass
class ByHand:
    """The whole run in plain NumPy: written from the paper's lines, not from the method's code."""

    run: Federation
    lam_r: float = 1.0
    alpha_g: float = 0.1
    drift: str = "additive"
    eta_g: float = 0.001
    private: bool = False
    momentum: float = 0.0
    drifts: dict[int, Vector] = field(default_factory=dict)
    models: dict[int, Vector] = field(default_factory=dict)  # w_i of the last counted round

    def __post_init__(self) -> None:
        self.w = self.run.model
        self.initial = self.w.copy()
        self.centroids = np.zeros((WIDTHS[2], WIDTHS[1]))
        self.known = np.zeros(WIDTHS[2])

    def round(self, number: int, cohort: tuple[int, ...], lost: tuple[int, ...]) -> None:
        made = {i: self.local(i, number) for i in cohort if i not in lost}
        n = sum(self.run.sizes[i] for i in made)
        mean = np.sum([self.run.sizes[i] / n * (w + d) for i, (w, d) in made.items()], axis=0)
        self.w = np.concatenate([mean[:BODY], self.initial[BODY:]]) if self.private else mean
        for i, (w, d) in made.items():
            self.models[i], self.drifts[i] = w, d
        for label in range(WIDTHS[2]):
            held = [self.features(i, w)[self.labels(i) == label] for i, (w, _) in made.items()]
            pooled = np.concatenate(held)
            if len(pooled):
                self.centroids[label], self.known[label] = pooled.mean(0), 1.0

    def local(self, i: int, number: int) -> tuple[Vector, Vector]:
        a = self.w.copy()
        if self.private:
            a[BODY:] = self.models.get(i, self.initial)[BODY:]
        d, w, v = self.drifts.get(i, np.zeros_like(a)), a.copy(), np.zeros_like(a)
        for x, y in self.run.batches(i, number):
            apart = (forward(w, WIDTHS, x)[0] - self.centroids[y]) * self.known[y][:, None]
            by_z = self.lam_r * 2 * apart / (len(y) * WIDTHS[1])
            pull = backward(w, WIDTHS, x, np.zeros((len(y), WIDTHS[2])), by_z)
            g = gradient(w, WIDTHS, x, y) + pull + self.alpha_g * (d + w - a)
            v = self.momentum * v + g
            w = w - self.run.plan.lr * v
            if self.drift == "descent":
                d = d - self.eta_g * self.alpha_g * (d + w - a)
        if self.drift == "additive":
            d = d + (w - a)
        return w, d

    def features(self, i: int, w: Vector) -> Vector:
        return forward(w, WIDTHS, self.run.data[i].x.flatten(1).double().numpy())[0]

    def labels(self, i: int) -> Vector:
        return self.run.data[i].y.numpy()


def lacking(run: Federation, label: int, *indices: int) -> Federation:
    """Take a class away from some clients."""
    for index in indices:
        data = run.data[index]
        run.data[index] = LocalData(data.x, torch.where(data.y == label, (label + 1) % 3, data.y))
    return run


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (ADDITIVE, {"lam_r": 1.5, "alpha_g": 0.3}),
        ({"drift": "descent", "eta_g": "0.05"}, {"drift": "descent", "eta_g": 0.05, "alpha_g": 2.0}),
        ({"drift": "off", "alpha_g": "0.5"}, {"drift": "off", "alpha_g": 0.5}),
        ({"lam_r": "0"}, {"lam_r": 0.0, "alpha_g": 0.1}),
        ({**ADDITIVE, "head": "private"}, {"lam_r": 1.5, "alpha_g": 0.3, "private": True}),
    ],
    ids=["additive", "descent", "off", "lam_r 0", "private"],
)
def test_rounds_with_absent_clients_and_a_lost_update_equal_the_hand_computation(
    tmp_path: Path, options: Mapping[str, str], numbers: Mapping[str, object]
) -> None:
    """Client 2's third update is lost: its drift stays that of round 2. Class 0 is held by client 1 alone."""
    run = lacking(Federation(tmp_path, "fedtr", options, plan=Plan(0.1, epochs=2, batch_size=6)), 0, 0, 2)
    hand = ByHand(run, **numbers)  # type: ignore[arg-type]
    for number, (cohort, lost) in enumerate(zip(COHORTS, LOST, strict=True), start=1):
        run.round(*cohort, lost=lost)
        hand.round(number, cohort, lost)
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
        centroids = run.learner.state.vectors["centroids"].view(3, -1)
        np.testing.assert_allclose(centroids.double().numpy(), hand.centroids, atol=1e-5)
    for i, model in hand.models.items():
        np.testing.assert_allclose(run.states[i].vectors["model"].numpy(), model, atol=1e-5)
    plain = ByHand(run, lam_r=0.0, alpha_g=0.0, drift="off", private=hand.private)
    plain.w = plain.initial = hand.initial
    for number, (cohort, lost) in enumerate(zip(COHORTS, LOST, strict=True), start=1):
        plain.round(number, cohort, lost)
    assert np.abs(hand.w - plain.w).max() > 1e-3


def test_momentum_and_the_drift_meet_as_written(tmp_path: Path) -> None:
    """The pull enters the gradient before the heavy ball."""
    run = Federation(tmp_path, "fedtr", ADDITIVE, plan=Plan(0.1, epochs=1, batch_size=6, momentum=0.8))
    hand = ByHand(run, lam_r=1.5, alpha_g=0.3, momentum=0.8)
    for number in (1, 2, 3):
        run.round()
        hand.round(number, (0, 1, 2), ())
    np.testing.assert_allclose(run.model, hand.w, atol=1e-5)


# ------------------------------------------------------------------------------------- exact identities


def test_without_terms_and_drift_it_is_fedavg_bit_for_bit(tmp_path: Path) -> None:
    nothing = {"lam_r": "0", "alpha_g": "0", "drift": "off"}
    runs = [
        Federation(tmp_path / "plain", "fedavg", plan=PLAN),
        Federation(tmp_path / "off", "fedtr", nothing, plan=PLAN),
    ]
    for _ in range(3):
        for run in runs:
            run.round()
    assert np.array_equal(runs[0].model, runs[1].model)


def test_the_first_round_is_fedprox_bit_for_bit(tmp_path: Path) -> None:
    """No centroid yet and d = 0: the pull is alpha_g (w_i - w). With drift off nothing else is sent."""
    tr = Federation(tmp_path / "tr", "fedtr", {"alpha_g": "0.5", "drift": "off"}, plan=PLAN)
    prox = Federation(tmp_path / "prox", "fedprox", {"mu": "0.5"}, plan=PLAN)
    for run in (tr, prox):
        run.round()
    assert np.array_equal(tr.model, prox.model)


def test_the_control_without_centroids_and_drift_is_fedprox_bit_for_bit(tmp_path: Path) -> None:
    """What is left of it in every round is the pull alpha_g (w_i - w); with either of both it is not."""
    control = {"lam_r": "0", "alpha_g": "0.5", "drift": "off"}
    options = {
        "control": control,
        "centroids": {**control, "lam_r": "1"},
        "drift": {**control, "drift": "additive"},
    }
    prox = Federation(tmp_path / "prox", "fedprox", {"mu": "0.5"}, plan=PLAN)
    runs = {name: Federation(tmp_path / name, "fedtr", given, plan=PLAN) for name, given in options.items()}
    for _ in range(3):
        for run in (prox, *runs.values()):
            run.round()
    assert [name for name, run in runs.items() if np.array_equal(run.model, prox.model)] == ["control"]


def test_an_additive_drift_without_pull_doubles_the_first_step(tmp_path: Path) -> None:
    """alpha_g = 0, one round: w+ = w + 2 mean(delta)."""
    plain = Federation(tmp_path / "plain", "fedavg", plan=PLAN)
    run = Federation(tmp_path / "run", "fedtr", {"alpha_g": "0"}, plan=PLAN)
    start = run.model
    plain.round()
    run.round()
    np.testing.assert_allclose(run.model - start, 2 * (plain.model - start), atol=1e-6)


def test_centroids_of_equal_models_are_the_class_means_of_the_pooled_features(tmp_path: Path) -> None:
    """A tiny rate leaves all clients at the initial model, however unequal their shards are."""
    run = Federation(tmp_path, "fedtr", plan=Plan(lr=1e-12, epochs=1, batch_size=6))
    run.round()
    w, pooled = run.model, [(d.x.flatten(1).double().numpy(), d.y.numpy()) for d in run.data]
    x, y = (np.concatenate(parts) for parts in zip(*pooled, strict=True))
    means = np.stack([forward(w, WIDTHS, x)[0][y == label].mean(0) for label in range(3)])
    found = run.learner.state.vectors["centroids"].view(3, -1).double().numpy()
    np.testing.assert_allclose(found, means, atol=1e-6)


def test_a_class_that_nobody_held_this_time_keeps_its_centroid(tmp_path: Path) -> None:
    run = lacking(Federation(tmp_path, "fedtr", plan=PLAN), 0, 0, 2)
    run.round(1)
    before = run.learner.state.vectors["centroids"].view(3, -1).clone()
    metrics = run.round(0, 2)
    after = run.learner.state.vectors["centroids"].view(3, -1)
    assert torch.equal(after[0], before[0])
    assert float(before[0].abs().max()) > 0
    assert not torch.equal(after[1], before[1])
    assert metrics["centroids"] == 3


def test_a_class_that_nobody_ever_held_pulls_nowhere(tmp_path: Path) -> None:
    runs = [
        lacking(Federation(tmp_path / lam, "fedtr", {"lam_r": lam}, plan=PLAN), 0, 0, 1, 2)
        for lam in ("1", "50")
    ]
    for run in runs:
        run.round(1)
        assert run.learner.state.vectors["counts"].tolist() == [0.0, 1.0, 1.0]
        assert not run.learner.state.vectors["centroids"].view(3, -1)[0].any()
    data = runs[0].data[0]
    only = LocalData(data.x, torch.zeros_like(data.y))  # samples of the unknown class alone
    for run in runs:
        run.data[0] = only
        run.round(0)
    assert np.array_equal(runs[0].model, runs[1].model)


# ------------------------------------------------------------------------------------- the state


def test_a_client_that_lost_its_drift_is_one_that_comes_for_the_first_time(tmp_path: Path) -> None:
    run, fresh = (Federation(tmp_path / name, "fedtr", ADDITIVE, plan=PLAN) for name in ("run", "fresh"))
    for each in (run, fresh):
        each.round(1)
    run.round(0, 1)  # client 0 has a drift now
    fresh.round(1)
    for kind, flat in run.learner.state.vectors.items():
        flat.copy_(fresh.learner.state.vectors[kind])
    run.forget(0)
    run.states[1] = fresh.states[1]
    for each in (run, fresh):
        each.round(0, 1)
    assert np.array_equal(run.model, fresh.model)


@pytest.mark.parametrize("steps_wanted", [0, 2])
def test_the_own_model_is_the_trained_one_and_later_the_kept_one(steps_wanted: int) -> None:
    bench, half = bench_of("mlp", SHAPE, hidden="8"), half_of("fedtr", bench_of("mlp", SHAPE, hidden="8"))
    work = local_of(bench, samples(9, SHAPE), Plan(lr=0.1, batch_size=4, epochs=1))
    steps.run(half, work)
    kept = work.new_state
    later = local_of(
        bench, samples(9, SHAPE), Plan(lr=0.1, batch_size=4, steps=steps_wanted), round=2, state=kept
    )
    mine = kept.vectors["model"].clone()
    steps.run(half, later)
    own = half.own_model(later)
    assert own is not None
    assert torch.equal(own, mine) == (steps_wanted == 0)


def test_the_kept_model_is_tested_with_the_statistics_that_it_was_trained_with() -> None:
    shape = (1, 32, 32)
    bench = bench_of("resnet18", shape, norm="batch")
    half, sent = half_of("fedtr", bench), broadcast_of(bench)
    work = local_of(bench, samples(6, shape), Plan(lr=0.1, steps=2), received=sent)
    steps.run(half, work)
    assert half.own_buffers(work) is None  # those of the workbench
    trained, kept = work.model.buffers.clone(), work.new_state
    kept = State({name: vector.clone() for name, vector in kept.vectors.items()}, kept.scalars)
    closing = local_of(bench, samples(6, shape), Plan(lr=0, steps=0), round=2, received=sent, state=kept)
    half.close(closing)
    found = half.own_buffers(closing)
    assert found is not None
    assert torch.equal(found, trained)
    assert not torch.equal(found, closing.model.buffers)


def test_everybody_is_asked_once_more_only_if_clients_test_their_models() -> None:
    bench = bench_of("mlp", SHAPE, hidden="8")
    plain, tested = setting_of(bench), replace(setting_of(bench), tested=True)
    asked = [FedTRServer(FedTRParams(), setting).closing(State()) for setting in (plain, tested)]
    assert asked[0] is None
    assert asked[1] is not None


# ------------------------------------------------------------------------------------- the private head


def test_a_private_head_never_leaves_its_client(tmp_path: Path) -> None:
    """Down and up go |body| + M f + M numbers; the model on the server keeps the initial head."""
    run = Federation(tmp_path, "fedtr", {"head": "private"}, plan=PLAN)
    start = run.model
    half, small = run.learner.half, 3 * WIDTHS[1] + 3
    for number in (1, 2):
        opened = run.learner.round(number, (0, 1, 2), {0: 20, 1: 9, 2: 14})
        sent = half.broadcast(run.learner.state, opened)
        assert sum(flat.numel() for flat in sent.values()) == BODY + (small if number > 1 else 0)
        up = [half.layout(kind).elements for kind in half.uploads(opened)]
        assert sum(up) == BODY + small
        run.round()
    assert np.array_equal(run.model[BODY:], start[BODY:])
    assert not np.array_equal(run.model[:BODY], start[:BODY])
    heads = [state.vectors["model"][BODY:] for state in run.states]
    assert not torch.equal(heads[0], heads[1])
    assert not half.has_global


def test_who_has_no_head_fetches_the_initial_one_and_nobody_else_does() -> None:
    bench = bench_of("mlp", SHAPE, hidden="8")
    half, sent = half_of("fedtr", bench, head="private"), broadcast_of(bench)
    body, head = split(bench.model.layout, bench.net.head_names())
    initial = head.take(sent[Kind.MODEL])
    received = {Kind.MODEL: body.take(sent[Kind.MODEL]), Kind.ANCHOR: initial}
    work = local_of(bench, samples(9, SHAPE), Plan(lr=0.1, batch_size=4), received=received)
    assert half.lacks(work.state, {})
    half.begin(work)
    assert torch.equal(head.take(work.params), initial)
    half.end(work)
    assert not half.lacks(work.new_state, {})
    assert not half_of("fedtr", bench).lacks(work.state, {})  # shared


@pytest.mark.parametrize("samples_here", [0, 9])
def test_a_round_without_a_step_sends_zeros_of_the_body_s_size(samples_here: int) -> None:
    bench = bench_of("mlp", SHAPE, hidden="8")
    body, _ = split(bench.model.layout, bench.net.head_names())
    received = {Kind.MODEL: body.take(bench.params)}
    plan = Plan(lr=0.1, steps=0 if samples_here else None)
    work = local_of(bench, samples(samples_here, SHAPE), plan, received=received)
    delta = steps.run(half_of("fedtr", bench, head="private"), work)[Kind.DELTA]
    assert delta.tolist() == [0.0] * body.layout.elements


def test_a_head_in_the_midst_of_a_model_is_cut_out_and_put_back() -> None:
    layout = Layout.of([("a", (2,)), ("head.w", (2, 2)), ("b", (1,)), ("head.b", (2,))])
    body, head = split(layout, {"head.w", "head.b"})
    whole = torch.arange(9.0)
    assert body.take(whole).tolist() == [0, 1, 6]
    assert head.take(whole).tolist() == [2, 3, 4, 5, 7, 8]
    made = torch.empty(9)
    body.put(body.take(whole), made)
    head.put(head.take(whole), made)
    assert torch.equal(made, whole)
    assert [spec.name for spec in head.layout.tensors] == ["head.w", "head.b"]


def test_a_private_head_is_refused_for_a_model_that_is_all_head() -> None:
    bench = bench_of("logistic", SHAPE)
    params = parse(FedTRParams, {"head": "private"})
    with pytest.raises(BadValue, match="head is 'private', allowed is shared for a model"):
        FedTRServer(params, setting_of(bench))


# ------------------------------------------------------------------------------------- options


def test_the_pull_s_default_follows_the_drift() -> None:
    """Section 8: 0.1, but as printed, 2, with drift = descent; what is given stays."""
    found = [parse(FedTRParams, {"drift": drift}).alpha_g for drift in ("additive", "descent", "off")]
    assert found == [0.1, 2.0, 0.1]
    assert parse(FedTRParams, {"drift": "descent", "alpha_g": "0.1"}).alpha_g == 0.1
    assert "default 0.1" in describe_method("fedtr")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lam_r": "-1"}, "lam_r is '-1', allowed is a number >= 0"),
        ({"alpha_g": "-0.1"}, "alpha_g is '-0.1', allowed is a number >= 0"),
        ({"eta_g": "0"}, "eta_g is '0', allowed is a number > 0"),
        ({"drift": "both"}, "drift is 'both', allowed is additive or descent or off"),
        ({"head": "mine"}, "head is 'mine', allowed is shared or private"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("fedtr").params, options)


# ------------------------------------------------------------------------------------- real runs


@pytest.mark.parametrize("head", ["shared", "private"])
def test_a_real_run_keeps_drift_and_heads_over_kills(tmp_path: Path, head: str) -> None:
    check_that_kills_leave_no_trace(
        tmp_path, "--method=fedtr", f"--set=head={head}", "--clients=3", "--cohort=2", "--rounds=10"
    )


def test_a_real_run_with_private_heads_tests_the_clients_models_alone(tmp_path: Path) -> None:
    """c0 trains, c1 trains, then both are asked once more; c1 fetches the initial head in round 2."""
    (tmp_path / "script").write_text("c0\nc1\n")
    with flock(tmp_path) as made:
        flags = ("--set=head=private", "--clients=2", "--rounds=2", f"--cohort-script={tmp_path / 'script'}")
        server = made.server("--method=fedtr", *flags)
        clients = made.clients("c0", "c1")
        assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
        found = made.rows("SELECT round, model, members FROM evaluations")
        down = made.rows("SELECT round, bytes_down FROM costs WHERE round < 3 ORDER BY round")
    expected = {(round, name, 1 + (round == 3)) for round in (1, 2, 3) for name in CLIENTS}
    assert set(found) == expected
    body, head, small = 64 * 100 + 100, 100 * 10 + 10, 10 * 100 + 10
    assert down == [(1, 4 * (body + head)), (2, 4 * (body + head + small))]
