"""The server's life: take the run directory, come back to where the run is, serve, drain, say the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator

import structlog
import torch

from edgeflock.common import descriptors
from edgeflock.common.allocator import keep_pages
from edgeflock.common.command import signals
from edgeflock.common.errors import EdgeflockError
from edgeflock.server.config import ServerConfig, listen_address
from edgeflock.server.console.console import ServerConsole
from edgeflock.server.core.decisions import Ended, EndingKind
from edgeflock.server.engine.intake import Intake
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.start import children, listen, startup
from edgeflock.server.start.children import ChildProcesses
from edgeflock.server.start.listen import Doors
from edgeflock.server.start.motion import set_in_motion
from edgeflock.server.start.room import when_there_is_room
from edgeflock.server.start.startup import Parts
from edgeflock.server.web.standing import stay

log = structlog.get_logger()

_HINT = "start fl-server on this run directory to go on"


def run(config: ServerConfig, console: ServerConsole) -> int:
    """Serve the run of that configuration, in view of a console, and return the process's exit code."""
    keep_pages()
    descriptors.raise_limit()
    torch.set_num_threads(1)  # more threads give other bits (DESIGN rule 9)
    assert config.run_dir is not None
    run_dir = config.run_dir.absolute()
    rundir.require_place(run_dir)
    with contextlib.ExitStack() as stack:
        begun = any((run_dir / name).exists() for name in (rundir.LOCK, rundir.JOURNAL))
        if begun:  # before anything in it is looked at
            stack.enter_context(rundir.locked(run_dir))
        if (over := startup.already_over(run_dir, config)) is not None:
            startup.clear(run_dir)  # a kill may have come between the end and this
            log.info("run_is_over", run_dir=str(run_dir), kind=str(over.kind), reason=over.reason)
            return 0
        children.check(config)
        if not run_dir.exists():
            listen.check_free(listen_address(config))
        built = startup.build(config)
        if not begun:  # what is wrong with the options was said before a directory is made
            stack.enter_context(rundir.locked(run_dir))
        parts = stack.enter_context(startup.taken_up(built, run_dir))
        ending, asked = asyncio.run(_live(parts, console))
        _farewell(parts, ending, asked)
    console.close()
    if ending is not None and not asked and sys.stderr.isatty():
        stay(config, run_dir)
    if ending is not None and ending.kind is EndingKind.FAILED:
        raise EdgeflockError(ending.reason)
    if (broken := parts.journal.broken) is not None:  # after the last decision: only the books lack something
        raise broken
    return 0


async def _live(parts: Parts, console: ServerConsole) -> tuple[Ended | None, str]:
    """Start, serve, drain; return how the run ended, and the name of the signal that asked to go."""
    config, moving = parts.built.config, set_in_motion(parts)
    with _signals(moving.intake, config.drain_timeout) as asked:
        doors = await Doors.bound(moving)
        beside = await asyncio.to_thread(
            when_there_is_room, parts.run_dir, lambda: ChildProcesses(config, parts.run_dir)
        )
        await moving.begin()
        await doors.open()
        moving.caution()
        console.follow(moving.status)
        await beside.start()
        ending = await moving.engine.ended
        moving.train_no_more()
        if moving.intake.status().ending is not None and await _linger(moving.intake, asked, config.linger):
            await moving.say_farewell()
        await doors.close_to_clients()
        await moving.close()  # now, so that the last thing viewers see is the whole story
        await beside.end(over=ending is not None)
        await doors.close()
        return ending, asked.result() if asked.done() else ""


# ------------------------------------------------------------------------------------------ to go


@contextlib.contextmanager
def _signals(intake: Intake, seconds: float) -> Iterator[asyncio.Future[str]]:
    """The first SIGTERM, SIGHUP or Ctrl-C drains, within a bound; a second one ends the process at once."""
    asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    hurry: list[asyncio.TimerHandle] = []

    def drain(number: signal.Signals) -> None:
        if asked.done() and number is signal.SIGHUP:
            return  # a terminal that goes away may say so twice
        if asked.done():
            log.warning("ended", reason=f"a second {number.name}")
            os._exit(128 + number)
        asked.set_result(number.name)
        log.info("draining", signal=number.name)
        intake.drain()
        hurry.append(asyncio.get_running_loop().call_later(seconds, _cut_short, number.name))

    with signals.asking(drain):
        yield asked
    for timer in hurry:
        timer.cancel()


def _cut_short(name: str) -> None:
    """What still runs cannot be interrupted, and nothing of it would be lost: a crash is no harm either."""
    log.warning("parked", reason=f"asked by {name}, and the time to drain is over", hint=_HINT)
    os._exit(0)


async def _linger(intake: Intake, asked: asyncio.Future[str], seconds: float) -> bool:
    """Stay until every client that has a seat has heard how the run ended, or a signal asks to go.

    Return whether they have had their time.
    """
    hearing, began = asyncio.create_task(intake.farewell()), time.monotonic()
    while (left_s := seconds - intake.still_s(began)) > 0:  # who fetches the model is waited for
        await asyncio.wait((hearing, asked), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if hearing.done() or asked.done():
            break
    heard = hearing.done()
    hearing.cancel()
    return heard or not asked.done()


def _farewell(parts: Parts, ending: Ended | None, asked: str) -> None:
    """Say how the process ends, and leave no more in the directory than is needed."""
    rundir.remove_small(parts.run_dir / rundir.CONTROL)
    if ending is None:
        log.info("parked", reason=f"asked by {asked}", run_dir=str(parts.run_dir), hint=_HINT)
        return
    log.info("ended", kind=str(ending.kind), reason=ending.reason, run_dir=str(parts.run_dir))
    if ending.kind is not EndingKind.FAILED:
        startup.clear(parts.run_dir)
