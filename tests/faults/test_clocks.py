"""The wall clock jumps in mid-run, or the monotonic one between two starts: no bit and no deadline moves."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from faults.conftest import RUN, Figure
from support import clock, processes
from support.commands import spawn_client, spawn_server
from support.processes import Flock

# The library makes every look at a clock dear: the runs that it fakes are short.
# So many rounds that the run is not over before its second one was noticed from outside.
SHORT = ("--clients=2", "--rounds=80", "--seed=7", "--deadline=60", "--model=linear")
JUMPS = [
    "+3650d",
    pytest.param("+1d", marks=pytest.mark.long),
    pytest.param("-1d", marks=pytest.mark.long),
]


def faked(file: Path) -> dict[str, str]:
    try:
        return clock.faked(file)
    except clock.NoFakedClock as error:
        pytest.skip(str(error))


def jump_to(file: Path, jump: str) -> None:
    clock.set_to(file, jump)
    time.sleep(clock.READ_AGAIN_S + 0.5)


@pytest.fixture(scope="session")
def short(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the final model of SHORT, undisturbed."""
    return processes.run_to_the_end(tmp_path_factory.mktemp("short"), SHORT, ("c0", "c1"))


@pytest.mark.promise("R12")
@pytest.mark.parametrize("jump", JUMPS)
def test_a_jump_of_the_wall_clock_changes_no_bit(flock: Flock, short: str, jump: str) -> None:
    file = flock.folder / "clock"
    environ = faked(file)
    server = spawn_server(flock, (), *SHORT, environ=environ)
    clients = [spawn_client(flock, (), "c0", environ=environ), flock.client("c1")]
    server.wait_for("round_committed", count=2)
    clients[1].signal(signal.SIGSTOP)  # the round is open for as long as the jump takes to be seen
    jump_to(file, jump)
    clients[1].signal(signal.SIGCONT)
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
    ((last,),) = flock.rows("SELECT at FROM events ORDER BY cursor DESC LIMIT 1")
    assert abs(last - time.time()) > 80_000, "the server's clock did not jump"
    assert flock.sha256() == short, jump


@pytest.mark.promise("R12")
@pytest.mark.parametrize("jump", JUMPS)
def test_a_jump_of_the_wall_clock_moves_no_deadline(flock: Flock, figure: Figure, jump: str) -> None:
    file = flock.folder / "clock"
    flags = ("--clients=2", "--rounds=3", "--deadline=3", "--min-updates=1", "--model=linear")
    server = spawn_server(flock, (), *flags, environ=faked(file))
    stopped = flock.client("c0")
    flock.client("c1")
    server.wait_for("round_committed")
    stopped.signal(signal.SIGSTOP)
    server.wait_for("round_opened", count=2)
    jump_to(file, jump)
    assert server.ended() == 0
    ((seconds,),) = flock.rows("SELECT value FROM round_costs WHERE name = 'open_s' AND round = 3")
    figure("seconds beside the deadline", abs(seconds - 3))
    assert abs(seconds - 3) <= 1, jump


@pytest.mark.long
@pytest.mark.promise("R12")
def test_another_monotonic_clock_after_each_restart_changes_no_bit(flock: Flock, undisturbed: str) -> None:
    """As after a reboot: what the server left on disk holds no time of that clock."""
    server = spawn_server(flock, elsewhen(10_000_000), *RUN)
    clients = flock.clients("c0,c1", "c2")
    for offset in (100_000, 50_000_000):
        server.wait_for("round_committed", count=8)
        server.kill()
        server = spawn_server(flock, elsewhen(offset), *RUN)
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
    assert flock.sha256() == undisturbed


def elsewhen(offset: int) -> tuple[str, ...]:
    """Return the command for which the monotonic clock is so many seconds further."""
    prefix = ("unshare", "--time", f"--monotonic={offset}")
    try:
        probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if probe.returncode:
        pytest.skip(f"no time namespace can be made here: {probe.stderr.decode().strip()}")
    return prefix
