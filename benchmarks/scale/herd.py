"""A fleet that gathers, and one whose server is killed: how long until all are there, and what that costs."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.children import Child, Children, Failed, environment, program
from benchmarks.live_run import commits, journal
from benchmarks.scale.asked import Asked, Family, Found, Row
from benchmarks.scale.fleet import Fleet

_START_S, _ROUNDS = 60.0, 100_000


def measure(asked: Asked, folder: Path) -> Iterator[Found]:
    for clients in asked.clients:
        yield _killed(Fleet(clients, rounds=_ROUNDS), folder / str(clients), asked.limit_s)


def _killed(fleet: Fleet, folder: Path, limit_s: float) -> Row:
    folder.mkdir(parents=True)
    server_flags, (host,) = fleet.flags(folder)
    run, clients = folder / "run", fleet.clients
    with Children() as children:
        server = _serve(children, folder, ["--listen", "127.0.0.1:0", *server_flags])
        children.wait_until((run / "address").exists, _START_S)
        address = (run / "address").read_text().strip()
        begun, used = time.monotonic(), _cpu_s(server)
        flags = ["--server", address, "--state-dir", str(folder / "state"), *host]
        children.start("fl-client", [*program("fl-client"), *flags], folder / "log", environment())
        children.wait_until(lambda: _done(folder) >= 1, limit_s)
        gathered, gathering = time.monotonic() - begun, _cpu_s(server) - used
        children.wait_until(lambda: _done(folder) >= 2, limit_s)
        children.kill(server)
        before, begun = _done(folder), time.monotonic()
        again = _serve(children, folder, [])
        children.wait_until(lambda: _done(folder) > before, limit_s)
        back, returning = time.monotonic() - begun, _cpu_s(again)
    return Row((clients, gathered, 1e3 * gathering / clients, back, 1e3 * returning / clients))


def _serve(children: Children, folder: Path, flags: list[str]) -> Child:
    given = ["--run-dir", str(folder / "run"), *flags]
    return children.start("fl-server", [*program("fl-server"), *given], folder / "log", environment())


def _done(folder: Path) -> int:
    with contextlib.suppress(sqlite3.Error):
        return max((commit.round for commit in commits(journal(folder))), default=0)
    return 0


def _cpu_s(child: Child) -> float:
    try:
        used = psutil.Process(child.process.pid).cpu_times()
    except psutil.Error as error:
        raise Failed(f"{child.name} has gone: {error}") from None
    return used.user + used.system


FAMILY = Family(
    title="A fleet that gathers, and comes back to a killed server",
    columns=(
        "clients",
        "from the clients' start to the first commit, s",
        "server CPU of that per client, ms",
        "from the server's new start to the next commit, s",
        "server CPU of that per client, ms",
    ),
    measure=measure,
    about="10 KiB models, no training; the server is killed with SIGKILL after its second commit. Both times "
    "hold the start of the process that is started (2 to 3 s of its CPU, too), the spread of the return "
    "over 2 ms a client, and one round.",
)
