"""The daemon: `run(config)` hosts the clients of this process until the run is over or a signal comes."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import structlog

from edgeflock.client.agent import Agent, AgentRules
from edgeflock.client.config import ClientConfig, hosted_ids, model_path, resolve, state_home, with_numbers
from edgeflock.client.console import ClientConsole, Work
from edgeflock.client.keeping.models import Shelf
from edgeflock.client.keeping.statedir import StateDir, Unwritable, take_seat
from edgeflock.client.link.line import Link
from edgeflock.client.training.trainer import Trainer
from edgeflock.common import descriptors, garbage
from edgeflock.common.allocator import keep_pages
from edgeflock.common.command import signals
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.foreign import unforeseen
from edgeflock.common.plugins.digest import of_device
from edgeflock.common.plugins.loading import load

log = structlog.get_logger(__name__)

SETTLE_S, SETTLE_LOOKS = (
    5.0,
    120,
)  # between two looks whether all of many hosted clients are there, and how many
DRAIN_S = 9.0  # a client that was asked is gone within 10 s
_NAMED = 20  # hosted clients, at most, in the log
FORCED = 130  # exit code after a second Ctrl-C

Life: TypeAlias = "asyncio.Task[str]"  # of one hosted client: why it ended


def run(config: ClientConfig, console: ClientConsole | None = None) -> int:
    """Take part until the run is over; returns the exit code or raises the error of the first client."""
    keep_pages()
    descriptors.raise_limit()
    config = resolve(config)
    _try_code(config)
    link = Link.of(config)
    state = _place(config, link)
    try:
        return asyncio.run(_host(config, state, link, console or ClientConsole()))
    finally:
        state.close()


def _try_code(config: ClientConfig) -> None:
    """Import what the operator has named: what is wrong with it is said before a server hears of us."""
    for reference in config.allow_code:
        load(reference, "--allow-code")
    if config.model is not None:
        load(config.model, "--model", "factory")


def _place(config: ClientConfig, link: Link) -> StateDir:
    """Open the state directory that was named, by itself or by the client's name, else take a seat."""
    if config.state_dir is None:
        return take_seat(state_home(), link.address)
    return StateDir.open(config.state_dir, config.id or next(iter(config.ids), None))


async def _host(config: ClientConfig, state: StateDir, link: Link, console: ClientConsole) -> int:
    ids = hosted_ids(config) or with_numbers(state.identity.client_id, config.host_clients)
    trainer = Trainer(config)
    code = of_device(config.allow_code, config.model)
    rules = AgentRules(state.identity.instance, config.stay, config.give_up_after, len(ids) == 1, code)
    told = {"clients": list(ids[:_NAMED]), "hosted": len(ids)}
    log.info("client_started", server=link.target, **told, state_dir=str(state.path))
    log.info("energy_source", source=trainer.energy_source or "none")
    agents = [Agent(name, state.folder(name), link, trainer, rules, _shelf(config, name)) for name in ids]
    console.follow(lambda: [Work(*work) for agent in agents if (work := agent.work)])
    gauging, settling = asyncio.create_task(trainer.watch_sensors()), asyncio.create_task(_settle(agents))
    try:
        with _signals() as asked:
            return await _until_over(agents, asked)
    finally:
        gauging.cancel()
        settling.cancel()
        await link.close()
        trainer.close()


async def _settle(agents: list[Agent]) -> None:
    """Once all sit where they will be, what is there lasts; so does what is there before they come."""
    garbage.settle(len(agents))
    for _ in range(SETTLE_LOOKS if len(agents) >= garbage.MANY else 0):
        await asyncio.sleep(SETTLE_S)
        if all(agent.sat for agent in agents):
            break
    garbage.settle(len(agents))


def _shelf(config: ClientConfig, client_id: str) -> Shelf | None:
    """Return where a client's models come back to, if they are to."""
    path = model_path(config, client_id)
    if path is None:
        return None
    command = tuple(shlex.split(config.on_model or ""))
    return Shelf(path, config.save_which, config.keep_models, command)


async def _until_over(agents: list[Agent], asked: asyncio.Future[str]) -> int:
    """Let every agent live to its own end; one that fails ends the others only if that is everybody's."""
    lives = {asyncio.create_task(agent.run(), name=agent.client_id) for agent in agents}
    for life in lives:
        life.add_done_callback(_say_failure)
    everyone = asyncio.create_task(_all_or_everybodys(lives))
    either: list[asyncio.Future[Any]] = [everyone, asked]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    by_request = not everyone.done()
    living = {life for life in lives if not life.done()}
    late = await _drain(living) if living else 0
    if not by_request:
        return _outcome(lives - living)
    everyone.cancel()
    log.info("ended", reason=f"asked by {asked.result()}", still_at_work=late)
    if late:  # a step that takes longer than this cannot be interrupted, and nothing of it would be lost
        os._exit(0)
    return 0


def _say_failure(life: Life) -> None:
    """Say at once that a client has failed: the others may go on for long."""
    if not life.cancelled() and (error := life.exception()):
        words = str(error) if isinstance(error, EdgeflockError) else unforeseen(error)
        log.error("client_failed", client_id=life.get_name(), reason=words)


async def _all_or_everybodys(lives: set[Life]) -> None:
    """Wait until all have ended, or one has met what is not its own: the disk, or a bug of this process."""
    over = asyncio.Event()
    left = len(lives)

    def end(life: Life) -> None:
        nonlocal left
        left -= 1
        error = None if life.cancelled() else life.exception()
        if not left or (error is not None and _is_everybodys(error)):
            over.set()

    for life in lives:
        life.add_done_callback(end)
    await over.wait()


def _is_everybodys(error: BaseException) -> bool:
    return isinstance(error, Unwritable) or not isinstance(error, EdgeflockError)


def _outcome(lives: set[Life]) -> int:
    """Say how all have ended; raises the error of the first one that failed."""
    failed = sorted((life for life in lives if life.exception()), key=lambda life: life.get_name())
    if failed:
        first = failed[0].exception()
        if isinstance(first, BaseException):
            raise first
    log.info("ended", reason="; ".join(sorted({life.result() for life in lives})))
    return 0


async def _drain(lives: set[Life]) -> int:
    """Stop what can be stopped and tell the server; return how many are still at work when time is up.

    What is in the outbox waits there for the next start.
    """
    log.info("draining", limit_s=DRAIN_S)
    for life in lives:
        life.cancel()
    _, late = await asyncio.wait(lives, timeout=DRAIN_S)
    return len(late)


@contextmanager
def _signals() -> Iterator[asyncio.Future[str]]:
    """SIGTERM, SIGHUP and the first Ctrl-C ask for an end; a second Ctrl-C is one."""
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[str] = loop.create_future()

    def ask(number: signal.Signals) -> None:
        if not asked.done():
            asked.set_result(number.name)
        elif number is signal.SIGINT:
            log.warning("ended", reason="a second Ctrl-C")
            os._exit(FORCED)

    with signals.asking(ask):
        yield asked
