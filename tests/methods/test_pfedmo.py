"""pFedMo (eqs. 10-12): the representation model, scores and personal starts by hand; all three readings."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from edgeflock.client.training.exam import TestSamples, examine
from edgeflock.common import seeds
from edgeflock.common.errors import BadValue
from edgeflock.common.payload.package import Kind
from edgeflock.common.scores import LOCAL
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.base import Accumulators, Update
from edgeflock.methods.kit.batches import Batch, LocalData
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.order import Order
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan, Round, State
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.methods.pfedmo import SERVER, PFedMoParams, PFedMoServer
from support.federation import SEED, SHAPE, WIDTHS, Federation
from support.hand_mlp import Vector, forward, gradient
from support.interrupted import check_that_kills_leave_no_trace
from support.processes import flock
from support.training import bench_of, broadcast_of, half_of, local_of, samples, setting_of

PLAN = Plan(lr=0.2, batch_size=6, epochs=2)
TAU = 6  # the mean of the clients' 8, 4 and 6 steps
SIGNS = {"interp": 0, "printed": 1, "flipped": -1}  # of eq. 12's last term, yb - y_i+
ALL = {"score_batch": "0"}


def learnable(data: LocalData) -> LocalData:
    """Return the samples with labels that a model can learn: models come to agree, and scores rise."""
    rule = torch.randn((WIDTHS[0], WIDTHS[2]), generator=torch.Generator().manual_seed(1))
    return LocalData(data.x, (data.x.flatten(1) @ rule).argmax(1))


PUBLIC, SCORED = learnable(samples(23, SHAPE, seed=60)), learnable(samples(11, SHAPE, seed=61))


@dataclass
class Held:
    """The server's tools."""

    bench: Workbench = field(default_factory=lambda: bench_of("mlp", SHAPE, hidden=str(WIDTHS[1])))
    public: LocalData = PUBLIC

    def workbench(self) -> Workbench:
        return self.bench

    def public_data(self) -> LocalData:
        return self.public

    def score_data(self) -> LocalData:
        return SCORED


def federation(folder: Path, options: Mapping[str, str] | None = None, **given: object) -> Federation:
    plan = given.pop("plan", PLAN)
    run = Federation(folder, "pfedmo", {**ALL, **(options or {})}, plan=plan, tools=Held(), **given)  # type: ignore[arg-type]
    run.data = [learnable(data) for data in run.data]
    return run


def fednag(folder: Path) -> Federation:
    run = Federation(folder, "fednag", plan=PLAN)
    run.data = [learnable(data) for data in run.data]
    return run


def numbers(data: LocalData) -> tuple[Vector, Vector]:
    return data.x.flatten(1).double().numpy(), data.y.numpy()


@dataclass
class ByHand:
    """The server's and the clients' side in plain NumPy, in x and y as the paper writes them."""

    run: Federation
    eq12: str = "interp"
    pi: float = 1.0
    gamma: float = 0.5
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        w = self.run.model
        self.x_r, self.y_r, self.w = w.copy(), w.copy(), w.copy()
        self.starts = {i: (w.copy(), w.copy()) for i in range(len(self.run.sizes))}
        self.largest: dict[int, float] = {}
        self.scores: dict[int, float] = {}

    def accelerate(self, x: Vector, y: Vector, batches: list[tuple[Vector, Vector]]) -> tuple[Vector, Vector]:
        lr = self.run.lr(self.number)
        for features, labels in batches:
            g = gradient(x, WIDTHS, features, labels) + self.weight_decay * x  # type: ignore[arg-type]
            after = x - lr * g
            x, y = after + self.gamma * (after - y), after
        return x, y

    def round(self, number: int) -> None:
        self.number = number
        ends = {i: self.accelerate(*self.starts[i], self.run.batches(i, number)) for i in self.starts}  # type: ignore[arg-type]
        order = Order(len(PUBLIC), self.run.plan.batch_size, SEED, SERVER)
        features, labels = numbers(PUBLIC)
        rows = [order.rows(number, step) for step in range(TAU)]
        self.x_r, self.y_r = self.accelerate(
            self.x_r, self.y_r, [(features[chosen], labels[chosen]) for chosen in rows]
        )
        shares = {i: self.run.sizes[i] / sum(self.run.sizes) for i in ends}
        x_mean = sum(shares[i] * x for i, (x, _) in ends.items())
        y_mean = sum(shares[i] * y for i, (_, y) in ends.items())
        for i, (x, _) in ends.items():
            a = self.pi * self.score(i, x)
            y_next = (1 - a) * y_mean + a * self.y_r
            x_next = (1 - a) * x_mean + a * self.x_r + SIGNS[self.eq12] * (y_mean - y_next)
            self.starts[i] = (x_next, y_next)
        self.w = np.sum([shares[i] * x for i, (x, _) in self.starts.items()], axis=0)

    def score(self, i: int, x: Vector) -> float:
        features, _ = numbers(SCORED)
        p, q = (forward(model, WIDTHS, features)[1] for model in (self.x_r, x))
        p, q = (z - np.log(np.exp(z).sum(1, keepdims=True)) for z in (p, q))
        loss = float(-(np.exp(p) * q).sum(1).mean())
        self.largest[i] = max(self.largest.get(i, 0.0), loss)
        self.scores[i] = 1 - loss / self.largest[i]
        return self.scores[i]


