"""A training that nobody waits for any more was paid all the same, also by one of several hosted clients."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edgeflock.client.costs import Passes
from edgeflock.client.protocol import Task
from edgeflock.client.training.bench import Bench, Progress, Stopped
from edgeflock.client.training.desk import Desk
from edgeflock.client.training.meter import Meter
from edgeflock.client.training.span import Span
from edgeflock.methods.kit.values import Plan, State

BURNT_S = 0.02
DONE = Passes(3, 30, 60, 30)


class Abandoned:
    """A slot whose training is stopped after some work."""

    def train(self, *given: Any) -> None:
        progress = cast(Progress, given[-1])
        began = time.thread_time()
        while time.thread_time() - began < BURNT_S:
            pass
        progress.passes = DONE
        raise Stopped("round 1 was stopped after 3 steps")


def test_what_an_abandoned_training_took_is_in_the_costs_of_its_round() -> None:
    span = Span(1)
    trainer = SimpleNamespace(
        forget_gpu_peak=lambda: None, gpu_peak_bytes=lambda: None, held_up_s=0.0, span=lambda *given: span
    )
    meter = Meter(alone=False)
    desk = Desk("a", cast(Any, trainer), cast(Any, None), meter)
    with pytest.raises(Stopped):
        desk._train(
            cast(Bench, Abandoned()), cast(Any, None), Task(1, Plan(lr=0.1)), State(), cast(Any, None)
        )
    assert span.seconds >= BURNT_S
    cost = meter.finish(1)
    assert cost.cpu_s >= BURNT_S
    assert Passes(cost.steps, cost.samples_done, cost.forward_samples, cost.backward_samples) == DONE
