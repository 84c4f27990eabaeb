"""FedNTD (Lee et al. 2022): the distillation of the not-true classes against NumPy and autograd."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edgeflock.common.errors import BadValue
from edgeflock.common.payload.package import Kind
from edgeflock.methods.fedntd import not_true
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.base import Batch
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan
from support.federation import WIDTHS, Federation
from support.hand_mlp import Vector, backward, forward, gradient
from support.interrupted import check_that_kills_leave_no_trace
from support.training import bench_of, broadcast_of, half_of, local_of, samples

SHAPE = (1, 8, 8)
PLAN = Plan(lr=0.3, batch_size=6, epochs=2, momentum=0.5)


def chances(logits: Vector, heat: float) -> Vector:
    powers = np.exp((logits - logits.max()) / heat)
    result: Vector = powers / powers.sum()
    return result


def distillation_gradient(
    w: Vector, start: Vector, x: Vector, y: NDArray[np.int64], beta: float, heat: float
) -> Vector:
    """Return the gradient of beta T^2 mean KL(p_g || p): beta T (p - p_g) / B at the not-true classes."""
    own, frozen = forward(w, WIDTHS, x)[1], forward(start, WIDTHS, x)[1]
    by_logits = np.zeros_like(own)
    for row, true in enumerate(y):
        others = [c for c in range(WIDTHS[2]) if c != true]
        p, p_frozen = chances(own[row, others], heat), chances(frozen[row, others], heat)
        by_logits[row, others] = beta * heat * (p - p_frozen) / len(y)
    return backward(w, WIDTHS, x, by_logits)


@pytest.mark.parametrize(("beta", "heat"), [(1.5, 1.0), (1.5, 3.0), (0.0, 1.0)])
def test_rounds_equal_the_hand_computation(tmp_path: Path, beta: float, heat: float) -> None:
    run = Federation(tmp_path, "fedntd", {"beta": str(beta), "temperature": str(heat)}, plan=PLAN)
    w, away = run.model, 0.0
    for t, cohort in enumerate([(0, 1, 2), (0, 2), (1, 2)], start=1):
        ends = {}
        for k in cohort:
            x, v = w.copy(), np.zeros_like(w)
            for features, labels in run.batches(k, t):
                extra = distillation_gradient(x, w, features, labels, beta, heat)
                away = max(away, float(np.abs(extra).max()))
                v = 0.5 * v + gradient(x, WIDTHS, features, labels) + extra
                x = x - 0.3 * v
            ends[k] = x
        n = sum(run.sizes[k] for k in cohort)
        w = np.sum([run.sizes[k] / n * end for k, end in ends.items()], axis=0)
        run.round(*cohort)
        np.testing.assert_allclose(run.model, w, atol=1e-5)
    assert (away > 0.01) == (beta > 0)


def test_the_loss_of_a_convolution_equals_the_sum_written_out() -> None:
    """Ten classes; every sample's KL divergence over its nine others, in float64."""
    bench, data = bench_of("lenet5", SHAPE, classes=10), samples(6, SHAPE, classes=10)
    work = local_of(bench, data, Plan(lr=0.1, batch_size=0))
    half = half_of("fedntd", bench, beta="0.7", temperature="2")
    frozen = bench.net(data.x)[1].detach().double().numpy()
    work.params.add_(0.1 * torch.randn(work.params.numel(), generator=torch.Generator().manual_seed(1)))
    features, logits = bench.net(data.x)
    expected = 0.0
    for own, old, true in zip(logits.detach().double().numpy(), frozen, data.y.tolist(), strict=True):
        p, q = chances(np.delete(own, true), 2.0), chances(np.delete(old, true), 2.0)
        expected += 0.7 * 4 * float(np.sum(q * np.log(q / p))) / 6
    term: Tensor | None = half.loss(work, Batch(data.x, data.y, 0), features, logits)
    assert term is not None
    assert term.item() == pytest.approx(expected, rel=1e-4)
    assert expected > 1e-3


