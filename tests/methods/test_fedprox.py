"""FedProx's client half (Li et al. 2020, Algorithm 2)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgeflock.common.errors import BadValue
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan
from support.hand_mlp import local_round
from support.training import batches_of, bench_of, broadcast_of, half_of, local_of, samples

SHAPE, WIDTHS = (1, 4, 5), (20, 16, 3)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(lr=0.1, batch_size=0, steps=5),
        Plan(lr=0.1, batch_size=6, epochs=2),
        Plan(lr=0.05, batch_size=6, epochs=2, momentum=0.9, weight_decay=0.05, clip=0.4),
    ],
)
def test_a_local_round_equals_the_hand_computation(plan: Plan) -> None:
    """mu (w - w^t) enters before weight decay, clip and momentum; see support/hand_mlp.py."""
    data, bench = samples(20, SHAPE), bench_of("mlp", SHAPE, hidden="16")
    work = local_of(bench, data, plan)
    expected, without = (
        local_round(
            work.start.double().numpy(),
            WIDTHS,
            batches_of(data, plan),
            lr=plan.lr,
            momentum=plan.momentum,
            weight_decay=plan.weight_decay,
            clip=plan.clip,
            mu=mu,
        )
        for mu in (0.7, 0.0)
    )
    delta = steps.run(half_of("fedprox", bench, mu="0.7"), work)[Kind.DELTA]
    np.testing.assert_allclose(delta.numpy(), expected, atol=1e-5)
    assert np.abs(expected - without).max() > 1e-3


def test_mu_0_is_fedavg_bit_for_bit() -> None:
    data, plan = samples(33, (1, 8, 8)), Plan(lr=0.1, batch_size=5, epochs=2, momentum=0.9, weight_decay=0.01)
    bench = bench_of("lenet5", (1, 8, 8))
    sent = broadcast_of(bench)
    deltas = [
        steps.run(half_of(method, bench, **options), local_of(bench, data, plan, received=sent))[
            Kind.DELTA
        ].clone()
        for method, options in (("fedavg", {}), ("fedprox", {"mu": "0"}), ("fedprox", {"mu": "0.5"}))
    ]
    assert torch.equal(deltas[0], deltas[1])
    assert float(deltas[2].norm()) < float(deltas[0].norm())


@pytest.mark.parametrize("text", ["-0.1", "nan", "much"])
def test_a_mu_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match=f"mu is '{text}', allowed is a number >= 0"):
        parse(load("fedprox").params, {"mu": text})
