"""What hooks get from their context: second passes, frozen models, walks, batches, kept state."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from edgeflock.common.flat import views
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.base import Batch, ClientHalf, Local
from edgeflock.methods.kit.local import LocalData
from edgeflock.methods.kit.options import Params
from edgeflock.methods.kit.values import Plan, Setting
from edgeflock.methods.kit.workbench import Workbench
from support.training import bench_of, broadcast_of, half_of, local_of, normed_bench, samples

IMAGE = (1, 8, 8)


def tensors(bench: Workbench, vector: Tensor) -> dict[str, Tensor]:
    """Return a vector as named tensors of their own, the way PyTorch's functional calls want them."""
    layout = bench.model.layout
    cut = views(vector.clone(), layout)
    return {spec.name: part.requires_grad_() for spec, part in zip(layout.tensors, cut, strict=True)}


def bare_setting(bench: Workbench) -> Setting:
    return Setting(bench.model.layout, classes=3, features=bench.net.features, clients=1, seed=3)


class SharpAndClose(ClientHalf[Params]):
    """SAM over a loss that pulls the features to those of the received model: FedMRUR's structure."""

    def loss(self, work: Local, batch: Batch, features: Tensor, logits: Tensor) -> Tensor:
        frozen = work.features_at(work.start, batch)
        return (features - frozen).square().mean()

    def backward(self, work: Local, batch: Batch) -> Tensor:
        loss = work.compute(batch)
        away = torch.add(work.params, work.grads, alpha=0.3, out=work.scratch("away"))
        work.compute(batch, at=away, repeat=True)
        return loss


def test_a_second_pass_elsewhere_with_a_frozen_model_inside_has_the_right_gradient() -> None:
    """Against torch.func.functional_call, which shares nothing with the workbench."""
    bench, data = bench_of("lenet5", IMAGE), samples(6, IMAGE)
    received = broadcast_of(bench)
    work = local_of(bench, data, Plan(lr=0.1, batch_size=0, steps=1), received=received)
    half = SharpAndClose(Params(), bare_setting(bench))
    work.start_from(work.start)
    work.params.add_(0.01)  # so that params and start differ
    work.term = lambda batch, features, logits: half.loss(work, batch, features, logits)
    here = work.params.clone()
    half.backward(work, Batch(data.x, data.y, 0))

    def reference(vector: Tensor) -> Tensor:
        named = tensors(bench, vector)
        features, logits = functional_call(bench.net, named, (data.x,))
        frozen = functional_call(bench.net, tensors(bench, received[Kind.MODEL]), (data.x,))[0].detach()
        loss = nn.functional.cross_entropy(logits, data.y) + (features - frozen).square().mean()
        return torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(named.values()))])

    expected = reference(here + 0.3 * reference(here))
    torch.testing.assert_close(work.grads, expected, rtol=1e-4, atol=1e-6)
    assert torch.equal(work.params, here)


class TwoPasses(ClientHalf[Params]):
    """Computes every batch twice at the same point and keeps the largest difference."""

    apart = 0.0
    distinct = 0.0

    def backward(self, work: Local, batch: Batch) -> Tensor:
        loss = work.compute(batch)
        counters, buffers = work.model.counters.clone(), work.model.buffers.clone()
        again = work.gradient_at(work.params, batch)
        self.apart = max(self.apart, float((again - work.grads).abs().max()))
        assert torch.equal(work.model.counters, counters)
        assert torch.equal(work.model.buffers, buffers)
        fresh = work.scratch("fresh")
        work.compute(batch, out=fresh)
        self.distinct = max(self.distinct, float((fresh - work.grads).abs().max()))
        return loss


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_two_passes_of_a_step_share_the_dropout_mask(name: str) -> None:
    bench = bench_of(name, IMAGE, dropout="0.5")
    half = TwoPasses(Params(), bare_setting(bench))
    steps.run(half, local_of(bench, samples(20, IMAGE), Plan(lr=0.1, batch_size=8)))
    assert half.apart == 0.0
    assert half.distinct > 0.0


def test_only_the_first_pass_moves_batch_norm_s_statistics() -> None:
    bench = normed_bench()
    received = broadcast_of(bench)
    work = local_of(bench, samples(10, (4,)), Plan(lr=0.1, batch_size=0, steps=1), received=received)
    batch = next(work.batches())
    work.compute(batch)
    mean = bench.net.get_submodule("first")(batch.x).mean(0)
    moved, counted = bench.model.buffers.clone(), int(bench.model.counters)
    torch.testing.assert_close(moved[:5], 0.1 * mean, rtol=1e-4, atol=1e-6)
    work.compute(batch, at=work.params + 1, repeat=True)
    work.features_at(work.start, batch)
    work.full_gradient(work.params)
    assert torch.equal(bench.model.buffers, moved)
    assert (counted, int(bench.model.counters)) == (1, 1)


def test_a_frozen_model_uses_the_received_statistics_and_the_trained_one_its_own() -> None:
    bench = normed_bench()
    received = broadcast_of(bench)
    work = local_of(bench, samples(10, (4,)), Plan(lr=0.5, batch_size=5, epochs=3), received=received)
    batch = work.batch_in(1, 0)
    with torch.no_grad():
        at_start = bench.net.eval()(batch.x)[1].clone()
    bench.net.train()
    steps.run(half_of("fedavg", bench), work)
    with torch.no_grad():
        trained = bench.net.eval()(batch.x)[1].clone()
    bench.net.train()
    assert torch.equal(work.logits_at(work.start, batch), at_start)
    assert torch.equal(work.logits_at(work.params, batch), trained)
    assert not torch.equal(work.logits_at(work.params, batch, received[Kind.BUFFERS]), trained)


