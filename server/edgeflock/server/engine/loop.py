"""The loop: events to the machine, its effects to those who carry them out; threads, timer, failures.

A failed effect is an event; what runs longer than a moment runs in a thread, never on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from threading import Barrier
from typing import Any, TypeVar

import structlog

from edgeflock.common.errors import FULL, NO_SPACE, EdgeflockError, JournalBroken, NonFinite
from edgeflock.common.foreign import blamed, unforeseen
from edgeflock.common.threads import computing
from edgeflock.server.core.effects import Effect
from edgeflock.server.core.events import Broken, Diverged, Event, SpaceMissing, Ticked
from edgeflock.server.core.phases import InvalidTransition, Phase
from edgeflock.server.core.run import RunMachine
from edgeflock.server.costs.time_line import (
    COMMIT,
    EVALUATE,
    FOLD,
    GATHER,
    HELD,
    OPEN,
    PAUSED,
    SELECT,
    RoundTimes,
)

log = structlog.get_logger()
T = TypeVar("T")
Work = Coroutine[Any, Any, Event | tuple[Event, ...] | None]  # ends with what the machine is to hear

_DOING = {  # and whether it is for the round to come
    Phase.IDLE: (GATHER, True),
    Phase.GATHERING: (GATHER, True),
    Phase.OPENING: (SELECT, False),
    Phase.COMMITTED: (GATHER, True),  # for who is to take part in the next
    Phase.OPEN: (OPEN, False),
    Phase.FOLDING: (FOLD, False),
    Phase.COMMITTING: (COMMIT, False),
    Phase.ENDING: (COMMIT, False),
}
_OPEN = (Phase.OPENING, Phase.OPEN)


class Threads:
    """The threads of a run. All are there from the beginning: its costs do not grow in its course."""

    def __init__(self) -> None:
        self._arithmetic = _started(1, "arithmetic")
        self._preparation = _started(1, "preparation")
        self._evaluation = _started(2, "evaluation")  # the global model is tested apart
        self._files = Crew(4, "spool")

    async def compute(self, work: Callable[..., T], *arguments: object) -> T:
        """Run in the thread that owns the state."""
        return await in_thread(self._arithmetic, work, *arguments)

    async def prepare(self, work: Callable[..., T], *arguments: object) -> T:
        """Run in a thread beside the one that owns the state, which it may only read."""
        return await in_thread(self._preparation, work, *arguments)

    async def evaluate(self, work: Callable[..., T]) -> T:
        """Run in one of the threads that test copies of models."""
        return await in_thread(self._evaluation, work)

    async def write(self, work: Callable[..., T], *arguments: object) -> T:
        """Run in a thread for small disk operations."""
        return await self._files.do(work, *arguments)

    def shut(self) -> None:
        """Let them end when they are through; a write that nobody waits for may never return."""
        for threads in (self._arithmetic, self._preparation, self._evaluation, self._files.threads):
            threads.shutdown(wait=False)


class Crew:
    """Threads for what is soon done: who is through takes what waits, and what is done is told together.

    Of thousands of small writes each would wake a thread, and that the event loop.
    """

    def __init__(self, threads: int, name: str) -> None:
        self.threads = _started(threads, name)
        self._free = threads  # that are not at work; counted on the event loop
        self._jobs: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()
        self._done: deque[Callable[[], None]] = deque()  # what the event loop is to do with it
        self._telling = False  # the event loop has been woken for that

    async def do(self, work: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.append((future, partial(work, *arguments)))
        self._call(loop)
        return await future

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._free and self._jobs:
            self._free -= 1
            self.threads.submit(self._work, loop)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do what waits until nothing does; in one of the threads."""
        while True:
            try:
                future, work = self._jobs.popleft()
            except IndexError:
                break
            if future.cancelled():
                continue
            try:
                settle = partial(_settle, future.set_result, future, work())
            except BaseException as error:
                settle = partial(_settle, future.set_exception, future, error)
            self._tell(loop, settle)
            del future, work, settle  # nothing is held while it waits
        self._tell(loop, partial(self._end, loop))

    def _tell(self, loop: asyncio.AbstractEventLoop, done: Callable[[], None]) -> None:
        self._done.append(done)
        if not self._telling:
            self._telling = True
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        self._telling = False  # first: what is done from now on wakes again
        while self._done:
            self._done.popleft()()

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        self._free += 1
        with contextlib.suppress(RuntimeError):  # they were shut
            self._call(loop)


def _settle(settle: Callable[[Any], None], future: asyncio.Future[Any], found: Any) -> None:
    if not future.done():
        settle(found)


