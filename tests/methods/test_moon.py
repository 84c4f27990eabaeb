"""MOON (Li et al. 2021, Algorithm 1): the contrastive term against NumPy, autograd and its limits."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from edgeflock.common.errors import BadValue
from edgeflock.common.flat import views
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.base import Batch
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan, State
from edgeflock.methods.kit.workbench import Workbench
from support.federation import WIDTHS, Federation
from support.hand_mlp import Vector, backward, forward, gradient
from support.interrupted import check_that_kills_leave_no_trace
from support.training import bench_of, broadcast_of, half_of, local_of, normed_bench, samples

SHAPE = (1, 8, 8)
PLAN = Plan(lr=0.2, batch_size=6, epochs=2, momentum=0.5)
COHORTS = [(0, 1, 2), (0, 2), (0, 1), (1, 2), (0, 1, 2)]
LOST = [(), (), (0,), (), ()]


def unit_rows(z: Vector) -> tuple[Vector, Vector]:
    """Return the rows over their lengths, and the lengths; a row of zeros stays one."""
    lengths = np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-8)
    return z / lengths, lengths


def contrastive_gradient(w: Vector, start: Vector, last: Vector, x: Vector, mu: float, heat: float) -> Vector:
    """Return the gradient of mu mean(-log softmax((cos(z, zg), cos(z, zp)) / T)[0]).

    d cos(z, u) / dz = (u - cos z) / |z| for unit vectors u, z; d loss / d cos are -s/T and s/T with
    s = sigmoid((cos_p - cos_g) / T).
    """
    (z, lengths), (zg, _), (zp, _) = (unit_rows(forward(v, WIDTHS, x)[0]) for v in (w, start, last))
    like, unlike = (z * zg).sum(1, keepdims=True), (z * zp).sum(1, keepdims=True)
    s = 1 / (1 + np.exp((like - unlike) / heat))
    by_z = s / heat * ((zp - unlike * z) - (zg - like * z)) / lengths
    return backward(w, WIDTHS, x, np.zeros((len(x), WIDTHS[2])), mu * by_z / len(x))


def by_hand(run: Federation, mu: float, heat: float) -> list[Vector]:
    """Return w after every round of the script."""
    w, last, after = run.model, dict[int, Vector](), list[Vector]()
    for t, (cohort, dropped) in enumerate(zip(COHORTS, LOST, strict=True), start=1):
        ends: dict[int, Vector] = {}
        for k in cohort:
            x, v = w.copy(), np.zeros_like(w)
            for features, labels in run.batches(k, t):
                g = gradient(x, WIDTHS, features, labels)
                if k in last:
                    g = g + contrastive_gradient(x, w, last[k], features, mu, heat)
                v = 0.5 * v + g
                x = x - 0.2 * v
            if k not in dropped:
                ends[k] = x
        n = sum(run.sizes[k] for k in ends)
        w = np.sum([run.sizes[k] / n * end for k, end in ends.items()], axis=0)
        last.update(ends)
        after.append(w)
    return after


def test_rounds_with_absent_clients_and_a_lost_update_equal_the_hand_computation(tmp_path: Path) -> None:
    """Client 0's third update is lost: in round 5 its previous model is that of round 2."""
    run = Federation(tmp_path, "moon", {"mu": "2", "temperature": "0.4"}, plan=PLAN)
    expected, plain = by_hand(run, 2.0, 0.4), by_hand(run, 0.0, 0.4)
    for cohort, lost, w in zip(COHORTS, LOST, expected, strict=True):
        run.round(*cohort, lost=lost)
        np.testing.assert_allclose(run.model, w, atol=1e-5)
    assert np.abs(expected[-1] - plain[-1]).max() > 1e-3


def named(bench: Workbench, vector: Tensor, buffers: Tensor) -> dict[str, Tensor]:
    """Return parameters and float buffers for PyTorch's functional calls."""
    pairs = ((vector, bench.model.layout), (buffers, bench.model.layouts.buffers))
    return {
        spec.name: part.requires_grad_(flat is vector)
        for flat, layout in pairs
        for spec, part in zip(layout.tensors, views(flat.clone(), layout), strict=True)
    }