@pytest.mark.parametrize(("count", "batch_size", "moves"), [(1, 4, 0), (9, 4, 2), (5, 4, 1), (10, 4, 3)])
def test_batch_norm_never_trains_on_a_single_sample(count: int, batch_size: int, moves: int) -> None:
    """A lone last batch joins the one before; a one-sample client runs BatchNorm in eval mode."""
    bench = normed_bench()
    work = local_of(bench, samples(count, (4,)), Plan(lr=0.1, batch_size=batch_size))
    delta = steps.run(half_of("fedavg", bench), work)[Kind.DELTA]
    assert int(bench.model.counters) == moves
    assert float(delta.abs().max()) > 0
    assert all(module.training for module in bench.net.modules())


def test_the_full_gradient_is_that_of_the_mean_loss_in_eval_mode() -> None:
    bench, data = bench_of("cnn", IMAGE, dropout="0.5"), samples(150, IMAGE)
    work = local_of(bench, data, Plan(lr=0.1, weight_decay=0.5))
    named = tensors(bench, work.start)
    bench.net.eval()
    loss = nn.functional.cross_entropy(functional_call(bench.net, named, (data.x,))[1], data.y)
    bench.net.train()
    expected = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(named.values()))])
    torch.testing.assert_close(work.full_gradient(work.start), expected, rtol=1e-4, atol=1e-6)
    assert work.loss_at(work.start, Batch(data.x, data.y, -1)) == pytest.approx(loss.item(), rel=1e-5)


def test_mlp_s_gradient_by_hand_has_autograd_s_bits() -> None:
    for hidden in ("16", "12,7"):
        bench, data = bench_of("mlp", IMAGE, hidden=hidden), samples(9, IMAGE)
        batch, autograd = Batch(data.x, data.y, 0), torch.empty_like(bench.grads)
        by_hand = bench.gradient(batch, bench.grads)
        by_autograd = bench.gradient(batch, autograd, lambda *_: None)
        assert torch.equal(by_hand, by_autograd)
        assert torch.equal(bench.grads, autograd)


class Seen(ClientHalf[Params]):
    """Notes the batches it is given."""

    def __init__(self, params: Params, setting: Setting) -> None:
        super().__init__(params, setting)
        self.labels: list[Any] = []

    def begin(self, work: Local) -> None:
        if work.plan.flags.get("reuse"):
            work.first_batch = work.batch_in(1, 3)

    def backward(self, work: Local, batch: Batch) -> Tensor:
        self.labels.append((batch.x.clone(), batch.y.clone()))
        return work.compute(batch)


@pytest.mark.parametrize("count", [10, 1200])
def test_a_round_s_batches_are_those_of_its_order_and_can_be_asked_for_later(count: int) -> None:
    """1200 samples of 16 kB are gathered in several segments."""
    shape = (1, 8, 8) if count == 10 else (4096,)
    bench = bench_of("linear", shape)
    data = samples(count, shape)
    half = Seen(Params(), bare_setting(bench))
    work = local_of(bench, data, Plan(lr=0.1, batch_size=count // 4, epochs=2))
    steps.run(half, work)
    for step, (x, y) in enumerate(half.labels):
        expected = work.batch_in(1, step)
        assert torch.equal(x, expected.x)
        assert torch.equal(y, expected.y)
    again = Seen(Params(), bare_setting(bench))
    steps.run(again, local_of(bench, data, Plan(lr=0.1, batch_size=count // 4, flags={"reuse": 1}), round=2))
    assert torch.equal(again.labels[0][0], half.labels[3][0])
    assert not torch.equal(again.labels[1][0], half.labels[1][0])


def test_kept_state_does_not_move_with_the_parameters() -> None:
    bench = bench_of("mlp", IMAGE)
    work = local_of(bench, samples(10, IMAGE), Plan(lr=0.1))
    work.keep("history", work.params)
    before = work.params.clone()
    work.params.add_(1)
    assert torch.equal(work.new_state.vectors["history"], before)
    assert work.state.vectors == {}
    assert torch.equal(work.zero_or(Kind.CONTROL), torch.zeros_like(before))
    assert work.zero_or(Kind.MODEL) is work.start


def test_a_shifted_start_moves_the_origin_of_delta() -> None:
    bench = bench_of("mlp", IMAGE)
    work = local_of(bench, samples(10, IMAGE), Plan(lr=0.1))
    work.start_from(work.start + 0.5)
    assert torch.equal(work.delta(), torch.zeros_like(work.params))


def test_many_rounds_keep_nothing() -> None:
    bench, data = bench_of("mlp", IMAGE), samples(30, IMAGE)
    half, received = half_of("fedprox", bench), broadcast_of(bench)

    def play(first: int, last: int) -> None:
        for number in range(first, last):
            plan = Plan(lr=0.01, batch_size=8, momentum=0.9)
            steps.run(half, local_of(bench, data, plan, round=number, received=received))

    play(1, 30)
    addresses = (bench.params.data_ptr(), bench.grads.data_ptr(), bench.scratch("delta").data_ptr())
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        play(30, 130)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 50_000
    assert addresses == (bench.params.data_ptr(), bench.grads.data_ptr(), bench.scratch("delta").data_ptr())


def test_the_module_points_at_its_own_parameters_after_a_failed_pass() -> None:
    bench = bench_of("mlp", IMAGE)
    work = local_of(bench, samples(4, IMAGE), Plan(lr=0.1))
    wrong = LocalData(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        work.features_at(work.start + 1, Batch(wrong.x, wrong.y, -1))
    first = next(bench.net.parameters())
    assert first.data_ptr() == bench.params.data_ptr()
    assert bench.net.training
