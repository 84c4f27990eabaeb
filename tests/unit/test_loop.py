"""The loop between the machine and its effects: what works end with, and how they fail."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest

from edgeflock.common.errors import EdgeflockError, JournalBroken, NonFinite
from edgeflock.server.core.decisions import Ended, EndingKind
from edgeflock.server.core.effects import Effect, Exit, PrepareRound
from edgeflock.server.core.events import Broken, Diverged, Event, Online, SpaceMissing, Started
from edgeflock.server.core.rules import Rules
from edgeflock.server.core.run import RunMachine
from edgeflock.server.costs.time_line import RoundTimes
from edgeflock.server.engine.loop import Crew, Loop, Work
from support.processes import until

EFFECT = PrepareRound(1, (0,))
FULL = OSError(errno.ENOSPC, "No space left on device", "spool")


class Hearing(RunMachine):
    """A machine that keeps what it hears."""

    def __init__(self) -> None:
        super().__init__(Rules(rounds=1, clients=1, cohort=1, min_updates=1))
        self.heard: list[Event] = []

    def handle(self, event: Event) -> list[Effect]:
        self.heard.append(event)
        return super().handle(event)


def heard(work: Work, effect: Effect | None = EFFECT) -> list[Event]:
    """Return what the machine hears of a work."""

    async def run() -> list[Event]:
        machine = Hearing()
        loop = Loop(machine, RoundTimes(), lambda effect: None)
        loop.start(work, effect)
        await loop.settle()
        return machine.heard

    return asyncio.run(run())


def test_what_a_work_ends_with_is_heard_in_its_order() -> None:
    async def none() -> None:
        return None

    async def two() -> tuple[Event, ...]:
        return Online("c0", 1.0), Online("c1", 2.0)

    assert heard(none()) == []
    assert heard(two()) == [Online("c0", 1.0), Online("c1", 2.0)]


@pytest.mark.parametrize(
    ("error", "effect", "expected"),
    [
        (FULL, EFFECT, (SpaceMissing, "no space left on the disk (spool: No space left on device)")),
        (FULL, None, (Broken, "spool: No space left on device")),
        (OSError(errno.EIO, "I/O error", "spool"), EFFECT, (Broken, "spool: I/O error")),
        (JournalBroken(OSError("disk is full")), EFFECT, (SpaceMissing, "no space left on the disk (the")),
        (NonFinite("round 1: NaN"), EFFECT, (Diverged, "round 1: NaN")),
        (EdgeflockError("so it is"), EFFECT, (Broken, "so it is")),
        (KeyError("x"), EFFECT, (Broken, "this is a bug, KeyError: 'x'")),
    ],
    ids=["full", "full beside the effects", "broken", "full journal", "diverged", "known", "bug"],
)
def test_a_failed_work_is_an_event(
    error: Exception, effect: Effect | None, expected: tuple[type[Event], str]
) -> None:
    async def fail() -> None:
        raise error

    (event,) = heard(fail(), effect)
    assert isinstance(event, SpaceMissing | Broken | Diverged)
    assert (type(event), event.reason[: len(expected[1])]) == expected
    assert not isinstance(event, SpaceMissing) or event.effect == EFFECT


def test_a_transition_that_no_table_has_ends_the_process_and_is_called_a_bug() -> None:
    async def start_twice() -> list[Effect]:
        effects: list[Effect] = []
        loop = Loop(Hearing(), RoundTimes(), effects.append)
        for _ in range(2):
            loop.post(Started(0.0))
        await loop.settle()
        return effects

    bug = "this is a bug, InvalidTransition: invalid transition [gathering -> gathering]"
    assert asyncio.run(start_twice())[-1] == Exit(Ended(EndingKind.FAILED, bug, 0))


def test_a_crew_does_everything_once_and_wakes_the_event_loop_seldom() -> None:
    async def scene() -> None:
        gate, seen, wakes = threading.Event(), list[int](), 0

        class Counted(Crew):
            def _hear(self) -> None:
                nonlocal wakes
                wakes += 1
                super()._hear()

        crew = Counted(2, "crew")

        def work(number: int) -> int:
            gate.wait(20)
            seen.append(number)
            if number == 7:
                raise OSError(number)
            return -number

        jobs = [asyncio.ensure_future(crew.do(work, number)) for number in range(500)]
        await asyncio.sleep(0)
        jobs[499].cancel()
        await asyncio.sleep(0)
        gate.set()
        until(lambda: len(seen) == 499 or None, lambda: f"{len(seen)} are done")  # the event loop is busy
        found = await asyncio.gather(*jobs, return_exceptions=True)
        assert sorted(seen) == list(range(499)), "who gave up is not served"
        assert isinstance(found[7], OSError)
        assert [one for one in found if isinstance(one, int)] == [-n for n in range(499) if n != 7]
        assert wakes < 20
        assert await crew.do(abs, -3) == 3, "nobody is lost"
        crew.threads.shutdown(wait=False)

    asyncio.run(asyncio.wait_for(scene(), 60))
