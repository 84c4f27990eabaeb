"""The server's own training: it ends where it is told to, and says what it took."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.description import Description
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.config import ServerConfig
from edgeflock.server.costs.traffic import TrafficBook
from edgeflock.server.engine.transfer import Header, Slot
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.learning.work import RoundWork
from edgeflock.server.service import central
from edgeflock.server.service.central import CentralTrainer
from edgeflock.server.service.sessions import Sessions
from edgeflock.server.start.build import build_net
from edgeflock.server.start.resolve import resolve
from edgeflock.server.start.startup import build
from support.tiny_run import update
from support.tiny_server import WAIT_S, Home

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


def test_an_update_goes_on_where_a_kill_has_cut_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path, clients=1)
    monkeypatch.setattr(central, "CLIENT_ID", "c0")

    async def play() -> None:
        async with home.run() as run:
            await run.gather()
            made = update(home.layouts, 0)
            head = made.payload[:165]
            slot = await run.intake.offer("c0", Header(Description(1, made.package, 10), {}))
            assert isinstance(slot, Slot)
            assert await slot.begin() is None
            assert await slot.append(0, head, extend(0, head)) is None
            pieces = (made.payload[:160], made.payload[160:172], made.payload[172:])
            encoded: Any = SimpleNamespace(package=made.package, pieces=pieces)
            trainer = object.__new__(CentralTrainer)
            trainer._intake, trainer._data = run.intake, range(10)  # type: ignore[assignment]  # its length counts
            assert await trainer._deliver(run.work, central._Trained(encoded, {})) is None
            await run.committed(1)

    asyncio.run(asyncio.wait_for(play(), WAIT_S))
    ((moved,),) = home.rows("SELECT bytes_up FROM costs WHERE round = 1")
    assert moved == len(update(home.layouts, 0).payload), "no byte came twice"