def test_the_received_model_is_asked_in_eval_mode() -> None:
    """With dropout two passes of one model differ, unless the frozen one's mode is eval."""
    bench, data = bench_of("cnn", SHAPE, dropout="0.5"), samples(6, SHAPE)
    work = local_of(bench, data, Plan(lr=0.1, batch_size=0))
    bench.net.eval()
    features, logits = bench.net(data.x)
    bench.net.train()
    term = half_of("fedntd", bench).loss(work, Batch(data.x, data.y, 0), features, logits)
    assert term is not None
    assert abs(term.item()) < 1e-6
    assert bench.net.training


def test_the_first_step_is_fedavg_s() -> None:
    """At the start both models agree: no gradient."""
    bench, data = bench_of("mlp", SHAPE, hidden="8"), samples(20, SHAPE)
    sent = broadcast_of(bench)
    for count, same in ((1, True), (3, False)):
        plan = Plan(lr=0.1, batch_size=6, steps=count)
        deltas = [
            steps.run(half_of(name, bench), local_of(bench, data, plan, received=sent))[Kind.DELTA].clone()
            for name in ("fedavg", "fedntd")
        ]
        assert torch.allclose(deltas[0], deltas[1], rtol=0, atol=1e-7) == same


@pytest.mark.parametrize("model", ["mlp", "svm"])
def test_beta_0_and_models_of_two_classes_are_fedavg_bit_for_bit(model: str) -> None:
    """One class that is not true has probability 1 for both; the svm has a single logit."""
    arguments = {"hidden": "8"} if model == "mlp" else {}
    data, plan = samples(20, SHAPE, classes=2), Plan(lr=0.1, batch_size=6)
    bench = bench_of(model, SHAPE, classes=2, **arguments)
    sent = broadcast_of(bench)
    deltas = [
        steps.run(half_of(name, bench), local_of(bench, data, plan, received=sent))[Kind.DELTA].clone()
        for name in ("fedavg", "fedntd")
    ]
    assert torch.equal(deltas[0], deltas[1])
    three = bench_of("mlp", SHAPE, hidden="8")
    more, again = samples(20, SHAPE), broadcast_of(three)
    ends = [
        steps.run(half, local_of(three, more, plan, received=again))[Kind.DELTA].clone()
        for half in (half_of("fedavg", three), half_of("fedntd", three, beta="0"))
    ]
    assert torch.equal(ends[0], ends[1])


def test_the_not_true_classes_are_all_but_the_label() -> None:
    assert not_true(torch.tensor([0, 3, 2]), 4).tolist() == [[1, 2, 3], [0, 1, 2], [0, 1, 3]]


def test_a_strong_distillation_keeps_the_order_of_the_other_classes(tmp_path: Path) -> None:
    """Cross entropy alone moves the not-true logits against each other; a large beta holds them."""
    data = samples(30, SHAPE, classes=3)
    drift = {}
    for beta in ("0", "50"):
        bench = bench_of("logistic", SHAPE)
        sent = broadcast_of(bench)
        with torch.no_grad():
            before = bench.net(data.x)[1].gather(1, not_true(data.y, 3))
        work = local_of(bench, data, Plan(lr=0.02, batch_size=0, steps=30), received=sent)
        steps.run(half_of("fedntd", bench, beta=beta), work)
        with torch.no_grad():
            after = bench.net(data.x)[1].gather(1, not_true(data.y, 3))
        drift[beta] = nn.functional.kl_div(
            after.log_softmax(1), before.softmax(1), reduction="batchmean"
        ).item()
    assert drift["50"] < 0.1 * drift["0"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"beta": "-1"}, "beta is '-1', allowed is a number >= 0"),
        ({"temperature": "0"}, "temperature is '0', allowed is a number > 0"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("fedntd").params, options)


def test_a_real_run_ends_in_the_same_bits_over_kills(tmp_path: Path) -> None:
    check_that_kills_leave_no_trace(tmp_path, "--method=fedntd", "--clients=3", "--cohort=2", "--rounds=30")
