"""The trainer: work in threads that is never left behind, and slots that come back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from structlog.testing import capture_logs

from edgeflock.client.config import ClientConfig
from edgeflock.client.training import device
from edgeflock.client.training.setup import Setup
from edgeflock.client.training.trainer import Trainer

WAIT_S = 10


@pytest.fixture
def trainer() -> Iterator[Trainer]:
    made = Trainer(ClientConfig(parallel=1))
    yield made
    made.close()


def test_work_that_is_cancelled_is_waited_for_and_the_cancellation_is_not_swallowed(trainer: Trainer) -> None:
    """What the work holds is in use until it ends; whoever has it done must hear that it was to stop."""
    began, ends = threading.Event(), threading.Event()

    def work() -> bool:
        began.set()
        return ends.wait(WAIT_S)

    async def scenario() -> None:
        job = asyncio.create_task(trainer.run(work))
        assert await asyncio.to_thread(began.wait, WAIT_S)
        job.cancel()
        for _ in range(9):
            await asyncio.sleep(0)
        assert not job.done()
        ends.set()
        await asyncio.wait([job], timeout=WAIT_S)
        assert job.cancelled()

    asyncio.run(scenario())


def test_work_that_has_not_begun_is_not_begun_any_more(trainer: Trainer) -> None:
    ends, done = threading.Event(), list[str]()

    async def scenario() -> None:
        busy = [asyncio.create_task(trainer.run(ends.wait, WAIT_S)) for _ in range(2)]  # all threads
        late = asyncio.create_task(trainer.run(done.append, "late"))
        for _ in range(9):
            await asyncio.sleep(0)
        late.cancel()
        await asyncio.wait([late], timeout=WAIT_S)
        assert late.cancelled()
        ends.set()
        assert await asyncio.gather(*busy) == [True, True]

    asyncio.run(scenario())
    assert done == []


def test_a_slot_is_wanted_as_long_as_somebody_waits_for_one(trainer: Trainer) -> None:
    async def scenario() -> None:
        await trainer._take_slot()
        wish = asyncio.create_task(trainer.slot_wanted())
        await asyncio.sleep(0)
        assert not wish.done()
        waiting = [asyncio.create_task(trainer._take_slot()) for _ in range(2)]
        await asyncio.wait_for(wish, WAIT_S)
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        await asyncio.wait_for(trainer.slot_wanted(), WAIT_S)  # the other one waits still
        trainer._slots.release()
        await asyncio.wait_for(waiting[1], WAIT_S)
        wish = asyncio.create_task(trainer.slot_wanted())
        await asyncio.sleep(0)
        assert not wish.done()
        wish.cancel()

    asyncio.run(scenario())


def test_a_slot_comes_back_with_its_bench_whatever_ends_its_use(trainer: Trainer) -> None:
    class Run:
        """A setup, as far as slots are concerned."""

    async def use(error: BaseException) -> None:
        async with trainer.bench(wanted) as used:
            assert (used, trainer._free[wanted]) == (bench, [])
            raise error

    wanted, bench = cast(Setup, Run()), cast(Any, "bench")
    trainer._free[wanted] = [bench]
    for error in (ValueError(), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            asyncio.run(use(error))
        assert trainer._free[wanted] == [bench]
        assert not trainer._slots.locked()


def test_tests_of_own_models_hold_up_each_slot_by_its_share() -> None:
    trainer = Trainer(ClientConfig(parallel=4))
    trainer.examined(2.0)
    trainer.examined(1.0)
    trainer.close()
    assert trainer.held_up_s == 0.75


def test_who_closes_waits_for_no_work_and_lets_none_begin(trainer: Trainer) -> None:
    """A step that takes long cannot be interrupted, and nothing of it would be lost."""
    ends, done = threading.Event(), list[str]()

    async def scenario() -> None:
        busy = [asyncio.create_task(trainer.run(ends.wait, WAIT_S)) for _ in range(2)]
        late = asyncio.create_task(trainer.run(done.append, "late"))
        for _ in range(9):
            await asyncio.sleep(0)
        trainer.close()
        assert not ends.is_set()
        with pytest.raises(RuntimeError, match="after shutdown"):
            await trainer.run(done.append, "too late")
        await asyncio.wait([late], timeout=WAIT_S)
        assert late.cancelled()
        ends.set()
        assert await asyncio.gather(*busy) == [True, True]

    asyncio.run(scenario())
    assert done == []


def test_the_memory_of_a_gpu_is_asked_of_its_device(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(device, "forget_peak", lambda where: asked.append(("forget", str(where))))
    monkeypatch.setattr(device, "peak_bytes", lambda where: 700)
    trainer.forget_gpu_peak()
    assert (trainer.gpu_peak_bytes(), asked) == (700, [("forget", "cpu")])


@pytest.mark.parametrize("threads", [1, 2])
def test_another_number_of_threads_than_one_is_said_for_it_gives_other_bits(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    with capture_logs() as lines:
        Trainer(ClientConfig(threads=threads)).close()
    assert told == [threads]
    assert [line["event"] for line in lines] == ["threads_change_bits"] * (threads - 1)
