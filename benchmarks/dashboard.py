"""What the dashboard takes: of the server for a viewer, and of its own process over a long run."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from benchmarks.children import Children, Failed, environment, program
from benchmarks.result import Benchmark, Row, at_most
from edgeflock.server import records
from edgeflock.server.events import Outcome, Seated, Verdict
from edgeflock.server.journal import connect, write_event

CLIENTS, ROUNDS = 200, 10_000
LIMIT_PERCENT = 2.0  # of a core, for one viewer
_START_S = 60.0
_WINDOW_S = 20.0
_FIRST_S = 20.0  # the longest that a viewer of a long run waits


# ------------------------------------------------------------------------ the server, with and without


def server_cost(paused: bool, repeats: int) -> Iterator[Row]:
    """Compare adjacent windows of one run of real clients: the server's CPU with a viewer and without."""
    with tempfile.TemporaryDirectory() as name, Children() as children:
        url, server = _start(children, Path(name))
        if paused:
            _pause(children, Path(name))
        web = _dashboard(server)
        pairs, own = [], []
        for _ in range(repeats):
            alone, _ = _share(server, web)
            with _viewer(url):
                watched, dashboard = _share(server, web)
            pairs.append((alone, watched))
            own.append(dashboard)
    what = "paused" if paused else "training"
    more = [watched - alone for alone, watched in pairs]
    yield at_most(
        f"server CPU of a viewer, {CLIENTS} clients {what}", "% of a core", more, LIMIT_PERCENT, pairs=pairs
    )
    yield at_most(f"dashboard CPU with a viewer, {CLIENTS} clients {what}", "% of a core", own, 10.0)


def _start(children: Children, folder: Path) -> tuple[str, psutil.Process]:
    """Start a run that goes on for longer than it is watched; wait until its rounds come."""
    run_dir = folder / "run"
    flags = (
        *("--run-dir", str(run_dir), "--listen", "127.0.0.1:0", "--dashboard", "127.0.0.1:0"),
        *("--clients", str(CLIENTS), "--rounds", str(ROUNDS), "--log-level", "warning"),
    )
    log = folder / "log"
    server = children.start("fl-server", [*program("fl-server"), *flags], log, environment())
    children.wait_until((run_dir / "address").exists, _START_S)
    address = (run_dir / "address").read_text().strip()
    client = ("--server", address, "--host-clients", str(CLIENTS), "--state-dir", str(folder / "state"))
    own = [*program("fl-client"), *client, "--id", "c", "--log-level", "warning"]
    children.start("fl-client", own, log, environment())
    url = f"http://{(run_dir / 'dashboard').read_text().strip()}"
    children.wait_until(lambda: _committed(run_dir) >= 3, _START_S)
    return url, psutil.Process(server.process.pid)


def _committed(run_dir: Path) -> int:
    with contextlib.closing(
        sqlite3.connect(f"file:{run_dir / 'journal.sqlite'}?mode=ro", uri=True)
    ) as journal:
        query = "SELECT count(*) FROM events WHERE name = 'round_committed'"
        return int(journal.execute(query).fetchone()[0])


def _pause(children: Children, folder: Path) -> None:
    run_dir = folder / "run"
    command = [*program("fl-lab"), "control", str(run_dir), "pause"]
    children.start("fl-lab", command, folder / "log", environment())
    before = -1
    while before != (before := _committed(run_dir)):
        time.sleep(3.0)  # longer than a round


def _dashboard(server: psutil.Process) -> psutil.Process:
    found = [child for child in server.children() if "edgeflock.server.web" in child.cmdline()]
    if len(found) != 1:
        raise Failed(f"fl-server has {len(found)} dashboards")
    return found[0]


def _share(*processes: psutil.Process) -> list[float]:
    """Return what each takes of a core over a window, in percent."""
    began, before = time.monotonic(), [_cpu_s(process) for process in processes]
    time.sleep(_WINDOW_S)
    lasted = time.monotonic() - began
    return [100 * (_cpu_s(one) - was) / lasted for one, was in zip(processes, before, strict=True)]


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


@contextlib.contextmanager
def _viewer(url: str) -> Iterator[Callable[[], int]]:
    """Follow the stream as a browser does; yield what says how many bytes have come."""
    stream = urllib.request.urlopen(f"{url}/api/stream", timeout=_START_S)
    come, gone = [0], threading.Event()

    def read() -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed under its hands
            while not gone.is_set() and (line := stream.readline()):
                come[0] += len(line)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield lambda: come[0]
    finally:
        gone.set()
        thread.join(timeout=5.0)  # a tick
        stream.close()


