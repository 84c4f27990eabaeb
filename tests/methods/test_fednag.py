"""FedNAG (Yang et al. 2020), and the Nesterov step that FastSlowMo and pFedMo share with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgeflock.common.errors import BadValue, UsageError
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan
from edgeflock.server.config import ServerConfig
from edgeflock.server.start.resolve import resolve
from support.federation import Federation, nag
from support.interrupted import check_that_kills_leave_no_trace
from support.training import bench_of, broadcast_of, half_of, local_of, samples

PLAN = Plan(lr=0.1, batch_size=6, epochs=2, weight_decay=0.02)


@pytest.mark.parametrize("weighting", ["table", "uniform"])
@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_rounds_equal_the_hand_computation(tmp_path: Path, gamma: float, weighting: str) -> None:
    """x <- mean x_i and y <- mean y_i, with K_i of 8, 4 and 6 and a rate that decays over the rounds."""
    options = {"gamma": str(gamma), "weighting": weighting}
    run = Federation(tmp_path, "fednag", options, plan=PLAN, lr_decay=0.8)
    shares = run.sizes if weighting == "table" else (1, 1, 1)
    x = y = run.model
    for t in range(1, 6):
        ends = [nag(run, i, t, x, y, gamma) for i in range(3)]
        x, y = np.average(np.array(ends), axis=0, weights=shares)
        run.round()
        np.testing.assert_allclose(run.model, x, atol=1e-5)
        np.testing.assert_allclose(run.learner.state.vectors["momentum"].numpy(), x - y, atol=1e-5)
    assert np.abs(x - y).max() > 1e-3


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9])
def test_a_local_round_is_torch_s_sgd_with_nesterov(gamma: float) -> None:
    """Buffer -v/(gamma eta): from a received v, and back to it."""
    bench, data = bench_of("mlp", (1, 4, 5), hidden="8"), samples(20, (1, 4, 5))
    received = broadcast_of(bench)
    v = 0.01 * torch.randn(bench.params.numel(), generator=torch.Generator().manual_seed(2))
    plan, received[Kind.MOMENTUM] = Plan(lr=0.1, batch_size=6, epochs=2, weight_decay=0.02), v
    work = local_of(bench, data, plan, received=received)
    sent = {k: t.clone() for k, t in steps.run(half_of("fednag", bench, gamma=str(gamma)), work).items()}

    x = received[Kind.MODEL].clone().requires_grad_()
    optimiser = torch.optim.SGD([x], lr=0.1, momentum=gamma, nesterov=gamma > 0, weight_decay=0.02)
    if gamma:
        optimiser.state[x]["momentum_buffer"] = -v / (gamma * 0.1)
    again = local_of(bench, data, plan, received=received)
    for batch in again.batches():
        x.grad = again.gradient_at(x.detach(), batch).clone()
        optimiser.step()
    torch.testing.assert_close(sent[Kind.DELTA], x.detach() - received[Kind.MODEL], rtol=1e-4, atol=1e-6)
    if gamma:
        buffer = optimiser.state[x]["momentum_buffer"]
        torch.testing.assert_close(sent[Kind.MOMENTUM], -gamma * 0.1 * buffer, rtol=1e-3, atol=1e-6)
    else:
        assert float(sent[Kind.MOMENTUM].abs().max()) == 0


def test_gamma_0_is_fedavg_bit_for_bit(tmp_path: Path) -> None:
    fast = Federation(tmp_path / "nag", "fednag", {"gamma": "0"}, plan=PLAN)
    plain = Federation(tmp_path / "avg", "fedavg", plan=PLAN)
    for _ in range(3):
        fast.round()
        plain.round()
    assert np.array_equal(fast.model, plain.model)


def test_the_momentum_goes_on_from_round_to_round(tmp_path: Path) -> None:
    """Two rounds of one client are one round of twice the steps."""
    half = Plan(lr=0.1, batch_size=0, steps=3)
    twice = Federation(tmp_path / "twice", "fednag", sizes=(12,), plan=half)
    once = Federation(tmp_path / "once", "fednag", sizes=(12,), plan=Plan(lr=0.1, batch_size=0, steps=6))
    twice.round()
    twice.round()
    once.round()
    np.testing.assert_allclose(twice.model, once.model, atol=1e-6)


@pytest.mark.parametrize("method", ["fednag", "fastslowmo"])
def test_what_travels_is_twice_the_model_and_once_down_in_the_first_round(
    tmp_path: Path, method: str
) -> None:
    run = Federation(tmp_path, method)
    for number, down in ((1, {Kind.MODEL}), (2, {Kind.MODEL, Kind.MOMENTUM})):
        opened = run.learner.round(number, (0,), {0: 20})
        assert run.learner.half.broadcast(run.learner.state, opened).keys() == down
        assert run.learner.half.uploads(opened) == (Kind.DELTA, Kind.MOMENTUM)


@pytest.mark.parametrize("method", ["fednag", "fastslowmo"])
@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"participation": "online"},
            " needs every client in every round: --participation online is refused",
        ),
        ({"cohort": 2}, " needs every client in every round: --cohort is 2 of --clients 3"),
        ({"min_updates": 2}, " needs every client in every round: --min-updates is 2, allowed is 3"),
    ],
)
def test_less_than_full_participation_is_refused(
    method: str, values: dict[str, int | str], sentence: str
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(ServerConfig(method=method, clients=3, **values))  # type: ignore[arg-type]
    assert str(caught.value) == method + sentence


@pytest.mark.parametrize("method", ["fednag", "fastslowmo"])
def test_a_cohort_script_must_name_everybody_in_every_round(tmp_path: Path, method: str) -> None:
    script = tmp_path / "cohorts.txt"
    config = ServerConfig(method=method, clients=3, rounds=2, cohort_script=script)
    script.write_text("c0 c1 c2\nc2 c0\n")
    with pytest.raises(UsageError, match="--cohort-script leaves a client out of --clients 3"):
        resolve(config)
    script.write_text("c0 c1 c2\nc2 c0 c1\n")
    assert resolve(config).min_updates == 3


@pytest.mark.parametrize("method", ["fednag", "fastslowmo"])
def test_the_run_s_momentum_must_be_0_and_the_training_defaults_are_the_method_s(method: str) -> None:
    resolved = resolve(ServerConfig(method=method, momentum=0.0))
    assert (resolved.lr, resolved.batch_size, resolved.momentum) == (0.01, 64, 0.0)
    with pytest.raises(BadValue, match=f"--momentum is 0.5, allowed is 0 with {method}"):
        resolve(ServerConfig(method=method, momentum=0.5))


@pytest.mark.parametrize("text", ["1", "-0.1", "nan"])
def test_a_gamma_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match=rf"gamma is '{text}', allowed is a number in \[0, 1\)"):
        parse(load("fednag").params, {"gamma": text})


def test_a_real_run_keeps_its_momentum_over_kills(tmp_path: Path) -> None:
    flags = ("--method=fednag", "--clients=3", "--rounds=12", "--partition=dirichlet:0.5", "--codec=int8")
    check_that_kills_leave_no_trace(tmp_path, *flags)
