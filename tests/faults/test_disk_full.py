"""The server's disk fills up in mid-run: it pauses, and goes on when there is space again."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeflock.lab.becoming import program
from faults.conftest import RUN
from support.lastwords import silent
from support.processes import Flock, mounted, until

pytestmark = pytest.mark.promise("R4")


@pytest.fixture
def server(flock: Flock) -> Iterator[subprocess.Popen[bytes]]:
    """A server whose run directory is a small disk."""
    flock.run_dir.mkdir()
    probe = subprocess.run(mounted(flock.run_dir, "size=8m", "true"), capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"no disk can be mounted here: {probe.stderr.decode().strip()}")
    words = [*program("fl-server"), f"--run-dir={flock.run_dir}", "--listen=127.0.0.1:0", *RUN]
    with (flock.folder / "server.log").open("wb") as log:
        server = subprocess.Popen(mounted(flock.run_dir, "size=8m", *words), stderr=log)
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


def log_of(flock: Flock) -> str:
    return (flock.folder / "server.log").read_text()


def count(flock: Flock, *words: str) -> int:
    """Return how many lines of the log have one of the words."""
    return sum(any(word in line for word in words) for line in log_of(flock).splitlines())


def wait_for_more(flock: Flock, before: int, *words: str) -> None:
    until(lambda: count(flock, *words) > before or None, lambda: f"{words}: {log_of(flock)[-3000:]}")


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def fill_and_free(flock: Flock, disk: Path) -> None:
    """Let the disk be full until the server has said so: to the operator, or to a client's upload."""
    noted = count(flock, "run_paused", "REASON_NO_SPACE")
    fill(disk / "filler")
    wait_for_more(flock, noted, "run_paused", "REASON_NO_SPACE")
    assert "effect_failed" not in log_of(flock)
    (disk / "filler").unlink()


def test_a_full_disk_stops_the_run_for_as_long_as_it_is_full(
    flock: Flock, server: subprocess.Popen[bytes], disk: Path, undisturbed: str
) -> None:
    flock.seen = disk
    client = flock.client("c0,c1,c2")
    wait_for_more(flock, 0, '"round_committed"')
    fill_and_free(flock, disk)
    assert (server.wait(60), client.ended()) == (0, 0)
    assert "Traceback" not in log_of(flock)
    assert not silent("fl-server", log_of(flock), 0)
    assert flock.sha256() == undisturbed


@pytest.fixture
def home(flock: Flock) -> Iterator[tuple[str, ...]]:
    """What begins a command to which the run directory is a small disk, which stays between two of them."""
    flock.run_dir.mkdir()
    holder = subprocess.Popen(
        mounted(flock.run_dir, "size=8m", "sleep", "infinity"), stderr=subprocess.DEVNULL
    )
    try:
        inside = Path(f"/proc/{holder.pid}/root{flock.run_dir}")
        until(lambda: os.path.ismount(inside) or holder.poll() is not None or None, lambda: "no disk")
        if holder.poll() is not None:
            pytest.skip("no disk can be mounted here")
        flock.seen = inside
        yield "nsenter", f"--mount=/proc/{holder.pid}/ns/mnt"
    finally:
        holder.kill()
        holder.wait()


def test_a_server_that_starts_on_a_full_disk_waits_for_room(
    flock: Flock, home: tuple[str, ...], undisturbed: str
) -> None:
    def served(log: str) -> subprocess.Popen[bytes]:
        words = [*program("fl-server"), f"--run-dir={flock.folder / 'run'}", "--listen=127.0.0.1:0", *RUN]
        with (flock.folder / log).open("wb") as file:
            started = subprocess.Popen([*home, *words], stderr=file)
        stack.callback(started.wait)
        stack.callback(started.kill)
        return started

    with contextlib.ExitStack() as stack:
        first = served("server.log")
        until(lambda: (flock.run_dir / "address").exists() or None, lambda: log_of(flock))
        client = flock.client("c0,c1,c2")
        wait_for_more(flock, 0, '"round_committed"')
        fill(flock.run_dir / "filler")
        wait_for_more(flock, 0, "run_paused", "REASON_NO_SPACE")
        first.kill()
        first.wait()
        fill(flock.run_dir / "rest")  # what its end has set free
        second = served("again.log")
        again = flock.folder / "again.log"
        until(lambda: "start_waits" in again.read_text() or second.poll(), again.read_text)
        assert second.poll() is None, again.read_text()
        for name in ("filler", "rest"):
            (flock.run_dir / name).unlink()
        assert (second.wait(60), client.ended()) == (0, 0), again.read_text()[-3000:]
        assert "start_goes_on" in again.read_text()
        assert flock.sha256() == undisturbed


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_a_disk_that_is_full_at_many_instants_damages_nothing(
    flock: Flock, server: subprocess.Popen[bytes], disk: Path, undisturbed: str, seed: int
) -> None:
    flock.seen, dice = disk, random.Random(seed)
    client = flock.client("c0,c1,c2")
    for _ in range(4):
        wait_for_more(flock, count(flock, '"round_committed"'), '"round_committed"')
        time.sleep(dice.uniform(0, 0.05))  # the instant is the test's input, not a synchronisation
        fill_and_free(flock, disk)
    assert (server.wait(60), client.ended()) == (0, 0)
    assert "Traceback" not in log_of(flock)
    assert not silent("fl-server", log_of(flock), 0)
    assert flock.sha256() == undisturbed