@pytest.mark.parametrize("eq12", list(SIGNS))
def test_rounds_of_unequal_clients_equal_the_hand_computation(tmp_path: Path, eq12: str) -> None:
    """With weight decay and a falling rate, which hold for the representation model, too."""
    plan = Plan(lr=0.2, batch_size=6, epochs=2, weight_decay=0.02)
    run = federation(tmp_path, {"eq12": eq12, "pi": "0.9", "gamma": "0.6"}, plan=plan, lr_decay=0.95)
    hand = ByHand(run, eq12, pi=0.9, gamma=0.6, weight_decay=0.02)
    for number in range(1, 7):
        metrics = run.round()
        hand.round(number)
        state = run.learner.state
        np.testing.assert_allclose(run.model, hand.w, atol=1e-5)
        np.testing.assert_allclose(state.vectors["representation"].numpy(), hand.x_r, atol=1e-5)
        for i, score in hand.scores.items():
            assert state.scalars[f"score {i}"] == pytest.approx(score, abs=1e-5)
        assert metrics["score"] == pytest.approx(np.mean(list(hand.scores.values())), abs=1e-5)
        opened = run.learner.round(number + 1, (0, 1, 2), dict(enumerate(run.sizes)))
        for i, (x, y) in hand.starts.items():
            sent = run.learner.half.personal(state, opened, i)
            np.testing.assert_allclose(sent[Kind.MODEL].numpy(), x, atol=1e-5)
            np.testing.assert_allclose(sent[Kind.MOMENTUM].numpy(), x - y, atol=1e-5)
    assert max(hand.scores.values()) > 0.02  # the pull was felt


def test_a_fixed_number_of_steps_is_the_representation_model_s_too(tmp_path: Path) -> None:
    run = federation(tmp_path, plan=Plan(lr=0.1, batch_size=0, steps=3))
    run.round()
    features, labels = numbers(PUBLIC)
    x = y = bench_of("mlp", SHAPE, hidden="8").params.double().numpy()
    for _ in range(3):
        after = x - 0.1 * gradient(x, WIDTHS, features, labels)  # type: ignore[arg-type]
        x, y = after + 0.5 * (after - y), after
    np.testing.assert_allclose(run.learner.state.vectors["representation"].numpy(), x, atol=1e-6)


# ------------------------------------------------------------------------------------- exact identities


def test_in_round_1_every_score_is_0_and_the_step_is_fednag_s(tmp_path: Path) -> None:
    run, nag = federation(tmp_path / "run"), fednag(tmp_path / "nag")
    run.round()
    nag.round()
    assert [run.learner.state.scalars[f"score {i}"] for i in range(3)] == [0.0, 0.0, 0.0]
    assert np.array_equal(run.model, nag.model)


@pytest.mark.parametrize("eq12", list(SIGNS))
def test_pi_0_is_fednag_bit_for_bit(tmp_path: Path, eq12: str) -> None:
    run = federation(tmp_path / "run", {"pi": "0", "eq12": eq12})
    nag = fednag(tmp_path / "nag")
    for _ in range(4):
        run.round()
        nag.round()
    assert np.array_equal(run.model, nag.model)


