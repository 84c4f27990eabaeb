"""The server's own training: it ends where it is told to, and says what it took."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.config import ServerConfig
from edgeflock.server.costs.traffic import TrafficBook
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.learning.work import RoundWork
from edgeflock.server.service.central import CentralTrainer
from edgeflock.server.service.sessions import Sessions
from edgeflock.server.start.build import build_net
from edgeflock.server.start.resolve import resolve
from edgeflock.server.start.startup import build

CONFIG = resolve(ServerConfig(method="centralized", model="linear", clients=3, rounds=2, batch_size=500))
SAMPLES, STEPS = 3823, 8  # digits, in batches of 500


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(TrafficBook())


@pytest.fixture
def task(tmp_path: Path, sessions: Sessions) -> tuple[CentralTrainer, RoundWork]:
    """Return the trainer and its task of round 1."""
    built, nobody = build(CONFIG), Any
    assert built.union is not None
    learner, checkpoints = built.learner, Checkpoints(tmp_path, built.learner.layouts)
    learner.save(checkpoints, 0)
    bench = Workbench(build_net(CONFIG, built.test), threads=1)
    trainer = CentralTrainer(nobody, sessions, learner, bench, built.union)  # type: ignore[arg-type]  # unasked
    round = learner.round(1, (0,), {0: SAMPLES})
    return trainer, learner.open(round, checkpoints.model_path(0), tmp_path)


def test_a_round_is_all_its_steps_and_said_as_a_client_says_it(
    task: tuple[CentralTrainer, RoundWork], sessions: Sessions
) -> None:
    trainer, work = task
    found = trainer._train(work)
    done = {"samples": SAMPLES, "steps": STEPS, "samples_done": SAMPLES}
    done |= {"forward_samples": SAMPLES, "backward_samples": SAMPLES}
    assert {name: found.costs[name] for name in done} == done
    assert 0 < found.costs["train_s"] < time.monotonic()
    assert 0 < found.costs["cpu_s"] < time.monotonic()
    assert found.used_up == ""
    session = sessions.by_id("server")
    assert session is not None
    said = session.progress
    assert (said.round, said.steps_total) == (1, STEPS)
    assert said.steps_done in (STEPS - 1, STEPS)


def test_it_ends_when_its_share_of_the_cpu_is_used_up(
    task: tuple[CentralTrainer, RoundWork], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, work = task
    monkeypatch.setattr(time, "thread_time", lambda: 5.0)
    found = trainer._train(replace(work, allowances={"cpu": 0.0}))
    assert (found.used_up, found.costs["steps"], found.costs["cpu_s"]) == ("cpu", 0, 0.0)
    whole = trainer._train(replace(work, allowances={"cpu": 0.5, "energy": 0.0}))
    assert (whole.used_up, whole.costs["steps"]) == ("", STEPS)


def test_it_ends_when_the_server_goes(task: tuple[CentralTrainer, RoundWork]) -> None:
    trainer, work = task
    trainer.stop()
    found = trainer._train(work)
    assert (found.used_up, found.costs["steps"]) == ("", 0)
