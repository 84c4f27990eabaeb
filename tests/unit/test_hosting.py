"""Several clients in one process: whose failure ends whom, and when it is said."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from edgeflock.client.agent import Agent
from edgeflock.client.daemon import _until_over
from edgeflock.client.keeping.statedir import Unwritable
from edgeflock.common.errors import EdgeflockError

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


def test_numpy_brings_its_random_numbers_before_there_are_threads() -> None:
    """Two threads that are the first to ask for them recurse without end."""
    check = "import sys, edgeflock.common.seeds; sys.exit('numpy.random' not in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)