@pytest.mark.parametrize("gamma", [0.3, 0.9])
def test_a_local_round_is_torch_s_nesterov_from_the_personal_buffer(gamma: float) -> None:
    """buf = -(x - y) / (gamma lr) before the first step, and v = -gamma lr buf after the last."""
    lr, data, bench = 0.1, samples(9, SHAPE), bench_of("mlp", SHAPE, hidden="8")
    generator = torch.Generator().manual_seed(4)
    momentum = 0.01 * torch.randn(bench.params.numel(), generator=generator)
    received = {**broadcast_of(bench), Kind.MOMENTUM: momentum}
    work = local_of(bench, data, Plan(lr=lr, batch_size=0, steps=5), round=2, received=received)
    bundles = steps.run(half_of("pfedmo", bench, gamma=str(gamma)), work)
    delta, sent = bundles[Kind.DELTA].clone(), bundles[Kind.MOMENTUM].clone()

    other = bench_of("mlp", SHAPE, hidden="8")
    parameter = torch.nn.Parameter(received[Kind.MODEL].clone())
    optimizer = torch.optim.SGD([parameter], lr=lr, momentum=gamma, nesterov=True)
    optimizer.state[parameter]["momentum_buffer"] = momentum / (-gamma * lr)
    for _ in range(5):
        other.params.copy_(parameter.detach())
        logits = other.net(data.x)[1]
        grads = torch.autograd.grad(other.net.loss(logits, data.y), other.model.parameters)
        parameter.grad = torch.cat([grad.reshape(-1) for grad in grads])
        optimizer.step()
    torch.testing.assert_close(delta, parameter.detach() - received[Kind.MODEL], rtol=1e-4, atol=1e-6)
    buffer = optimizer.state[parameter]["momentum_buffer"]
    torch.testing.assert_close(sent, -gamma * lr * buffer, rtol=1e-4, atol=1e-6)


def test_as_printed_the_pull_to_the_representation_model_cancels() -> None:
    """x_i+ = xb + pi s [(x_r - y_r) - (xb - yb)], and the next kick holds -pi s (y_r - yb)."""
    half, state = lone(eq12="printed", pi="0.8")
    state.scalars["score 0"] = 0.25
    v = {name: vector.double() for name, vector in state.vectors.items()}
    xb, yb = v["mean"], v["mean"] - v["momentum"]
    x_r, y_r = v["representation"], v["representation"] - v["representation momentum"]
    model, momentum = (half.personal(state, half_round(2), 0)[kind] for kind in (Kind.MODEL, Kind.MOMENTUM))
    expected = xb + 0.2 * ((x_r - y_r) - (xb - yb))
    torch.testing.assert_close(model.double(), expected, rtol=0, atol=1e-6)
    kick = momentum.double() - (xb - yb)  # beyond the mean's own
    torch.testing.assert_close(kick, 0.2 * ((x_r - xb) - (y_r - yb)) - 0.2 * (y_r - yb), rtol=0, atol=1e-6)


@pytest.mark.parametrize("eq12", list(SIGNS))
def test_a_full_pull_is_the_representation_model_and_none_is_the_mean(eq12: str) -> None:
    half, state = lone(eq12=eq12)
    state.scalars |= {"score 0": 1.0, "score 1": 0.0}
    whole, none = (half.personal(state, half_round(2), index) for index in (0, 1))
    for seat, sent in enumerate((whole, none)):
        result = half.result_of(state, seat)  # what the client keeps in the end
        assert result is not None
        assert torch.equal(result, sent[Kind.MODEL])
    assert torch.equal(none[Kind.MODEL], state.vectors["mean"])
    assert torch.equal(none[Kind.MOMENTUM], state.vectors["momentum"])
    y = whole[Kind.MODEL] - whole[Kind.MOMENTUM]
    y_r = state.vectors["representation"] - state.vectors["representation momentum"]
    torch.testing.assert_close(y, y_r, rtol=0, atol=1e-5)
    if eq12 == "interp":
        torch.testing.assert_close(whole[Kind.MODEL], state.vectors["representation"], rtol=0, atol=1e-6)


def lone(**options: str) -> tuple[PFedMoServer, State]:
    """Return a server half, and a state whose vectors are all different."""
    bench = bench_of("mlp", SHAPE, hidden="8")
    half = PFedMoServer(parse(PFedMoParams, options), setting_of(bench), Held(bench))
    state = State({"model": bench.params.clone(), "buffers": torch.zeros(0)})
    half.begin(state)
    generator = torch.Generator().manual_seed(9)
    for vector in state.vectors.values():
        vector.copy_(torch.randn(vector.numel(), generator=generator))
    return half, state


def half_round(number: int) -> Round:
    return Round(number, 0.1, (0, 1, 2), {0: 20, 1: 9, 2: 14})


