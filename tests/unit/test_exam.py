"""The exam of a client's own model: the numbers of a plain computation, and nothing is disturbed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from edgeflock.client.training.exam import TestSamples, examine
from edgeflock.common.payload.package import Kind
from edgeflock.common.scores import LOCAL, POOLED
from edgeflock.methods.kit.base import ClientHalf
from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.local import Local
from edgeflock.methods.kit.options import Params
from edgeflock.methods.kit.values import Plan
from support.training import bench_of, half_of, local_of, samples

SHAPE = (1, 3, 4)
BOTH = (LOCAL, POOLED)


def always() -> bool:
    return True


def work_of() -> Local:
    bench = bench_of("mlp", SHAPE, hidden="6")
    return local_of(bench, samples(20, SHAPE), Plan(lr=0.1))


def half() -> ClientHalf[Params]:
    return half_of("fedavg", bench_of("mlp", SHAPE, hidden="6"))


def by_hand(work: Local, vector: Tensor, data: LocalData) -> tuple[int, float]:
    """Hits and mean cross entropy of a one-hidden-layer MLP, in float64."""
    parts = torch.split(vector.double(), [spec.elements for spec in work.model.layout.tensors])
    shapes = [spec.shape for spec in work.model.layout.tensors]
    w1, b1, w2, b2 = (part.view(shape).numpy() for part, shape in zip(parts, shapes, strict=True))
    x, y = data.x.double().flatten(1).numpy(), data.y.numpy()
    logits = np.maximum(x @ w1.T + b1, 0) @ w2.T + b2
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(y)), y]
    return int((logits.argmax(axis=1) == y).sum()), float(losses.mean())


@pytest.mark.parametrize("count", [1, 7, 600])
def test_the_numbers_are_those_of_a_plain_computation(count: int) -> None:
    work, data = work_of(), samples(count, SHAPE, seed=9)
    work.params.add_(0.1)  # the local work has moved it
    (score,) = examine(half(), work, TestSamples({LOCAL: lambda: data}), (LOCAL,), always)
    hits, loss = by_hand(work, work.params, data)
    assert (score.model, score.samples, score.hits) == (LOCAL, count, hits)
    assert score.loss == pytest.approx(loss, rel=1e-5)


class Received(ClientHalf[Params]):
    """Its own model is the one that it received."""

    def own_model(self, work: Local) -> Tensor | None:
        return work.start


class Nothing(ClientHalf[Params]):
    def own_model(self, work: Local) -> Tensor | None:
        return None


def test_a_method_says_which_model_is_the_clients_own() -> None:
    work, data = work_of(), samples(50, SHAPE, seed=9)
    start = work.params.clone()
    work.params.mul_(-1)
    moved = work.params.clone()
    known = half()
    (score,) = examine(
        Received(known.params, known.setting), work, TestSamples({LOCAL: lambda: data}), (LOCAL,), always
    )
    hits, loss = by_hand(work, start, data)
    assert score.hits == hits
    assert score.loss == pytest.approx(loss, rel=1e-5)
    assert torch.equal(work.params, moved)
    tests = TestSamples({LOCAL: lambda: data})
    assert examine(Nothing(known.params, known.setting), work, tests, BOTH, always) == ()


def test_only_what_is_wanted_and_there_is_tested() -> None:
    work, data = work_of(), samples(5, SHAPE)
    none = LocalData(torch.zeros((0, *SHAPE)), torch.zeros(0, dtype=torch.int64))
    cases = {
        (LOCAL,): (TestSamples({LOCAL: lambda: data, POOLED: lambda: data}), [LOCAL]),
        BOTH: (TestSamples({LOCAL: lambda: none, POOLED: lambda: data}), [POOLED]),
        (POOLED,): (TestSamples({LOCAL: lambda: data, POOLED: lambda: None}), []),
        (POOLED, "client_other", POOLED): (TestSamples({POOLED: lambda: data}), [POOLED]),
        (): (TestSamples({LOCAL: lambda: data}), []),
    }
    for wanted, (tests, expected) in cases.items():
        assert [score.model for score in examine(half(), work, tests, wanted, always)] == expected


def test_samples_are_made_once_and_only_if_they_are_asked_for() -> None:
    made = []

    def make() -> LocalData:
        made.append(1)
        return samples(3, SHAPE)

    tests = TestSamples({LOCAL: make})
    assert made == []
    assert tests.of(LOCAL) is tests.of(LOCAL)
    assert made == [1]


def test_a_model_that_diverged_has_no_score() -> None:
    work = work_of()
    work.params.fill_(float("nan"))
    assert examine(half(), work, TestSamples({LOCAL: lambda: samples(5, SHAPE)}), (LOCAL,), always) == ()


def test_an_exam_ends_when_nobody_waits_for_it() -> None:
    work = work_of()
    tests = TestSamples({LOCAL: lambda: samples(5, SHAPE)})
    assert examine(half(), work, tests, (LOCAL,), lambda: False) == ()


def test_statistics_dropout_and_mode_stay_as_they_are() -> None:
    """The model is tested in eval mode; BatchNorm's statistics do not move, no random number is used."""
    bench = bench_of("resnet18", (1, 32, 32), norm="batch")
    work = local_of(bench, samples(4, (1, 32, 32)), Plan(lr=0.1))
    before = work.model.buffers.clone(), bench.dropout.get_state().clone(), torch.get_rng_state().clone()
    tests = TestSamples({LOCAL: lambda: samples(6, (1, 32, 32), seed=8)})
    known = half()
    (score,) = examine(known, work, tests, (LOCAL,), always)
    assert torch.equal(work.model.buffers, before[0])
    assert torch.equal(bench.dropout.get_state(), before[1])
    assert torch.equal(torch.get_rng_state(), before[2])
    assert work.net.training
    with torch.no_grad(), bench.evaluating():
        logits = work.net(samples(6, (1, 32, 32), seed=8).x)[1]
    assert score.hits == int((logits.argmax(1) == samples(6, (1, 32, 32), seed=8).y).sum())
    assert work.received[Kind.BUFFERS] is not None
