"""What the dashboard's own process takes over a long run."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.children import Failed, environment
from benchmarks.dashboard import CLIENTS, LIMIT_PERCENT, ROUNDS, WINDOW_S, cpu_s, viewer
from benchmarks.result import Benchmark, Row, at_most
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Outcome, Seated
from edgeflock.server.journal import decisions as records
from edgeflock.server.journal.events import write_event
from edgeflock.server.journal.schema import connect

_FIRST_S = 20.0  # the longest that a viewer of a long run waits


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
    yield at_most(f"dashboard CPU, a round each second after {what}", "% of a core", shares, LIMIT_PERCENT)
    yield at_most(f"dashboard RSS, {what}", "MiB", memory, 300.0)


@dataclass(frozen=True)
class _Seen:
    first_s: float
    share: float
    rss: int


def _is_up_to_date(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/metrics", timeout=_FIRST_S) as answer:
        newest = re.search(r"^edgeflock_round (\S+)$", answer.read().decode(), re.MULTILINE)
        return newest is not None and float(newest[1]) >= ROUNDS
    return False


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
            with viewer(url):
                while not _is_up_to_date(url):
                    if time.monotonic() - began > 10 * _FIRST_S or process.poll() is not None:
                        raise Failed("the dashboard shows nothing of a long run")
                    time.sleep(0.05)
                first_s = time.monotonic() - began
                looked = psutil.Process(process.pid)
                before, at = cpu_s(looked), time.monotonic()
                for round in range(next, next + int(WINDOW_S)):
                    journal.commit(round)
                    journal.save()
                    time.sleep(1.0)
                share = 100 * (cpu_s(looked) - before) / (time.monotonic() - at)
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
            "INSERT INTO costs (epoch, round, seat, steps, bytes_down, bytes_up, fetch_s, train_s, cpu_s) "
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


BENCHMARKS = {"dashboard_long": Benchmark("the dashboard over ten thousand rounds", long_run)}
