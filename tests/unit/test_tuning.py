"""What a run asks of training beside its method: the clients' steps, and the rate over the rounds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from edgeflock.common.errors import BadValue
from edgeflock.common.tuning import optimizer, schedule
from edgeflock.common.tuning.tuning import Tuning
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.base import ClientHalf
from edgeflock.methods.kit.registry import load, names
from edgeflock.methods.kit.values import Plan
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.config import ServerConfig
from edgeflock.server.service.join import check_ready
from edgeflock.server.start.resolve import resolve
from edgeflock.v1 import aggregator_pb2 as pb
from support.tiny_run import describe, layouts
from support.training import bench_of, broadcast_of, half_of, local_of, samples


def factors(text: str, rounds: int, asked: int = 0) -> list[float]:
    found = schedule.parse(text).over(rounds)
    return [found.factor(round) for round in range(1, (asked or rounds) + 1)]


def test_a_constant_rate_is_whole_in_every_round() -> None:
    assert factors("constant", 4) == [1.0] * 4


def test_a_warm_up_ends_with_the_whole_rate() -> None:
    assert factors("constant:warmup=3", 5) == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_a_cosine_falls_from_the_end_of_the_warm_up_to_the_floor() -> None:
    """floor + (1 - floor) (1 + cos(pi d)) / 2, d the share of the rounds after the warm-up that are done."""
    found = factors("cosine:warmup=1,floor=0.2", 5, asked=7)
    falling = [0.2 + 0.8 * (1 + math.cos(math.pi * d)) / 2 for d in (0, 0.25, 0.5, 0.75)]
    assert found == pytest.approx([0.5, *falling, 0.2, 0.2])


def test_a_run_with_more_rounds_keeps_the_schedule_that_it_was_begun_with() -> None:
    begun = resolve(ServerConfig(schedule="cosine:warmup=2", rounds=10))
    assert begun.schedule == "cosine:warmup=2,floor=0,rounds=10"
    assert resolve(replace(begun, rounds=20)).schedule == begun.schedule


@pytest.mark.parametrize(
    "text",
    ["", "linear", "cosine:warmup", "cosine:warmup=-1", "cosine:floor=2", "constant:floor=0", "cosine:x=1"],
)
def test_a_schedule_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match=r"--schedule is .* allowed is constant or cosine"):
        schedule.parse(text)


def test_a_warm_up_as_long_as_the_run_is_refused() -> None:
    with pytest.raises(BadValue, match="a warm-up shorter than the 5 rounds"):
        resolve(ServerConfig(schedule="cosine:warmup=5", rounds=5))


@pytest.mark.parametrize("text", ["adam", "sgd:beta1=0.9", "adamw:beta1=1", "adamw:eps=0", "adamw:beta3=0"])
def test_an_optimizer_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match=r"--client-optimizer is .* allowed is sgd or adamw"):
        optimizer.parse(text)


def test_texts_are_read_as_they_are_written() -> None:
    for text in ("sgd", "adamw:beta1=0.8,beta2=0.9,eps=1e-06"):
        assert str(optimizer.parse(text)) == text
    for text in ("constant", "constant:warmup=2", "cosine:warmup=2,floor=0.1,rounds=9"):
        assert str(schedule.parse(text)) == text


def test_adamw_steps_as_torch_does() -> None:
    kind = optimizer.parse("adamw:beta1=0.8,beta2=0.95,eps=1e-6")
    x = torch.randn(50, generator=torch.Generator().manual_seed(1))
    theirs = x.clone().requires_grad_()
    torch_steps = torch.optim.AdamW([theirs], lr=0.03, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
    ours = optimizer.AdamW(kind, (torch.ones(50), torch.ones(50), torch.ones(50)))
    for seed in range(6):
        theirs.grad = torch.randn(50, generator=torch.Generator().manual_seed(10 + seed))
        torch_steps.step()
        ours.step(x, theirs.grad, lr=0.03, decay=0.1)
        torch.testing.assert_close(x, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_a_round_of_adamw_equals_torch_on_the_same_batches() -> None:
    """So does a second one on the same bench: the moments begin anew."""
    plan, data = Plan(lr=0.01, batch_size=4, epochs=2, weight_decay=0.1), samples(10, (4, 5))
    plain = bench_of("mlp", (4, 5), hidden="6")
    theirs = torch.optim.AdamW(plain.net.parameters(), lr=0.01, weight_decay=0.1)
    sent = broadcast_of(plain)
    for batch in local_of(plain, data, plan).batches():
        theirs.zero_grad()
        torch.autograd.backward(plain.net.loss(plain.net(batch.x)[1], batch.y))
        theirs.step()
    expected = torch.cat([parameter.detach().reshape(-1) for parameter in plain.net.parameters()])
    bench = Workbench(bench_of("mlp", (4, 5), hidden="6").net, optimizer=optimizer.parse("adamw"))
    for _ in range(2):
        local = local_of(bench, data, plan, received=sent)
        steps.run(half_of("fedavg", bench), local)
        torch.testing.assert_close(local.params, expected, rtol=1e-4, atol=1e-6)


def test_what_is_allowed_another_optimizer_has_no_step_of_its_own() -> None:
    able = [load(name) for name in names() if load(name).any_optimizer]
    assert {"fedavg", "fedprox", "fedadam"} <= {method.name for method in able}
    own = [method.name for method in able if method.client.step is not ClientHalf.step]
    assert own == []


def test_a_method_that_needs_sgd_refuses_adamw_and_names_those_that_do_not() -> None:
    words = "allowed is sgd with scaffold, whose mathematics need SGD.s steps; adamw goes with .*fedavg"
    with pytest.raises(BadValue, match=words):
        resolve(ServerConfig(method="scaffold", client_optimizer="adamw"))


def test_adamw_brings_its_own_rate_and_no_momentum() -> None:
    config = resolve(ServerConfig(client_optimizer="adamw"))
    assert (config.lr, config.momentum) == (0.001, 0.0)
    assert resolve(ServerConfig(client_optimizer="adamw", lr=0.01)).lr == 0.01
    with pytest.raises(BadValue, match=r"--momentum is 0.9, allowed is 0 with adamw"):
        resolve(ServerConfig(client_optimizer="adamw", momentum=0.9))


def test_a_client_of_before_is_refused_what_it_would_not_do() -> None:
    run = replace(describe(layouts(), 2), tuning=Tuning(optimizer="adamw"))
    digest = run.layouts.parameters.digest
    refused = check_ready(pb.Ready(layout_digest=digest), run)
    assert refused is not None
    assert "trains with optimizer adamw, which your edgeflock does not know" in refused.sentence
    told = pb.Ready(layout_digest=digest, tuning=pb.Tuning(optimizer="adamw"))
    assert check_ready(told, run) is None
