"""The server's disk fills up in mid-run: it pauses, and goes on when there is space again."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.conftest import RUN
from support.processes import Flock, until

from edgeflock.lab.children import program

_MOUNT = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'


def on_a_small_disk(folder: Path, *command: str) -> list[str]:
    """Return the command in a mount namespace where the folder is a disk of 8 MiB."""
    return ["unshare", "--mount", "sh", "-c", _MOUNT, "sh", "8m", str(folder), *command]


@pytest.fixture
def server(flock: Flock) -> Iterator[subprocess.Popen[bytes]]:
    """A server whose run directory is a small disk."""
    flock.run_dir.mkdir()
    probe = subprocess.run(on_a_small_disk(flock.run_dir, "true"), capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"no disk can be mounted here: {probe.stderr.decode().strip()}")
    words = [*program("fl-server"), f"--run-dir={flock.run_dir}", "--listen=127.0.0.1:0", *RUN]
    with (flock.folder / "server.log").open("wb") as log:
        server = subprocess.Popen(on_a_small_disk(flock.run_dir, *words), stderr=log)
    try:
        yield server
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def disk(flock: Flock, server: subprocess.Popen[bytes]) -> Iterator[Path]:
    """The small disk as it is reached from here, also when the server has gone."""
    inside = Path(f"/proc/{server.pid}/root{flock.run_dir}")
    until(lambda: (inside / "address").exists() or None, lambda: (flock.folder / "server.log").read_text())
    descriptor = os.open(inside, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def said(flock: Flock, event: str) -> str:
    """Wait until the server has logged the event and return the first line of it."""
    log = flock.folder / "server.log"

    def look() -> str | None:
        lines = log.read_text().splitlines()
        return next((line for line in lines if f'"event": "{event}"' in line), None)

    return until(look, lambda: f"{event}: {log.read_text()[-3000:]}")


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def test_a_full_disk_pauses_the_run_and_space_resumes_it(
    flock: Flock, server: subprocess.Popen[bytes], disk: Path, undisturbed: str
) -> None:
    flock.seen = disk
    client = flock.client("c0,c1,c2")
    said(flock, "round_committed")
    fill(disk / "filler")
    assert "no space left on the disk" in said(flock, "run_paused")
    (disk / "filler").unlink()
    said(flock, "run_resumed")
    assert (server.wait(60), client.ended()) == (0, 0)
    assert flock.sha256() == undisturbed
