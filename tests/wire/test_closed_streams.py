"""Real commands whose streams are closed, or whose reader goes away: they work, and end with their code."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from edgeflock.lab.becoming import program
from support.commands import clean_environ
from support.processes import until

_CLOSED = "<&- >&- 2>&-"
_SHORT = ("--rounds=2", "--clients=2", "--processes=1")


def shell(script: str, *words: object) -> int:
    """Return the exit code of a script of the shell that has a command as "$@"."""
    command = ["bash", "-c", f"set -o pipefail; {script}", "bash", *map(str, words)]
    return subprocess.run(command, env=clean_environ(), timeout=100, check=False).returncode


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that was held without a stream."""
    run_dir = tmp_path_factory.mktemp("closed") / "run"
    words = (*program("fl-lab"), "run", f"--run-dir={run_dir}", *_SHORT)
    assert shell(f'exec "$@" {_CLOSED}', *words) == 0
    assert (run_dir / "model.safetensors").exists()
    return run_dir


def test_whoever_supervises_a_server_without_streams_sees_that_its_run_is_over(finished: Path) -> None:
    assert shell(f'exec "$@" {_CLOSED}', *program("fl-server"), f"--run-dir={finished}") == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("events", "RUN", "--follow"), 0),
        (("control", "RUN", "status"), 0),
        (("control", "RUN", "pause"), 2),
        (("export", "RUN", "--out", "RUN/model.npz"), 0),
        (("methods",), 0),
        (("--help",), 0),
        (("no-such-command",), 2),
    ],
)
def test_a_command_of_the_lab_works_without_streams_and_without_a_reader(
    finished: Path, words: tuple[str, ...], code: int
) -> None:
    said = [*program("fl-lab"), *(word.replace("RUN", str(finished)) for word in words)]
    assert shell(f'"$@" {_CLOSED} || exit; exec "$@" | true', *said) == code


def begun(*words: object) -> subprocess.Popen[bytes]:
    """Start a command without streams."""
    command = ["sh", "-c", f'exec "$@" {_CLOSED}', "sh", *map(str, words)]
    return subprocess.Popen(command, env=clean_environ())


def test_a_server_and_a_client_without_streams_hold_a_run(tmp_path: Path) -> None:
    run_dir, address = tmp_path / "run", tmp_path / "run" / "address"
    where = (f"--run-dir={run_dir}", "--listen=127.0.0.1:0", "--rounds=2", "--clients=1")
    with contextlib.ExitStack() as processes:
        server = processes.enter_context(begun(*program("fl-server"), *where))
        processes.callback(server.kill)
        until(lambda: address.exists() or None, lambda: f"{address}, the server's code is {server.poll()}")
        found = (f"--server={address.read_text('utf-8').strip()}", f"--state-dir={tmp_path / 'client'}")
        client = processes.enter_context(begun(*program("fl-client"), "--ids=c0", *found))
        processes.callback(client.kill)
        assert (server.wait(100), client.wait(100)) == (0, 0)


def test_a_run_whose_reader_goes_away_goes_on_to_its_end(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    words = (*program("fl-lab"), "run", f"--run-dir={run_dir}", *_SHORT)
    assert shell('"$@" 2>&1 | head -1 > /dev/null', *words) == 0
    assert (run_dir / "model.safetensors").exists()
