"""The dashboard of a run that is over: fl-lab dashboard, and --dashboard on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import socket
import subprocess
import termios
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from edgeflock.lab.becoming import program
from edgeflock.lab.history import History
from edgeflock.lab.operate.dashboard import of_its_server
from edgeflock.server.files import run_dir as rundir
from support.processes import LIMIT_S, Flock, Program, flock, until

SHORT = ("--method=centralized", "--rounds=2", "--dashboard=127.0.0.1:0")
FAILING = ("--max-clients-wait=0.1", "--listen=127.0.0.1:0", "--dashboard=127.0.0.1:0")
URL = re.compile(r"http://127\.0\.0\.1:\d+/")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Flock]:
    with flock(tmp_path) as found:
        yield found


def state(url: str) -> str | None:
    """Return what a dashboard says of its run, None while it does not answer."""
    try:
        with urllib.request.urlopen(f"{url}readyz", timeout=LIMIT_S) as answer:
            return str(answer.read().decode()).strip()
    except urllib.error.HTTPError as error:
        return error.read().decode().strip()
    except OSError:
        return None


def asked_as(url: str, host: str) -> int:
    """Return how a dashboard answers who knows it by that name."""
    asked = urllib.request.Request(f"{url}healthz", headers={"Host": host})
    try:
        with urllib.request.urlopen(asked, timeout=LIMIT_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def files(run_dir: Path) -> list[str]:
    """Return what lies there; readers of SQLite leave their own two files."""
    return sorted(path.name for path in run_dir.rglob("*") if not path.name.endswith(("-shm", "-wal")))


def where(lab: Program) -> str:
    """Return where fl-lab dashboard says that it is."""
    return until(lambda: URL.search(lab.text), lambda: lab.text).group()


def test_a_finished_run_is_shown_until_ctrl_c(made: Flock) -> None:
    assert made.begin_server("--method=centralized", "--rounds=2").ended() == 0
    before = files(made.run_dir)
    lab = made.start("fl-lab", "dashboard", str(made.run_dir), "--dashboard=127.0.0.1:0")
    assert until(lambda: state(where(lab)), lambda: lab.text) == "finished"
    assert f"{made.run_dir} is over, completed: all 2 rounds are done\n" in lab.text
    assert [asked_as(where(lab), host) for host in ("localhost", "fl.example")] == [200, 421]
    lab.signal(signal.SIGINT)
    assert lab.ended() == 0
    assert state(where(lab)) is None
    assert files(made.run_dir) == before


def test_who_may_be_asked_from_afar_answers_only_to_the_names_that_it_was_given(made: Flock) -> None:
    assert made.begin_server("--method=centralized", "--rounds=2").ended() == 0
    beyond = ("--dashboard=127.0.0.1:0", "--dashboard-insecure")
    lab = made.start("fl-lab", "dashboard", str(made.run_dir), *beyond, "--dashboard-host=fl.example")
    url = until(lambda: state(where(lab)) and where(lab), lambda: lab.text)
    hosts = ("localhost:80", "FL.example:8080", "evil.example", "fl.example.evil.example")
    assert [asked_as(url, host) for host in hosts] == [200, 200, 421, 421]
    anybody = made.start("fl-lab", "dashboard", str(made.run_dir), *beyond)
    url = until(lambda: state(where(anybody)) and where(anybody), lambda: anybody.text)
    assert asked_as(url, "evil.example") == 200


def test_a_run_without_its_server_is_shown_and_then_the_server_that_comes_back(made: Flock) -> None:
    made.server("--clients=2").kill()
    lab = made.start("fl-lab", "dashboard", str(made.run_dir), "--dashboard=127.0.0.1:0")
    assert until(lambda: state(where(lab)), lambda: lab.text) == "unreachable"
    going_on = f"fl-server --run-dir {made.run_dir} goes on"
    assert (
        f"{made.run_dir} is not over, 0 of 20 rounds are done, but its server is not running: {going_on}"
        in lab.text
    )
    made.server()
    until(lambda: state(where(lab)) == "gathering" or None, lambda: str(state(where(lab))))
    lab.signal(signal.SIGTERM)
    assert lab.ended() == 0


def test_a_run_that_its_server_shows_is_only_pointed_at(made: Flock) -> None:
    made.server("--dashboard=127.0.0.1:0")
    url = f"http://{(made.run_dir / 'dashboard').read_text().strip()}/"
    until(lambda: state(url), lambda: url)
    lab = made.start("fl-lab", "dashboard", str(made.run_dir))
    assert lab.ended() == 0
    assert lab.text == f"{made.run_dir} is going on, and its server shows it at {url}\n"


def test_whoever_collects_its_metrics_again_and_again_learns_that_the_run_has_ended(made: Flock) -> None:
    """A server that was killed is told from it by that."""
    server = made.server("--clients=1", "--rounds=1", "--dashboard=127.0.0.1:0")
    url = f"http://{(made.run_dir / 'dashboard').read_text().strip()}/metrics"
    seen: list[str] = []
    gone = threading.Event()

    def collect() -> None:
        while not gone.wait(2.0):
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
                seen.append(answer.read().decode())

    with ThreadPoolExecutor(1) as pool:
        pool.submit(collect)
        until(lambda: len(seen) >= 2 or None, lambda: str(seen))
        client = made.client("c0")
        try:
            assert (server.ended(), client.ended()) == (0, 0)
        finally:
            gone.set()
    assert 'edgeflock_run_state{state="finished"} 1.0' in seen[-1]


def test_what_is_no_run_or_a_taken_address_is_one_sentence(made: Flock) -> None:
    lab = made.start("fl-lab", "dashboard", str(made.folder))
    assert (lab.ended(), lab.sentence().endswith("it has no journal.sqlite")) == (2, True)
    made.server("--dashboard=127.0.0.1:0")
    taken = (made.run_dir / "dashboard").read_text().strip()
    lab = made.start("fl-lab", "dashboard", str(made.run_dir), f"--dashboard={taken}")
    assert (lab.ended(), lab.sentence()) == (
        2, f"fl-lab: error: --dashboard {taken} cannot be bound: Address already in use"
    )  # fmt: skip


def test_what_does_not_speak_http_is_no_dashboard(tmp_path: Path) -> None:
    def answer() -> None:
        connection, _ = other.accept()
        with connection:
            connection.sendall(b"220 ready\r\n")

    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:
        (tmp_path / rundir.DASHBOARD).write_text(f"127.0.0.1:{other.getsockname()[1]}\n")
        answering = pool.submit(answer)
        found = SimpleNamespace(run_dir=tmp_path, run_id="x")
        assert of_its_server(cast(History, found)) is None
        answering.result(LIMIT_S)


@pytest.mark.parametrize(
    ("command", "options", "code"),
    [
        (["fl-server"], SHORT, 0),
        (["fl-server"], FAILING, 1),
        (["fl-lab", "run"], SHORT, 0),
    ],
)
def test_on_a_terminal_it_stays_until_ctrl_c_and_the_exit_code_is_that_of_the_run(
    tmp_path: Path, command: list[str], options: tuple[str, ...], code: int
) -> None:
    run_dir = tmp_path / "run"
    words = [*program(command[0]), *command[1:], f"--run-dir={run_dir}", *options]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=_take_terminal
    ) as process:
        os.close(theirs)
        text = ""
        while "until Ctrl-C" not in text:
            text += os.read(ours, 4096).decode()
        line = next(line for line in text.splitlines() if "until Ctrl-C" in line)
        url = until(lambda: URL.search(line), lambda: line).group()
        assert line == f"the run is over; the dashboard stays at {url} until Ctrl-C"
        assert until(lambda: state(url), lambda: url) == "finished"
        assert not rundir.is_served(run_dir)
        os.write(ours, b"\x03")
        assert process.wait(LIMIT_S) == code
    os.close(ours)
    assert state(url) is None


def _take_terminal() -> None:
    """Make the standard input the terminal of a session of its own: its Ctrl-C reaches the process."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