# ------------------------------------------------------------------------------------- scores and data


def test_every_client_of_a_round_is_scored_on_one_batch_and_every_round_on_another(tmp_path: Path) -> None:
    half, _ = lone(score_batch="5")
    batches = [half._score_samples(number) for number in (1, 1, 2)]
    rows = seeds.numpy_generator(SEED, "score", 1).permutation(len(SCORED))[:5]
    assert torch.equal(batches[0], SCORED.x[torch.from_numpy(rows)])
    assert torch.equal(batches[0], batches[1])
    assert not torch.equal(batches[0], batches[2])
    assert len(lone(score_batch="1")[0]._score_samples(1)) == 1
    assert len(lone(score_batch="0")[0]._score_samples(1)) == len(SCORED)
    assert len(lone(score_batch="64")[0]._score_samples(1)) == len(SCORED)  # all there are


def test_scores_fall_where_a_client_does_worse_than_ever_and_rise_where_it_does_better(
    tmp_path: Path,
) -> None:
    run = federation(tmp_path)
    before: dict[str, float] = {}
    for _ in range(6):
        run.round()
        scalars = run.learner.state.scalars
        for i in range(3):
            assert scalars[f"largest {i}"] >= before.get(f"largest {i}", 0.0)
            assert 0 <= scalars[f"score {i}"] < 1
        before = dict(scalars)
    assert any(before[f"score {i}"] > 0 for i in range(3))


# ------------------------------------------------------------------------------------- the server


def test_first_one_model_goes_to_all_then_two_vectors_to_each() -> None:
    half, state = lone()
    down = [[*half.broadcast(state, half_round(n)), *half.personal_kinds(half_round(n))] for n in (1, 2)]
    assert down == [[Kind.MODEL], [Kind.MODEL, Kind.MOMENTUM]]
    assert half.personal(state, half_round(1), 0) == {}
    assert half.uploads(half_round(1)) == half.uploads(half_round(2)) == (Kind.DELTA, Kind.MOMENTUM)


def test_the_model_is_the_mean_of_the_personal_models(tmp_path: Path) -> None:
    run = federation(tmp_path)
    for _ in range(3):
        run.round()
    half, state = run.learner.half, run.learner.state
    parts = State({name: state.vectors[name] for name in half.made_of(state)}, state.scalars)
    tested = [(name, vector.double().numpy().copy()) for name, vector in half.models(parts)]
    assert [name for name, _ in tested] == ["representation", "personal", "personal", "personal"]
    assert load("pfedmo").models == ("representation", "personal")
    mean = sum(n * vector for n, (_, vector) in zip(run.sizes, tested[1:], strict=True)) / sum(run.sizes)
    np.testing.assert_allclose(mean, run.model, atol=1e-6)
    assert not np.array_equal(tested[1][1], tested[2][1])