def test_every_frozen_model_has_its_own_batch_norm_statistics() -> None:
    """Against functional_call: the received model's as received, the previous one's as it ended."""
    bench = normed_bench()
    received = broadcast_of(bench)
    generator = torch.Generator().manual_seed(2)
    last = received[Kind.MODEL] + 0.3 * torch.randn(bench.params.numel(), generator=generator)
    own = received[Kind.BUFFERS] + torch.rand(received[Kind.BUFFERS].numel(), generator=generator)
    state = State({"model": last, "buffers": own})
    data = samples(7, (4,))
    work = local_of(bench, data, Plan(lr=0.1, batch_size=0), round=3, received=received, state=state)
    half = half_of("moon", bench, mu="0.8", temperature="0.25")
    work.params.add_(0.05)
    work.term = lambda batch, z, logits: half.loss(work, batch, z, logits)
    loss = work.compute(Batch(data.x, data.y, 0))
    moved, passes = bench.model.buffers.clone(), int(bench.model.counters)

    bench.net.eval()
    with torch.no_grad():
        zg = functional_call(
            bench.net, named(bench, received[Kind.MODEL], received[Kind.BUFFERS]), (data.x,)
        )[0]
        zp = functional_call(bench.net, named(bench, last, own), (data.x,))[0]
    bench.net.train()
    at = named(bench, work.params, received[Kind.BUFFERS])
    z, logits = functional_call(bench.net, at, (data.x,))
    pairs = torch.stack([nn.functional.cosine_similarity(z, other) for other in (zg, zp)], 1) / 0.25
    targets = torch.zeros(7, dtype=torch.int64)
    expected = nn.functional.cross_entropy(logits, data.y) + 0.8 * nn.functional.cross_entropy(pairs, targets)
    grads = torch.autograd.grad(expected, [at[spec.name] for spec in bench.model.layout.tensors])
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(work.grads, torch.cat([g.reshape(-1) for g in grads]), rtol=1e-4, atol=1e-6)
    assert not torch.equal(moved, received[Kind.BUFFERS])  # by the trained model's pass alone
    assert passes == 1


def test_the_state_holds_model_and_statistics_as_they_were_sent() -> None:
    bench = normed_bench()
    work = local_of(bench, samples(9, (4,)), Plan(lr=0.1, batch_size=4))
    steps.run(half_of("moon", bench), work)
    assert torch.equal(work.new_state.vectors["model"], work.params)
    assert torch.equal(work.new_state.vectors["buffers"], bench.model.buffers)
    assert not torch.equal(bench.model.buffers, work.received[Kind.BUFFERS])


def test_a_first_participation_is_fedavg_s_and_its_loss_has_the_constant() -> None:
    bench, data = bench_of("lenet5", SHAPE), samples(20, SHAPE)
    sent, plan = broadcast_of(bench), Plan(lr=0.1, batch_size=6)
    deltas, losses = [], []
    for half in (half_of("fedavg", bench), half_of("moon", bench, mu="3")):
        work = local_of(bench, data, plan, received=sent)
        deltas.append(steps.run(half, work)[Kind.DELTA].clone())
        losses.append(work.mean_loss())
    assert torch.equal(deltas[0], deltas[1])
    assert losses[1] - losses[0] == pytest.approx(3 * math.log(2), rel=1e-5)


def test_mu_0_is_fedavg_bit_for_bit_and_a_lost_state_is_a_first_participation(tmp_path: Path) -> None:
    runs = {
        "plain": Federation(tmp_path / "plain", "fedavg", plan=PLAN),
        "zero": Federation(tmp_path / "zero", "moon", {"mu": "0"}, plan=PLAN),
        "forgetful": Federation(tmp_path / "forgetful", "moon", {"mu": "5"}, plan=PLAN),
        "moon": Federation(tmp_path / "moon", "moon", {"mu": "5"}, plan=PLAN),
    }
    for _ in range(3):
        for name, run in runs.items():
            run.round()
            for index in range(3 if name == "forgetful" else 0):
                run.forget(index)
    models = {name: run.model for name, run in runs.items()}
    assert np.array_equal(models["zero"], models["plain"])
    assert np.array_equal(models["forgetful"], models["plain"])
    assert not np.array_equal(models["moon"], models["plain"])


def test_a_low_temperature_sharpens_the_term(tmp_path: Path) -> None:
    """At a high one both similarities weigh the same whatever they are, and the pull vanishes."""
    moved = {}
    plain = Federation(tmp_path / "plain", "fedavg", plan=PLAN)
    for _ in range(2):
        plain.round()
    for heat in ("0.1", "1000"):
        run = Federation(tmp_path / heat, "moon", {"temperature": heat}, plan=PLAN)
        for _ in range(2):
            run.round()
        moved[heat] = float(np.abs(run.model - plain.model).max())
    assert moved["1000"] < 1e-3 < moved["0.1"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mu": "-1"}, "mu is '-1', allowed is a number >= 0"),
        ({"temperature": "0"}, "temperature is '0', allowed is a number > 0"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("moon").params, options)


def test_a_real_run_keeps_the_previous_models_over_kills(tmp_path: Path) -> None:
    check_that_kills_leave_no_trace(tmp_path, "--method=moon", "--clients=3", "--cohort=2", "--rounds=30")
