"""The server dies, or its disk fails, at the n-th system call of a kind: the run ends in the same bits."""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.conftest import Figure
from support import processes
from support.processes import Flock, Program, until
from support.promises import Trials
from support.strace import Tracer, needs_strace

pytestmark = needs_strace

ROUNDS = 3
SMALL = ("--clients=2", f"--rounds={ROUNDS}", "--seed=5", "--deadline=60", "--model=linear", "--keep-every=2")
HOST = "c0,c1"
CALLS = ("write", "pwrite64", "fsync,fdatasync", "rename,renameat,renameat2", "unlink,unlinkat,rmdir")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the final model of SMALL, undisturbed."""
    return processes.run_to_the_end(tmp_path_factory.mktemp("small"), SMALL, (HOST,))


@dataclass(frozen=True)
class Death:
    """What became of a run whose server was killed."""

    happened: bool
    sha256: str


def killed_at(folder: Path, calls: str, number: int) -> Death:
    """Run with a server that dies at its n-th call of a kind, start it again, and let the run end.

    Nothing that was decided by then is decided again, and no update that was there is sent again.
    """
    folder.mkdir()
    with processes.flock(folder) as flock:
        server, tracer = traced(flock, calls, f"signal=KILL:when={number}")
        clients = [flock.client(HOST)] if is_up(server) else []
        server.process.join(processes.LIMIT_S)
        tracer.close()
        died = server.process.exitcode == -signal.SIGKILL
        before = flock.decided()
        if died:
            server = flock.begin_server(*SMALL)
            is_up(server)  # or it says that the run is over
        clients = clients or [flock.client(HOST)]
        assert [server.ended(), clients[0].ended()] == [0, 0]
        assert rounds(flock) == ROUNDS
        assert (before - flock.decided(), flock.sent_again()) == (set(), 0)
        return Death(died, flock.sha256())


def traced(flock: Flock, calls: str, inject: str) -> tuple[Program, Tracer]:
    """Start the server and let strace do this to its system calls."""
    gate = flock.folder / "gate"
    server = flock.begin_server(*SMALL, gate=gate)
    return server, Tracer(server, gate, calls, inject)


def is_up(server: Program) -> bool:
    """Wait until the server listens or is dead."""
    return until(
        lambda: bool(server.events("listening")) or (None if server.process.is_alive() else False),
        lambda: f"the server to listen: {server.text[-2000:]}",
    )


def rounds(flock: Flock) -> int:
    try:
        return int(flock.rows("SELECT count(*) FROM rounds WHERE committed = 1 AND round > 0")[0][0])
    except sqlite3.OperationalError:  # killed before there was a journal
        return 0


def sweep(folder: Path, small: str, calls: str, numbers: Iterable[int], trials: Trials) -> None:
    """Kill at each of these numbers until one is never reached."""
    for number in numbers:
        with trials(f"kill at {calls} number {number}"):
            death = killed_at(folder / str(number), calls, number)
            assert death.sha256 == small
        shutil.rmtree(folder / str(number))
        if not death.happened:
            return


@pytest.mark.promise("R1")
@pytest.mark.parametrize("calls", CALLS)
def test_a_server_killed_at_some_calls_ends_in_the_same_bits(
    tmp_path: Path, small: str, trials: Trials, calls: str
) -> None:
    """A handful of instants of each kind; the long sweep takes all of them."""
    sweep(tmp_path, small, calls, random.Random(calls).sample(range(1, 12), 2), trials)
    assert trials.tried


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.promise("R1")
@pytest.mark.parametrize("calls", CALLS)
def test_a_server_killed_at_every_call_ends_in_the_same_bits(
    tmp_path: Path, small: str, figure: Figure, trials: Trials, calls: str
) -> None:
    sweep(tmp_path, small, calls, itertools.count(1), trials)
    figure(f"kills at {calls}", trials.tried - 1)  # the last one was not reached
    assert trials.tried > 1
