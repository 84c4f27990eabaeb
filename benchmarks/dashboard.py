"""What the dashboard takes of a server that it shows, for a viewer."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import grpc
import psutil

from benchmarks.children import Children, Failed, environment, program
from benchmarks.result import Benchmark, Row, at_most
from edgeflock.v1 import control_pb2, control_pb2_grpc

CLIENTS, ROUNDS = 200, 10_000
LIMIT_PERCENT = 2.0  # of a core, for one viewer
_START_S = 60.0
WINDOW_S = 20.0
_SETTLE_S = 2.0  # for a viewer that has come, or gone
_ASK_EACH_S = 0.02
_KINDS = ("alone", "viewed", "asked")


def server_cost(paused: bool, repeats: int) -> Iterator[Row]:
    """Compare adjacent windows of one run of real clients: the CPU alone, with a viewer, and with questions.

    A viewer makes the dashboard ask the server once a second. In the third window many more such questions
    are asked, which shows what one takes where the difference that a viewer makes is lost in that of the
    rounds. The windows take turns in another order each time, so that what drifts falls on all of them. While
    rounds go on, a window lasts from a commit to a commit, and what is compared is the CPU of a round.
    """
    with tempfile.TemporaryDirectory() as name, Children() as children:
        run_dir = Path(name) / "run"
        url, server = _start(children, Path(name))
        if paused:
            _pause(children, Path(name))
        take = partial(_window, run_dir, not paused, server, _dashboard(server))
        seen = []
        for repeat in range(repeats):
            turn = repeat % len(_KINDS)
            seen.append({kind: _one(kind, url, run_dir, take) for kind in _KINDS[turn:] + _KINDS[:turn]})
    yield from _rows(seen, f"{CLIENTS} clients {'paused' if paused else 'training'}")


@dataclass(frozen=True)
class _Window:
    seconds: float
    rounds: int  # committed in it; 1 for a window that has none, and is compared by its seconds
    server_s: float  # CPU
    own_s: float  # the dashboard's
    asked: int = 0  # questions beside the dashboard's


def _one(kind: str, url: str, run_dir: Path, take: Callable[[], _Window]) -> _Window:
    watching = viewer(url) if kind == "viewed" else contextlib.nullcontext()
    asking = _questions(run_dir) if kind == "asked" else contextlib.nullcontext(lambda: 0)
    with watching, asking as asked:
        time.sleep(_SETTLE_S)
        before = asked()
        window = take()
        return replace(window, asked=asked() - before)


def _rows(seen: list[dict[str, _Window]], what: str) -> Iterator[Row]:
    unit, alone = "% of a core", [windows["alone"] for windows in seen]
    details = {
        "server_alone": [100 * one.server_s / one.seconds for one in alone],
        "rounds": [[window.rounds for window in windows.values()] for windows in seen],
        "asked": [windows["asked"].asked for windows in seen],
    }
    more = [100 * _more(windows, "viewed") / windows["viewed"].seconds for windows in seen]
    yield at_most(f"server CPU of a viewer, {what}", unit, more, LIMIT_PERCENT, **details)
    each = [100 * _more(windows, "asked") / windows["asked"].asked for windows in seen]
    yield at_most(f"server CPU of a question each second, {what}", unit, each, LIMIT_PERCENT)
    own = [100 * windows["viewed"].own_s / windows["viewed"].seconds for windows in seen]
    yield at_most(f"dashboard CPU with a viewer, {what}", unit, own, LIMIT_PERCENT)


def _more(windows: dict[str, _Window], kind: str) -> float:
    """Return the CPU seconds that a window took beyond what as many rounds take alone."""
    alone, window = windows["alone"], windows[kind]
    return window.server_s - window.rounds * alone.server_s / alone.rounds


@contextlib.contextmanager
def _questions(run_dir: Path) -> Iterator[Callable[[], int]]:
    """Ask for the status again and again, as the dashboard does; yield what says how often."""
    asked, gone = [0], threading.Event()
    channel = grpc.insecure_channel((run_dir / "control").read_text().strip())
    stub = control_pb2_grpc.ControlStub(channel)

    def ask() -> None:
        while not gone.wait(_ASK_EACH_S):
            stub.Status(control_pb2.StatusRequest(), timeout=_START_S)
            asked[0] += 1

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield lambda: asked[0]
    finally:
        gone.set()
        thread.join(timeout=_START_S)
        channel.close()


def _window(run_dir: Path, training: bool, server: psutil.Process, own: psutil.Process) -> _Window:
    """Return what the two processes take, over whole rounds if there are any."""
    first = _next_commit(run_dir) if training else 0
    began, before = time.monotonic(), (cpu_s(server), cpu_s(own))
    time.sleep(WINDOW_S)
    last = _next_commit(run_dir) if training else 1
    used = cpu_s(server) - before[0], cpu_s(own) - before[1]
    return _Window(time.monotonic() - began, last - first, *used)


def _next_commit(run_dir: Path) -> int:
    """Wait for a commit; return how many there were."""
    before, end = _committed(run_dir), time.monotonic() + _START_S
    while (now := _committed(run_dir)) == before:
        if time.monotonic() > end:
            raise Failed(f"no round was committed within {_START_S:g} s")
        time.sleep(0.02)
    return now


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


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


@contextlib.contextmanager
def viewer(url: str) -> Iterator[Callable[[], int]]:
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


BENCHMARKS = {
    "dashboard_idle": Benchmark("the server's CPU for a viewer, paused", partial(server_cost, True)),
    "dashboard_busy": Benchmark("the server's CPU for a viewer, training", partial(server_cost, False)),
}
