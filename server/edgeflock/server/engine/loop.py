"""The drive: carries events to the round machine and its effects to the shell; threads, timer, failures.

A failed effect is an event; what runs longer than a moment runs in a thread, never on the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import structlog

from edgeflock.common.errors import FULL, EdgeflockError, JournalBroken, NonFinite
from edgeflock.server.core.effects import Effect
from edgeflock.server.core.events import Broken, Diverged, Event, SpaceMissing, Ticked
from edgeflock.server.core.phases import InvalidTransition
from edgeflock.server.core.run import RunMachine
from edgeflock.server.engine.pools import started_pool

log = structlog.get_logger()
T = TypeVar("T")


class Drive:
    """A round machine in motion; `execute` is for the shell to fill in."""

    def __init__(self, machine: RunMachine) -> None:
        self.machine = machine
        self._arithmetic = started_pool(1, "arithmetic")
        self._preparation = started_pool(1, "preparation")
        self._files = started_pool(4, "spool")
        self._queue: deque[Event] = deque()
        self._handling = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def post(self, event: Event) -> None:
        """Give the machine an event and start what it decides; only on the event loop."""
        self._queue.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._queue:
                for effect in self._decide(self._queue.popleft()):
                    self.execute(effect)
        finally:
            self._handling = False
        self._set_timer()

    def _decide(self, event: Event) -> list[Effect]:
        try:
            return self.machine.handle(event)
        except InvalidTransition as error:  # nobody who posts could do anything about it
            log.exception("transition_refused", cause=type(event).__name__)
            return self.machine.handle(Broken(_bug(error), time.monotonic()))

    def execute(self, effect: Effect) -> None:
        """Begin what the machine wants done; must not wait."""
        raise NotImplementedError

    def accompany(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the effects; it must end before `close`, and its failure ends the process."""
        self.start(work)

    def start(self, work: Coroutine[Any, Any, None], effect: Effect | None = None) -> None:
        """Run what an effect takes, beside everything else."""
        task = asyncio.create_task(self._guard(work, effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Coroutine[Any, Any, None], effect: Effect | None) -> None:
        try:
            await work
        except JournalBroken as error:
            self._failed(effect, str(error), error.no_space)
        except OSError as error:
            self._failed(effect, in_words(error), error.errno in FULL)
        except NonFinite as error:
            self.post(Diverged(self.machine.round, str(error), time.monotonic()))
        except EdgeflockError as error:
            self._failed(effect, str(error), False)
        except Exception as error:  # without an event the run would wait for ever
            log.exception("effect_failed", effect=type(effect).__name__)
            self._failed(effect, _bug(error), False)

    def _failed(self, effect: Effect | None, reason: str, no_space: bool) -> None:
        now = time.monotonic()
        if no_space and effect is not None:
            self.post(SpaceMissing(effect, f"no space left on the disk ({reason})", now))
        else:
            self.post(Broken(reason, now))

    def _set_timer(self) -> None:
        self._stop_timer()
        if (wake := self.machine.wake_at) is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, wake - time.monotonic()), self._tick)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self.post(Ticked(time.monotonic()))

    async def compute(self, work: Callable[..., T], *arguments: object) -> T:
        """Run in the thread that owns the state."""
        return await self.in_thread(self._arithmetic, work, *arguments)

    async def prepare(self, work: Callable[..., T], *arguments: object) -> T:
        """Run in a thread beside the one that owns the state, which it may only read."""
        return await self.in_thread(self._preparation, work, *arguments)

    async def write(self, work: Callable[..., T], *arguments: object) -> T:
        """Run in a thread for small disk operations."""
        return await self.in_thread(self._files, work, *arguments)

    @staticmethod
    async def in_thread(threads: ThreadPoolExecutor, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, partial(work, *arguments))

    async def settle(self) -> None:
        """Wait for what was begun; no timer begins anything more."""
        self._stop_timer()
        if pending := list(self._tasks):
            await asyncio.wait(pending)

    def shut_threads(self) -> None:
        for threads in (self._arithmetic, self._preparation, self._files):
            threads.shutdown()


def in_words(error: OSError) -> str:
    return f"{error.filename or 'the run directory'}: {error.strerror or error}"


def _bug(error: Exception) -> str:
    return f"this is a bug, {type(error).__name__}: {error}"
