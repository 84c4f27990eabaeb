"""fl-lab control and events against a living server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_SERVER = [sys.executable, "-c", "from edgeflock.server.cli import main; main()"]
_LAB = [sys.executable, "-c", "from edgeflock.lab.cli import main; main()"]


def lab(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*_LAB, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """The directory of a run that waits for its clients."""
    run_dir = tmp_path / "run"
    arguments = [f"--run-dir={run_dir}", "--listen=127.0.0.1:0", "--linger=0", "--log-format=json"]
    with subprocess.Popen([*_SERVER, *arguments], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        while "run_started" not in server.stderr.readline():
            assert server.poll() is None
        yield run_dir
        server.terminate()
        server.communicate(timeout=30)


def test_the_status_names_run_state_and_clients(run_dir: Path) -> None:
    done = lab("control", run_dir, "status")
    assert (done.returncode, done.stderr) == (0, "")
    assert "method   fedavg\nstate    gathering" in done.stdout
    assert "round    0 of 20\nclients  0 online of 4" in done.stdout


def test_a_run_is_paused_resumed_and_stopped(run_dir: Path) -> None:
    for action, answer in (("pause", "paused"), ("resume", "resumed"), ("stop", "stopping")):
        done = lab("control", run_dir, action)
        assert (done.returncode, done.stderr, done.stdout.startswith(answer)) == (0, "", True)
    done = lab("events", run_dir, "--json", "--follow")
    names = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert (names[0], names[-1]) == ("run_started", "run_ended")
    assert json.loads(done.stdout.splitlines()[-1])["reason"] == "stopped by the operator"


def test_the_events_from_a_cursor_on(run_dir: Path) -> None:
    said = (
        lab("events", run_dir, "--json").stdout for _ in range(100)
    )  # news comes into the journal a little later
    first = json.loads(next(filter(None, said)).splitlines()[0])
    assert first["event"] == "run_started"
    assert lab("events", run_dir, "--after", first["cursor"]).stdout == ""


def test_a_server_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "control").write_text(f"unix:{tmp_path}/none.sock\n")
    done = lab("control", tmp_path, "status")
    assert done.stderr.startswith(f"fl-lab: error: the server of {tmp_path} does not answer: ")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["release", "--client=pi7"],
            "--client is 'pi7', allowed is an id that is in quarantine: none is now",
        ),
        (["release"], "release needs --client ID, no other action takes it"),
        (["pause", "--client=pi7"], "release needs --client ID, no other action takes it"),
    ],
)
def test_a_release_of_nobody_is_one_sentence(run_dir: Path, arguments: list[str], sentence: str) -> None:
    done = lab("control", run_dir, *arguments)
    assert (done.returncode, done.stderr) == (2, f"fl-lab: error: {sentence}\n")
