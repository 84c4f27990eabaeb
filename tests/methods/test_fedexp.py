"""FedExP (Jhunjhunwala et al. 2023, Algorithm 1): the server step, the average of two iterates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.errors import BadValue
from edgeflock.common.models.kit import registry as models
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from support.federation import WIDTHS, Federation
from support.hand_mlp import local_round
from support.interrupted import check_that_kills_leave_no_trace
from support.processes import flock
from support.tiny_run import layouts, learner, update

COHORTS = [(0, 1, 2), (0, 2), (1,), (0, 1, 2)]


@pytest.mark.parametrize("weighting", ["table", "uniform"])
def test_rounds_equal_the_hand_computation(tmp_path: Path, weighting: str) -> None:
    """A small eps, so that the step is longer than 1 wherever the clients disagree."""
    run = Federation(
        tmp_path, "fedexp", {"eps": "0.01", "eps_decay": "0.5", "result": "average", "weighting": weighting}
    )
    w = run.model
    etas = []
    for t, cohort in enumerate(COHORTS, start=1):
        deltas = {k: local_round(w, WIDTHS, run.batches(k, t), lr=0.1) for k in cohort}
        share = {k: run.sizes[k] if weighting == "table" else 1.0 for k in cohort}
        total = sum(share.values())
        mean = np.sum([share[k] * delta for k, delta in deltas.items()], axis=0) / total
        squares = sum(share[k] * float(delta @ delta) for k, delta in deltas.items()) / total
        eta = max(1.0, squares / (2 * (float(mean @ mean) + 0.01 * 0.5 ** (t - 1))))
        before, w = w, w + eta * mean
        metrics = run.round(*cohort)
        assert metrics["eta_g"] == pytest.approx(eta, rel=1e-4)
        np.testing.assert_allclose(run.model, w, atol=1e-5)
        np.testing.assert_allclose(run.learner.result().numpy(), (w + before) / 2, atol=1e-5)
        etas.append(eta)
    assert min(etas) == 1
    assert max(etas) > 1.05


def played(deltas: list[torch.Tensor], folder: Path, **options: str) -> tuple[float, torch.Tensor]:
    """Return the server step and the model's move when the clients have sent these deltas."""
    of = layouts(numbers=deltas[0].numel())
    brain = learner(of, method="fedexp", clients=len(deltas), **options)
    start = brain.state.model.clone()
    opened = brain.round(1, range(len(deltas)), dict.fromkeys(range(len(deltas)), 10))
    brain.begin_fold(opened)
    made = {
        index: update(of, index, delta=delta).spooled(index, folder, of) for index, delta in enumerate(deltas)
    }
    assert brain.fold(range(len(deltas)), made) == {}
    return brain.step(opened)["eta_g"], brain.state.model - start


def test_identical_deltas_have_step_1(tmp_path: Path) -> None:
    """Half would be the formula's, the max makes it 1."""
    delta = torch.randn(40, generator=torch.Generator().manual_seed(1))
    eta, move = played([delta] * 3, tmp_path)
    assert eta == 1
    torch.testing.assert_close(move, delta)


def test_orthogonal_deltas_of_s_clients_have_step_s_half(tmp_path: Path) -> None:
    """mean ||D||^2 = 1 and ||mean D||^2 = 1/S."""
    eta, move = played(list(torch.eye(40)[:8]), tmp_path, eps="1e-12")
    assert eta == pytest.approx(4)
    torch.testing.assert_close(move, torch.cat([torch.full((8,), 0.5), torch.zeros(32)]), atol=1e-6, rtol=0)


def test_a_large_eps_is_fedavg_and_cancelling_deltas_stay_finite(tmp_path: Path) -> None:
    delta = torch.ones(40)
    assert played([delta, -delta], tmp_path, eps="1000")[0] == 1
    eta, move = played([delta, -delta], tmp_path, eps="0.001")
    assert eta == pytest.approx(40 / 0.002)
    assert float(move.abs().max()) == 0