def _started(threads: int, name: str) -> ThreadPoolExecutor:
    """Return a pool whose threads run; on its own it would start each when it is first needed."""
    pool = computing(threads, name)
    together = Barrier(threads)
    wait([pool.submit(together.wait) for _ in range(threads)])
    return pool


async def in_thread(threads: ThreadPoolExecutor, work: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, partial(work, *arguments))


class Loop:
    """A machine in motion; lives on the event loop."""

    def __init__(
        self, machine: RunMachine, time_line: RoundTimes, carry_out: Callable[[Effect], Work | None]
    ) -> None:
        self._machine, self._time_line = machine, time_line
        self._carry_out = carry_out  # begins what the machine wants done; must not wait
        self._queue: deque[Event] = deque()
        self._handling = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at: float | None = None  # when that rings
        self._moved = asyncio.Event()  # the machine has heard something

    def post(self, event: Event) -> None:
        """Give the machine an event and start what it decides; only on the event loop."""
        self._queue.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._queue:
                for effect in self._decide(self._queue.popleft()):
                    if (work := self._carry_out(effect)) is not None:
                        self.start(work, effect)
        finally:
            self._handling = False
        self._set_timer()
        self._follow()
        self._moved.set()

    async def until(self, done: Callable[[], bool]) -> bool:
        """Wait until the machine is where that holds; return whether it is, or decides nothing any more."""
        while not done() and not self._machine.gone:
            self._moved.clear()
            await self._moved.wait()
        return done()

    def _decide(self, event: Event) -> list[Effect]:
        try:
            return self._machine.handle(event)
        except InvalidTransition as error:  # nobody who posts could do anything about it
            log.exception("transition_refused", cause=type(event).__name__)
            return self._machine.handle(Broken(unforeseen(error), time.monotonic()))

    def _follow(self) -> None:
        """Keep the time line where the machine is."""
        doing = doing_of(self._machine)
        if doing is None:
            self._time_line.leave()
        else:
            self._time_line.enter(*doing)

    def start(self, work: Work, effect: Effect | None = None) -> None:
        """Run what an effect takes, or what stands beside the effects; its failure is an event, too."""
        task = asyncio.create_task(self._guard(work, effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Work, effect: Effect | None) -> None:
        try:
            self._tell(await work)
        except JournalBroken as error:
            self._failed(effect, str(error), error.hindrance)
        except OSError as error:
            self._failed(effect, in_words(error), NO_SPACE if error.errno in FULL else "")
        except NonFinite as error:
            self.post(Diverged(self._machine.round, str(error), time.monotonic()))
        except EdgeflockError as error:
            self._failed(effect, str(error))
        except (Exception, SystemExit) as error:  # without an event the run would wait for ever
            if not blamed(error):
                log.exception("effect_failed", effect=type(effect).__name__)
            self._failed(effect, unforeseen(error))

    def _tell(self, found: Event | tuple[Event, ...] | None) -> None:
        for event in found if isinstance(found, tuple) else (found,):
            if event is not None:
                self.post(event)

    def _failed(self, effect: Effect | None, reason: str, passing: str = "") -> None:
        now = time.monotonic()
        if passing and effect is not None:
            self.post(SpaceMissing(effect, f"{passing} ({reason})", now))
        else:
            self.post(Broken(reason, now))

    def _set_timer(self) -> None:
        if (wake := self._machine.wake_at) == self._wake_at:
            return
        self._stop_timer()
        if wake is not None:
            loop = asyncio.get_running_loop()
            self._timer, self._wake_at = loop.call_later(max(0.0, wake - time.monotonic()), self._tick), wake

    def _stop_timer(self) -> None:
        self._wake_at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = self._wake_at = None
        self.post(Ticked(time.monotonic()))

    async def settle(self) -> None:
        """Wait for what was begun; no timer begins anything more."""
        self._stop_timer()
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._stop_timer()


def doing_of(machine: RunMachine) -> tuple[str, int] | None:
    """Return what the server does and for which round; None: the run is over."""
    found = _DOING.get(machine.phase)
    if found is None:
        return None
    name, waits = found
    if machine.awaits_test and not machine.space.missing:
        return EVALUATE, machine.round or 1
    if not waits and not machine.space.missing and machine.deserted and machine.phase in _OPEN:
        name = GATHER  # whose processes are being started is at work on nothing
    elif not waits and machine.pause:
        name = PAUSED
    elif machine.paused_by_operator or machine.early:
        name = HELD
    return name, machine.committed + 1 if waits else machine.round or 1


def in_words(error: OSError) -> str:
    return f"{error.filename or 'the run directory'}: {error.strerror or error}"