def test_preparing_twice_is_preparing_once(tmp_path: Path) -> None:
    run = federation(tmp_path)
    run.round()
    opened = run.learner.round(2, (0, 1, 2), dict(enumerate(run.sizes)))
    half, state = run.learner.half, run.learner.state
    opened = replace(opened, plan=run.learner.plan(opened))
    first, second = (half.prepare(state, opened) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.vectors.keys() == second.vectors.keys()
    assert all(torch.equal(first.vectors[name], second.vectors[name]) for name in first.vectors)
    half.going = False
    assert half.prepare(state, opened) is None


def vectors_alive(size: int) -> int:
    gc.collect()  # what the clients of this process have left
    alive = [item for item in gc.get_objects() if type(item) is Tensor and item.numel() == size]
    return len({item.untyped_storage().data_ptr() for item in alive})


def most_model_vectors(run: Federation, patch: pytest.MonkeyPatch) -> int:
    """Return how many vectors of the model's size rounds add at most, when their last update is folded."""
    half, seen, size = run.learner.half, list[int](), run.learner.state.model.numel()
    fold: Callable[..., None] = half.fold
    before = vectors_alive(size)

    def counted(sums: Accumulators, update: Update, weight: float) -> None:
        fold(sums, update, weight)
        if update.seat == len(run.sizes) - 1:
            seen.append(vectors_alive(size) - before)

    patch.setattr(half, "fold", counted)
    for _ in range(3):
        run.round()
    return max(seen)


def test_memory_does_not_grow_with_the_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Personal models are formed when they are asked for, and forgotten."""
    few = most_model_vectors(federation(tmp_path / "few", sizes=(5, 7, 6)), monkeypatch)
    many = most_model_vectors(federation(tmp_path / "many", sizes=(5, 7, 6) * 10), monkeypatch)
    assert 0 < many <= few


def test_batch_norm_statistics_of_the_representation_model_are_its_own() -> None:
    half, state = lone()
    assert half.buffers(state, "representation") is state.vectors["buffers"]  # a model without any
    state.vectors |= {"buffers": torch.ones(3), "representation buffers": torch.zeros(3)}
    assert half.buffers(state, "representation").tolist() == [0, 0, 0]
    assert half.buffers(state, "personal").tolist() == half.buffers(state, "global").tolist() == [1, 1, 1]


def test_a_client_s_own_model_is_the_one_that_came() -> None:
    bench = bench_of("mlp", SHAPE, hidden="8")
    half, sent = half_of("pfedmo", bench), broadcast_of(bench)
    work = local_of(bench, samples(9, SHAPE), Plan(lr=0.1, batch_size=4), received=sent)
    steps.run(half, work)
    own = half.own_model(work)
    assert own is not None
    assert torch.equal(own, sent[Kind.MODEL])
    assert not torch.equal(own, work.params)


def test_a_client_s_own_model_is_tested_with_the_statistics_that_came_with_it() -> None:
    """Buffers of personalised downloads are the plain average, not what training makes of it (METHODS 2)."""
    shape, data = (1, 32, 32), samples(8, (1, 32, 32), seed=8)
    bench = bench_of("resnet18", shape, norm="batch")
    half, sent = half_of("pfedmo", bench), broadcast_of(bench)
    work = local_of(bench, samples(6, shape), Plan(lr=0.1, steps=2), received=sent)
    steps.run(half, work)
    assert not torch.equal(work.model.buffers, sent[Kind.BUFFERS])
    trained = work.model.buffers.clone()
    (score,) = examine(half, work, TestSamples({LOCAL: lambda: data}), (LOCAL,), lambda: True)
    expected = work.loss_at(sent[Kind.MODEL], data_batch(data), sent[Kind.BUFFERS])
    assert score.loss == pytest.approx(expected, rel=1e-5)
    assert score.loss != pytest.approx(work.loss_at(sent[Kind.MODEL], data_batch(data), trained), rel=1e-3)
    assert torch.equal(work.model.buffers, trained)  # they are on their way to the server


def data_batch(data: LocalData) -> Batch:
    return Batch(data.x, data.y, -1)


# ------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gamma": "1"}, r"gamma is '1', allowed is a number in \[0, 1\)"),
        ({"pi": "1.5"}, r"pi is '1.5', allowed is a number in \[0, 1\]"),
        ({"eq12": "paper"}, "eq12 is 'paper', allowed is interp or printed or flipped"),
        ({"score_set": "train"}, "score_set is 'train', allowed is heldout or test"),
        ({"score_batch": "-1"}, "score_batch is '-1', allowed is an integer >= 0"),
        ({"public_fraction": "0"}, r"public_fraction is '0', allowed is a number in \(0, 1\)"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("pfedmo").params, options)


# ------------------------------------------------------------------------------------- real runs


def test_a_real_run_tests_all_four_kinds_of_models(tmp_path: Path) -> None:
    """After every round, and once more when the clients have got their last personal models."""
    with flock(tmp_path) as made:
        server = made.server("--method=pfedmo", "--clients=3", "--rounds=3", "--epochs=1")
        clients = made.clients("c0,c1", "c2")
        assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
        found = made.rows("SELECT round, model, members FROM evaluations")
        down = made.rows("SELECT DISTINCT round, bytes_down FROM costs")
    members = {"representation": 1, "personal": 3, "global": 1, "client_local": 3}
    assert set(found) == {(round, *each) for round in (1, 2, 3, 4) for each in members.items()}
    sizes = {size for round, size in down if round <= 3}
    assert max(sizes) == 2 * min(sizes)
    assert {size for round, size in down if round > 3} == {0}, "what is fetched for tests alone is no cost"


def test_a_real_run_has_the_same_bits_after_kills(tmp_path: Path) -> None:
    """The server dies while a round is open: what it prepares is repeated."""
    check_that_kills_leave_no_trace(
        tmp_path, "--method=pfedmo", "--clients=3", "--rounds=10", "--set=score_batch=8", "--lr=0.1"
    )
