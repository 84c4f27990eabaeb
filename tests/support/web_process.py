"""The real dashboard process over a run that is served in this process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from support.tiny_server import WAIT_S, Home, Served


@dataclass
class Web:
    """A dashboard that answers."""

    url: str
    http: aiohttp.ClientSession
    process: asyncio.subprocess.Process

    async def get(self, path: str, **options: Any) -> tuple[int, str]:
        async with self.http.get(self.url + path, **options) as answer:
            return answer.status, await answer.text()

    async def pictures(self, **headers: str) -> AsyncIterator[dict[str, Any]]:
        """Yield what a viewer is told, each with its identifier; end when the dashboard says goodbye."""
        async with self.http.get(f"{self.url}/api/stream", headers=headers) as answer:
            name = ""
            async for line in answer.content:
                key, _, value = line.decode().rstrip("\n").partition(": ")
                if key == "id":
                    name = value
                elif key == "event":
                    return
                elif key == "data":
                    yield {**json.loads(value), "name": name}

    async def until(self, look: Any) -> dict[str, Any]:
        """Watch until what is known is as wanted: clients by id, events and refusals, the run."""
        known: dict[str, Any] = {"clients": {}, "events": [], "refused": [], "rounds": {}, "run": {}}
        async for told in self.pictures():
            known["clients"] |= {shown["id"]: shown for shown in told.get("clients", [])}
            known["rounds"] |= dict.fromkeys(told.get("rounds", {}).get("round", []))
            known["events"] += told.get("events", [])
            known["refused"] += told.get("refused", [])
            known["run"] = told["run"]
            if look(known):
                return known
        raise AssertionError(f"the stream ended before it was so: {known}")


@asynccontextmanager
async def web(served: Served, *options: str) -> AsyncIterator[Web]:
    """Start the process as fl-server does, and end it by closing its standard input."""
    (served.home.run_dir / "control").write_text(f"127.0.0.1:{served.control_ports[0]}\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "edgeflock.server.web", f"--run-dir={served.home.run_dir}"),
            *(
                f"--descriptor={listener.fileno()}",
                f"--server={os.getpid()}",
                "--metrics-clients=10",
                *options,
            ),
            stdin=PIPE,
            stderr=PIPE,
            pass_fds=(listener.fileno(),),
        )
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(WAIT_S)) as http:
            try:
                yield Web(url, http, process)
            finally:
                assert process.stdin is not None
                process.stdin.close()
                said = await asyncio.wait_for(process.communicate(), WAIT_S)
    said_at_all = process.returncode, said[1].decode()
    assert said_at_all == (0, "")


def watch(home: Home, talk: Any, *options: str) -> None:
    """Serve the run and its dashboard, and talk to both."""

    async def both() -> None:
        async with (
            asyncio.timeout(3 * WAIT_S),
            home.serve("127.0.0.1:0") as served,
            web(served, *options) as shown,
        ):
            await talk(served, shown)

    asyncio.run(both())
