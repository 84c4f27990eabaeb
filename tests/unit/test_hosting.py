"""Several clients in one process: whose failure ends whom, and when it is said."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from edgeflock.client import daemon
from edgeflock.client.agent import Agent, AgentRules
from edgeflock.client.config import ClientConfig
from edgeflock.client.daemon import DRAIN_S, FORCED, _until_over
from edgeflock.client.keeping.statedir import StateDir, Unwritable
from edgeflock.client.training.trainer import Trainer
from edgeflock.common.command import signals
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.wire.address import parse_address
from support.quick_loop import quickly

WAIT_S = 10


@dataclass
class Life:
    """A client whose whole life is this."""

    client_id: str
    work: Coroutine[Any, Any, str]

    async def run(self) -> str:
        return await self.work


async def host(**lives: Coroutine[Any, Any, str]) -> int:
    agents = [cast("Agent", Life(name, work)) for name, work in lives.items()]
    async with asyncio.timeout(WAIT_S):
        return await _until_over(agents, asyncio.get_running_loop().create_future())


async def failing(error: Exception) -> str:
    raise error


def test_a_failure_of_its_own_is_said_at_once_and_the_others_go_on() -> None:
    async def talk() -> None:
        heard: list[str] = []
        begin = asyncio.Event()

        async def one() -> str:
            await begin.wait()
            raise EdgeflockError("no such data")

        async def other() -> str:
            (life,) = (task for task in asyncio.all_tasks() if task.get_name() == "a")
            begin.set()
            await asyncio.wait([life])
            heard.extend(line["client_id"] for line in said if line["event"] == "client_failed")
            return "the run is over"

        with capture_logs() as said, pytest.raises(EdgeflockError, match="no such data"):
            await host(a=one(), b=other())
        assert heard == ["a"]

    asyncio.run(talk())


@pytest.mark.parametrize(
    "error", [RecursionError("too deep"), Unwritable(Path("state"), OSError(5, "Input/output error"))]
)
def test_what_is_everybodys_ends_all(error: Exception) -> None:
    """Whoever looks after the process starts it again; half of it would make a run wait for the rest."""

    async def talk() -> None:
        for_ever = asyncio.Event()

        async def other() -> str:
            await for_ever.wait()
            return ""

        with pytest.raises(type(error)):
            await host(a=failing(error), b=other())

    asyncio.run(talk())


def asked(agents: list[Any], reason: str = "SIGTERM") -> tuple[int, list[dict[str, Any]]]:
    """Let them live until they are asked to go; return the exit code, and what was said."""

    async def talk() -> int:
        wish: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1, wish.set_result, reason)
        return await _until_over(agents, wish)

    with capture_logs() as lines:
        return quickly(talk()), [dict(line) for line in lines]


async def stubborn(seconds: float) -> str:
    """A client whose step takes that long whatever it is told."""
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(seconds)
    return ""


def test_who_is_asked_to_go_stops_all_and_says_who_asked() -> None:
    code, lines = asked([Life("a", stubborn(0)), Life("b", stubborn(DRAIN_S / 2))])
    assert code == 0
    assert [(line["event"], line.get("reason"), line.get("still_at_work")) for line in lines] == [
        ("draining", None, None),
        ("ended", "asked by SIGTERM", 0),
    ]
    assert lines[0]["limit_s"] == DRAIN_S < 10


def test_a_step_that_takes_longer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    code, lines = asked([Life("a", stubborn(1000)), Life("b", stubborn(0))])
    assert (code, exits, lines[-1]["still_at_work"]) == (0, [0], 1)


def test_the_end_of_all_is_told_with_every_reason_once() -> None:
    async def ends(reason: str) -> str:
        return reason

    with capture_logs() as lines:
        assert asyncio.run(host(a=ends("enough"), b=ends("all done"), c=ends("enough"))) == 0
    assert [(line["event"], line["reason"]) for line in lines] == [("ended", "all done; enough")]


def test_of_several_failures_the_one_of_the_first_name_is_raised() -> None:
    async def talk() -> None:
        await host(b=failing(EdgeflockError("of b")), a=failing(EdgeflockError("of a")))

    with capture_logs() as lines, pytest.raises(EdgeflockError, match="of a"):
        asyncio.run(talk())
    assert sorted((line["client_id"], line["reason"]) for line in lines) == [("a", "of a"), ("b", "of b")]


def test_a_second_interrupt_is_an_end_and_a_second_sigterm_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)

    @contextmanager
    def asking(ask: Callable[[signal.Signals], None]) -> Iterator[None]:
        asks.append(ask)
        yield

    asks: list[Callable[[signal.Signals], None]] = []
    monkeypatch.setattr(signals, "asking", asking)

    async def talk() -> None:
        with daemon._signals() as wish:
            (ask,) = asks
            ask(signal.SIGTERM)
            assert wish.result() == "SIGTERM"
            ask(signal.SIGTERM)
            assert exits == []
            ask(signal.SIGINT)
            assert exits == [FORCED]

    with capture_logs() as lines:
        asyncio.run(talk())
    assert [line["reason"] for line in lines] == ["a second Ctrl-C"]


@pytest.mark.parametrize(
    ("given", "named"), [({"id": "c"}, "c"), ({"ids": ("a", "b")}, "a"), ({}, None)], ids=str
)
def test_a_state_directory_that_is_named_is_opened_for_who_is_named(
    tmp_path: Path, given: dict[str, Any], named: str | None
) -> None:
    link = cast(Any, SimpleNamespace(address=parse_address("127.0.0.1:1", "--server")))
    state = daemon._place(ClientConfig(state_dir=tmp_path / "state", **given), link)
    assert state.path == tmp_path / "state"
    assert named is None or state.identity.client_id == named
    state.close()


def test_without_one_a_seat_of_this_machine_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "state_home", lambda: tmp_path)
    link = cast(Any, SimpleNamespace(address=parse_address("127.0.0.1:1", "--server")))
    state = daemon._place(ClientConfig(), link)
    assert (state.path, (state.path / "server").read_text()) == (tmp_path / "default", "port 1 here")
    state.close()


@pytest.mark.parametrize("error", [None, EdgeflockError("the run has failed")])
def test_a_process_keeps_its_pages_and_leaves_its_state_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    done: list[str] = []
    monkeypatch.setattr(daemon, "keep_pages", lambda: done.append("kept"))

    async def _host(config: ClientConfig, state: StateDir, link: Any, console: Any) -> int:
        done.append(link.target)
        if error is not None:
            raise error
        return 7

    monkeypatch.setattr(daemon, "_host", _host)
    config = ClientConfig(server="127.0.0.1:1", state_dir=tmp_path)
    if error is None:
        assert daemon.run(config) == 7
    else:
        with pytest.raises(EdgeflockError, match="the run has failed"):
            daemon.run(config)
    assert done == ["kept", "127.0.0.1:1"]
    StateDir.open(tmp_path).close()


@pytest.mark.parametrize("hosted", [1, 3])
def test_a_process_hosts_its_clients_on_one_link_and_ends_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosted: int
) -> None:
    ended: list[str] = []

    class Hosted:
        work = (1, 2, 3)

        def __init__(self, name: str, folder: Path, link: Any, trainer: Any, rules: AgentRules, shelf: Any):
            self.client_id, self.folder, self.rules = name, folder, rules
            agents.append(self)

        async def run(self) -> str:
            return "enough"

    async def close() -> None:
        ended.append("link")

    agents: list[Hosted] = []
    monkeypatch.setattr(daemon, "Agent", Hosted)
    monkeypatch.setattr(Trainer, "close", lambda trainer: ended.append("trainer"))
    link = cast(Any, SimpleNamespace(target="h:1", close=close))
    console = cast(Any, SimpleNamespace(follow=lambda ask: ended.append(f"{len(ask())} at work")))
    state = StateDir.open(tmp_path, "c")
    config = ClientConfig(host_clients=hosted, stay=True, give_up_after=7.0)
    with capture_logs() as lines:
        assert asyncio.run(daemon._host(config, state, link, console)) == 0
    names = ["c"] if hosted == 1 else ["c-0", "c-1", "c-2"]
    assert [agent.client_id for agent in agents] == names
    assert [agent.folder for agent in agents] == [tmp_path / "clients" / name for name in names]
    rules = agents[0].rules
    assert (rules.instance, rules.stay, rules.give_up_after_s) == (state.identity.instance, True, 7.0)
    assert rules.alone is (hosted == 1)
    assert ended == [f"{hosted} at work", "link", "trainer"]
    (started,) = (line for line in lines if line["event"] == "client_started")
    assert (started["clients"], started["hosted"], started["server"]) == (names, hosted, "h:1")
    assert next(line["source"] for line in lines if line["event"] == "energy_source")
    state.close()


def test_numpy_brings_its_random_numbers_before_there_are_threads() -> None:
    """Two threads that are the first to ask for them recurse without end."""
    check = "import sys, edgeflock.common.seeds; sys.exit('numpy.random' not in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)
