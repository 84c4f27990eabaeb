"""A real run under observation: fl-server and fl-clients as processes, samples of them, the commits."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from benchmarks.children import Child, Children, environment, program
from benchmarks.result import slope

_RUN = "run"
_START_S = 60.0
_EXIT_S = 30.0  # for the clients, when the server has ended
_SETTLE_S = 1.0  # after the server listens, before its idle memory is taken


@dataclass(frozen=True)
class Spec:
    """What is started, and how closely it is watched."""

    server: tuple[str, ...]  # flags of fl-server
    clients: tuple[tuple[str, ...], ...]  # flags of every fl-client
    sample_s: float = 0.5
    limit_s: float = 300.0


@dataclass(frozen=True)
class Sample:
    """One process at one instant."""

    at: float  # seconds since the epoch, as in the journal
    cpu_s: float
    rss: int  # bytes
    peak_rss: int
    fds: int
    threads: int


@dataclass(frozen=True)
class Commit:
    """One round_committed event."""

    round: int
    at: float
    fields: dict[str, Any]


@dataclass
class Watched:
    """What was seen of a run."""

    idle_rss: int = 0
    server: list[Sample] = field(default_factory=list)
    clients: list[list[Sample]] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)

    def rounds_s(self, skip: int) -> list[float]:
        """Return the seconds from commit to commit after the first `skip` rounds."""
        at = [commit.at for commit in self.commits[skip:]]
        return [end - begin for begin, end in pairwise(at)]

    def cpu_per_round(self, samples: Sequence[Sample], skip: int) -> float:
        """Return the CPU seconds of a process per round after the first `skip` rounds."""
        begin, end = self.commits[skip], self.commits[-1]
        used = _cpu_at(samples, end.at) - _cpu_at(samples, begin.at)
        return used / (end.round - begin.round)

    def slope_per_round(self, samples: Sequence[Sample], skip: int) -> float:
        """Return by how many bytes a process grows per round after the first `skip` rounds."""
        return slope([(self.round_at(one.at), float(one.rss)) for one in self.between(samples, skip)])

    def between(self, samples: Sequence[Sample], skip: int) -> list[Sample]:
        """Return the samples from the commit of round `skip` + 1 to the last commit."""
        return [one for one in samples if self.commits[skip].at <= one.at <= self.commits[-1].at]

    def parts(self, skip: int) -> dict[str, float]:
        """Return the median seconds of a round's parts, as the server's own clock has them."""
        names = [name for name in self.commits[-1].fields if name.endswith("_s") or name == "seconds"]
        rounds = self.commits[skip:]
        return {name: statistics.median(one.fields[name] for one in rounds) for name in names}

    def round_at(self, at: float) -> float:
        """Return how many rounds were committed at an instant."""
        return float(sum(commit.at <= at for commit in self.commits))


def watch(folder: Path, spec: Spec) -> Watched:
    """Run it to its end; raises Failed if a process fails or the time is over."""
    folder.mkdir(exist_ok=True)
    seen = Watched()
    with Children() as children:
        server = _start_server(children, folder, spec)
        looked = psutil.Process(server.process.pid)
        seen.idle_rss = looked.memory_info().rss
        pids = [_start_client(children, folder, number, own) for number, own in enumerate(spec.clients)]
        processes = [looked, *map(psutil.Process, pids)]
        seen.server, *seen.clients = columns = [list[Sample]() for _ in processes]
        end = time.monotonic() + spec.limit_s
        while server.code is None and time.monotonic() < end:
            children.check()
            for process, samples in zip(processes, columns, strict=True):
                _take(process, samples)
            time.sleep(spec.sample_s)
        children.finish(_EXIT_S if server.code is not None else 0.0)
    seen.commits = commits(journal(folder))
    return seen


def journal(folder: Path) -> Path:
    """Return where the journal of a run lies."""
    return folder / _RUN / "journal.sqlite"


def _start_server(children: Children, folder: Path, spec: Spec) -> Child:
    run_dir = folder / _RUN
    flags = ["--run-dir", str(run_dir), "--listen", "127.0.0.1:0", "--log-format", "json", *spec.server]
    server = children.start("fl-server", [*program("fl-server"), *flags], folder / "log", environment())
    children.wait_until((run_dir / "address").exists, _START_S)
    time.sleep(_SETTLE_S)
    return server


def _start_client(children: Children, folder: Path, number: int, own: Sequence[str]) -> int:
    """Start a client and return its process id."""
    address = (folder / _RUN / "address").read_text().strip()
    flags = ["--server", address, "--state-dir", str(folder / f"state-{number}"), *own]
    name = f"fl-client {number}"
    child = children.start(name, [*program("fl-client"), *flags], folder / "log", environment())
    return child.process.pid


def commits(journal: Path) -> list[Commit]:
    """Return the commits that a journal holds."""
    with contextlib.closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT at, fields FROM events WHERE name = 'round_committed' ORDER BY cursor"
        ).fetchall()
    parsed = [(at, json.loads(fields)) for at, fields in rows]
    return [Commit(fields["round"], at, fields) for at, fields in parsed]


def _take(process: psutil.Process, into: list[Sample]) -> None:
    """Append a sample, unless the process has ended."""
    with contextlib.suppress(psutil.Error):
        with process.oneshot():
            cpu, memory = process.cpu_times(), process.memory_info()
            threads, fds = process.num_threads(), process.num_fds()
        used = cpu.user + cpu.system
        peak = max(memory.rss, _high_water(process.pid))
        if memory.rss:  # 0: it is on its way out
            into.append(Sample(time.time(), used, memory.rss, peak, fds, threads))


def _high_water(pid: int) -> int:
    """Return the highest resident memory so far as Linux keeps it; 0 elsewhere."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _cpu_at(samples: Sequence[Sample], at: float) -> float:
    """Return the CPU seconds at an instant, between the two samples around it."""
    before = max((one for one in samples if one.at <= at), key=lambda one: one.at, default=samples[0])
    after = min((one for one in samples if one.at > at), key=lambda one: one.at, default=samples[-1])
    if after.at <= before.at:
        return before.cpu_s
    share = (at - before.at) / (after.at - before.at)
    return before.cpu_s + share * (after.cpu_s - before.cpu_s)
