"""The daemon: `run(config)` hosts the clients of this process until the run is over or a signal comes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import structlog

from edgeflock.client.agent import Agent, Rules
from edgeflock.client.config import ClientConfig, hosted_ids, resolve, with_numbers
from edgeflock.client.line import Link
from edgeflock.client.statedir import StateDir
from edgeflock.client.trainer import Trainer
from edgeflock.common.address import parse_address
from edgeflock.common.allocator import keep_pages
from edgeflock.common.errors import EdgeflockError

log = structlog.get_logger(__name__)

DRAIN_S = 10.0
FORCED = 130  # exit code after a second Ctrl-C


def run(config: ClientConfig) -> int:
    """Take part until the run is over; returns the exit code or raises the error of the first client."""
    keep_pages()
    config = resolve(config)
    state = StateDir.open(config.state_dir or Path(), config.id)
    try:
        return asyncio.run(_host(config, state))
    finally:
        state.close()


async def _host(config: ClientConfig, state: StateDir) -> int:
    ids = hosted_ids(config) or with_numbers(state.identity.client_id, config.host_clients)
    link, trainer = Link(parse_address(config.server, "--server").target), Trainer(config)
    rules = Rules(state.identity.instance, config.stay, config.give_up_after, alone=len(ids) == 1)
    log.info("client_started", server=link.target, clients=list(ids[:20]), state_dir=str(state.path))
    agents = [Agent(name, state.folder(name), link, trainer, rules) for name in ids]
    try:
        with _signals() as asked:
            return await _until_over(agents, asked)
    finally:
        await link.close()
        trainer.close()


async def _until_over(agents: list[Agent], asked: asyncio.Event) -> int:
    """Let every agent live to its own end; one that fails does not end the others."""
    lives = {asyncio.create_task(agent.run(), name=agent.client_id) for agent in agents}
    stopping = asyncio.create_task(asked.wait())
    everyone = asyncio.gather(*lives, return_exceptions=True)
    either: list[asyncio.Future[Any]] = [everyone, stopping]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not everyone.done():
        await _drain(lives)
        return 0
    stopping.cancel()
    return _outcome(lives)


def _outcome(lives: set[asyncio.Task[str]]) -> int:
    failed = sorted((life for life in lives if life.exception()), key=lambda life: life.get_name())
    for life in failed:
        log.error("client_failed", client_id=life.get_name(), reason=str(life.exception()))
    if failed:
        first = failed[0].exception()
        if isinstance(first, BaseException):
            raise first
    return 0


async def _drain(lives: set[asyncio.Task[str]]) -> None:
    """Stop what can be stopped and tell the server; what is in the outbox waits there for the next start."""
    log.info("draining", limit_s=DRAIN_S)
    for life in lives:
        life.cancel()
    _, late = await asyncio.wait(lives, timeout=DRAIN_S)
    if late:
        log.warning("drain_cut_short", clients=len(late))
        os._exit(
            0
        )  # a step that takes longer than this cannot be interrupted, and nothing of it would be lost


@contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """SIGTERM and the first Ctrl-C ask for an end; a second Ctrl-C is one."""
    loop, asked = asyncio.get_running_loop(), asyncio.Event()

    def interrupt() -> None:
        if asked.is_set():
            os._exit(FORCED)
        asked.set()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGTERM, asked.set)
    try:
        yield asked
    finally:
        with suppress(EdgeflockError):
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)