def test_with_a_large_eps_a_run_is_fedavg_s(tmp_path: Path) -> None:
    exp = Federation(tmp_path / "exp", "fedexp", {"eps": "1e6"})
    plain = Federation(tmp_path / "plain", "fedavg")
    for _ in range(3):
        exp.round()
        plain.round()
    assert np.array_equal(exp.model, plain.model)


def test_deltas_of_0_move_nothing_even_when_eps_has_decayed_to_0(tmp_path: Path) -> None:
    assert played([torch.zeros(40)] * 2, tmp_path, eps="5e-324")[1].abs().max() == 0
    run = Federation(tmp_path / "run", "fedexp", {"eps_decay": "1e-300"}, sizes=(6, 6))
    for _ in range(3):
        run.round()
    assert np.isfinite(run.model).all()


def test_the_result_is_the_last_iterate_unless_the_average_is_wanted(tmp_path: Path) -> None:
    runs = {
        result: Federation(tmp_path / result, "fedexp", {"result": result}) for result in ("last", "average")
    }
    start = runs["last"].model
    for run in runs.values():
        assert np.array_equal(run.learner.result().numpy(), start.astype(np.float32))
        run.round()
        run.round()
    assert np.array_equal(runs["last"].model, runs["average"].model)  # the clients' model is the same
    assert runs["last"].learner.result() is runs["last"].learner.state.model
    assert set(runs["last"].learner.state.vectors) == {"model", "buffers", "counters"}
    assert not np.array_equal(runs["average"].learner.result().numpy(), runs["average"].model)


def test_the_previous_iterate_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    runs = [Federation(tmp_path / name, "fedexp", {"result": "average"}) for name in ("calm", "killed")]
    for number in range(3):
        for run in runs:
            run.round()
        if number == 1:
            runs[1].restart()
            assert torch.equal(runs[0].learner.result(), runs[1].learner.result())
    assert torch.equal(runs[0].learner.result(), runs[1].learner.result())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"eps": "0"}, "eps is '0', allowed is a number > 0"),
        ({"eps_decay": "0"}, r"eps_decay is '0', allowed is a number in \(0, 1\]"),
        ({"eps_decay": "1.01"}, r"eps_decay is '1.01', allowed is a number in \(0, 1\]"),
        ({"result": "mean"}, "result is 'mean', allowed is last or average"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("fedexp").params, options)


def loss_on_digits(parameters: dict[str, np.ndarray[Any, Any]]) -> float:
    """Return the loss of the run's model on digits."""
    digits = datasets.load("digits")
    test = digits.ready(digits.test)
    net = models.build("mlp", input_shape=digits.input_shape, classes=digits.classes, seed=1)
    net.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in parameters.items()})
    return net.loss(net(torch.from_numpy(test.x))[1], torch.from_numpy(test.y)).item()


AVERAGE = ("--method=fedexp", "--set=result=average", "--clients=3", "--partition=dirichlet:0.3")


def test_a_real_run_hands_out_and_tests_the_average(tmp_path: Path) -> None:
    """model.safetensors is the mean of the last two rounds, and its loss is the one in the journal."""
    with flock(tmp_path) as made:
        server = made.server(*AVERAGE, "--rounds=4")
        clients = made.clients("c0,c1", "c2")
        assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
        result = load_file(made.run_dir / "model.safetensors")
        last, before = (load_file(made.run_dir / f"rounds/00000{t}/model.safetensors") for t in (4, 3))
        for name, tensor in result.items():
            np.testing.assert_allclose(tensor, (last[name] + before[name]) / 2, atol=1e-7)
        ((said,),) = made.rows("SELECT loss FROM evaluations WHERE round = 4 AND model = 'global'")
        assert said == pytest.approx(loss_on_digits(result), rel=1e-4)
        assert abs(said - loss_on_digits(last)) > 1e-3


def test_a_real_run_keeps_the_previous_iterate_over_kills(tmp_path: Path) -> None:
    check_that_kills_leave_no_trace(tmp_path, *AVERAGE, "--cohort=2", "--rounds=30")
