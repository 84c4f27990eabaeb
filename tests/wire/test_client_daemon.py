"""fl-client as a process: exit codes, sentences, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgeflock.client.keeping.statedir import StateDir

NOBODY = "127.0.0.1:1"  # nothing listens there


def start(*flags: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", "from edgeflock.client.cli import main; main()", *flags]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)


def ended(*flags: str) -> tuple[int, str]:
    """Return exit code and last line on stderr."""
    process = start(*flags)
    _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors
    return process.returncode, errors.strip().splitlines()[-1]


def wait_for(process: subprocess.Popen[str], event: str) -> None:
    """Read the log until the event is there."""
    assert process.stderr is not None
    for line in process.stderr:
        if f'"event": "{event}"' in line:
            return
    raise AssertionError(f"{event} was never logged, exit code {process.wait(10)}")


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_client_that_waits_for_its_server_with_0(
    tmp_path: Path, asked: signal.Signals
) -> None:
    process = start("--server", NOBODY, "--state-dir", str(tmp_path))
    wait_for(process, "server_not_reached")
    process.send_signal(asked)
    process.communicate(timeout=12)
    assert process.returncode == 0


def test_an_unreachable_server_is_given_up_with_one_sentence(tmp_path: Path) -> None:
    code, line = ended("--server", NOBODY, "--state-dir", str(tmp_path), "--give-up-after", "1")
    assert code == 1
    assert line.startswith(f"fl-client: error: no server was reached at {NOBODY} for 1 s: connection refused")


def test_a_state_directory_in_use_is_refused_with_2(tmp_path: Path) -> None:
    held = StateDir.open(tmp_path)
    try:
        code, line = ended("--server", NOBODY, "--state-dir", str(tmp_path))
    finally:
        held.close()
    assert (code, line) == (2, f"fl-client: error: state directory {tmp_path} is in use by another process")


def test_a_corrupt_state_directory_is_refused_with_1(tmp_path: Path) -> None:
    (tmp_path / "identity.toml").write_text("nonsense")
    code, line = ended("--server", NOBODY, "--state-dir", str(tmp_path))
    assert code == 1
    assert "identity.toml cannot be read" in line


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--server", "nowhere"], "--server"),
        (["--server", "192.0.2.1:9300"], "--insecure"),
        (["--server", NOBODY, "--device", "cuda:99"], "--device"),
    ],
)
def test_a_wrong_flag_is_refused_with_2(tmp_path: Path, flags: list[str], word: str) -> None:
    code, line = ended(*flags, "--state-dir", str(tmp_path / "state"))
    assert code == 2
    assert word in line