# --------------------------------------------------------------------------- its process, a long run


def long_run(repeats: int) -> Iterator[Row]:
    """Show a journal of many rounds that goes on growing: how soon, and what each second takes."""
    first, shares, memory = [], [], []
    with tempfile.TemporaryDirectory() as name:
        journal = Journal(Path(name) / "journal.sqlite")
        for round in range(1, ROUNDS + 1):
            journal.commit(round)
        journal.save()
        for repeat in range(repeats):
            seen = _watch(Path(name), journal, ROUNDS + 1 + 1000 * repeat)
            first.append(seen.first_s)
            shares.append(seen.share)
            memory.append(seen.rss / (1 << 20))
    what = f"{ROUNDS:,} rounds of {CLIENTS} clients"
    yield at_most(f"first picture of {what}", "s", first, _FIRST_S)
    yield at_most(f"dashboard CPU, a round each second after {what}", "% of a core", shares, 10.0)
    yield at_most(f"dashboard RSS, {what}", "MiB", memory, 300.0)


@dataclass(frozen=True)
class _Seen:
    first_s: float
    share: float
    rss: int


def _watch(run_dir: Path, journal: Journal, next: int) -> _Seen:
    """Start the dashboard's process alone, view it, and let rounds be committed meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [
            sys.executable,
            "-m",
            "edgeflock.server.web",
            f"--run-dir={run_dir}",
            "--metrics-clients=0",
        ]
        began = time.monotonic()
        process = subprocess.Popen(
            [*command, f"--descriptor={listener.fileno()}"],
            stdin=subprocess.PIPE,
            pass_fds=(listener.fileno(),),
            env=environment(),
        )
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            with _viewer(url) as come:
                while come() < 40 * ROUNDS:  # a row is at least so long
                    if time.monotonic() - began > 10 * _FIRST_S or process.poll() is not None:
                        raise Failed("the dashboard shows nothing of a long run")
                    time.sleep(0.05)
                first_s = time.monotonic() - began
                looked = psutil.Process(process.pid)
                before, at = _cpu_s(looked), time.monotonic()
                for round in range(next, next + int(_WINDOW_S)):
                    journal.commit(round)
                    journal.save()
                    time.sleep(1.0)
                share = 100 * (_cpu_s(looked) - before) / (time.monotonic() - at)
                return _Seen(first_s, share, looked.memory_info().rss)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)


class Journal:
    """A journal with the server's own tables, and rounds as a server writes them."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        self._connection.execute("BEGIN")
        self.names = [f"client-{number}" for number in range(CLIENTS)]
        records.write(self._connection, 0, Seated(tuple(enumerate(self.names))))

    def commit(self, round: int) -> None:
        connection, members = self._connection, range(CLIENTS)
        if not connection.in_transaction:
            connection.execute("BEGIN")
        connection.execute(
            "INSERT INTO rounds (epoch, round, cohort, committed) VALUES (0, ?, ?, 1)",
            (round, json.dumps(list(members))),
        )
        digest = round.to_bytes(32, "big")
        outcomes = [Outcome(index, digest, Verdict.COUNTED) for index in members]
        records.write_outcomes(connection, 0, round, outcomes)
        connection.executemany(
            "INSERT INTO costs (epoch, round, idx, steps, bytes_down, bytes_up, fetch_s, train_s, cpu_s) "
            "VALUES (0, ?, ?, 10, 30040, 30040, 0.01, 0.5, 0.4)",
            [(round, index) for index in members],
        )
        write_event(connection, "round_opened", {"round": round, "cohort": self.names})
        line = {"counted": CLIENTS, "not_counted": {}, "loss": 1 / round, "seconds": 1.0, "open_s": 0.9}
        moved = {"bytes_down": 30040 * CLIENTS, "bytes_up": 30040 * CLIENTS}
        write_event(connection, "round_committed", {"round": round, **line, **moved, "fold_s": 0.1})
        score = {"round": round, "model": "global", "accuracy": 0.9, "loss": 0.3}
        write_event(connection, "evaluated", score)

    def save(self) -> None:
        self._connection.execute("COMMIT")


BENCHMARKS = {
    "dashboard_idle": Benchmark("the server's CPU for a viewer, paused", partial(server_cost, True)),
    "dashboard_busy": Benchmark("the server's CPU for a viewer, training", partial(server_cost, False)),
    "dashboard_long": Benchmark("the dashboard over ten thousand rounds", long_run),
}
