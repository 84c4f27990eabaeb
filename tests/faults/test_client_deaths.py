"""A client killed at every step: a quorum goes on by the deadline, and the client comes back by itself."""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.conftest import Figure
from support import processes
from support.fault import Fault, Kind
from support.operator import status
from support.processes import Flock, Program, until
from support.promises import Trials
from support.proxy import Proxy
from support.strace import Tracer, needs_strace

pytestmark = pytest.mark.promise("R5")

PATIENT = (
    *("--clients=2", "--rounds=3", "--seed=5", "--deadline=60"),
    *("--model=linear", "--codec=topk:0.2", "--augment=flip,crop:1"),
)
DEADLINE_S = 2.0
QUORUM = ("--clients=2", "--rounds=8", "--seed=5", f"--deadline={DEADLINE_S}", "--min-updates=1")
RENAMES = "rename,renameat,renameat2"
CALLS = (
    "sendmsg",
    "recvmsg",
    "write",
    "pwrite64",
    RENAMES,
    "mkdir,mkdirat",
)  # files are written over and renamed: in a run like this one none is cut or removed
REJOIN_S = 10.0
LATE_S = 1.0


@dataclass(frozen=True)
class Death:
    """What became of a run one of whose clients was killed."""

    happened: bool
    rejoined_s: float  # after its new start
    overdue_s: float  # how much longer than its deadline the longest round was open
    sha256: str


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the final model of PATIENT, undisturbed."""
    return processes.run_to_the_end(tmp_path_factory.mktemp("whole"), PATIENT, ("c0", "c1"))


def killed_at(folder: Path, flags: tuple[str, ...], calls: str, number: int) -> Death:
    """Run with a client that dies at its n-th call of a kind, start it again, and let the run end."""
    folder.mkdir()
    with processes.flock(folder) as flock:
        server, gate = flock.server(*flags), folder / "gate"
        flock.client("c0")
        victim = flock.client("c1", gate=gate)
        with closing(Tracer(victim, gate, calls, f"signal=KILL:when={number}")):
            victim.process.join(processes.LIMIT_S)
        died = victim.process.exitcode == -signal.SIGKILL
        rejoined_s = comes_back(flock, server, leave_out=flags is QUORUM) if died else 0.0
        living = [program for program in flock.programs if program.process.exitcode != -signal.SIGKILL]
        assert [program.ended() for program in living] == [0] * len(living)
        open_s = max(line["open_s"] for line in server.events("round_committed"))
        return Death(died, rejoined_s, max(0.0, open_s - DEADLINE_S), flock.sha256())


def comes_back(flock: Flock, server: Program, *, leave_out: bool) -> float:
    """Start the killed client again, maybe after a round without it; return when the server has it again."""
    rounds = len(server.events("round_committed"))
    if leave_out and server.events("round_opened"):
        wait_for_more(server, rounds, "round_committed")
    joins, began = len(server.events("client_joined", client="c1")), time.monotonic()
    client = flock.client("c1")
    wait_for_more(server, joins, "client_joined", client="c1")
    if not server.process.is_alive():  # the client had heard that the run is over before it was killed
        client.kill()
        return 0.0
    return time.monotonic() - began


def wait_for_more(server: Program, before: int, name: str, **fields: object) -> None:
    """Wait until the event has come again or the run is over."""
    until(
        lambda: len(server.events(name, **fields)) > before or not server.process.is_alive() or None,
        lambda: f"{name}: {server.text[-3000:]}",
    )


def check(death: Death, figure: Figure) -> None:
    figure("seconds to rejoin", death.rejoined_s)
    assert death.rejoined_s <= REJOIN_S


@needs_strace
@pytest.mark.parametrize("calls", ["sendmsg", RENAMES, "pwrite64"])
def test_a_client_killed_at_some_call_changes_no_bit(
    tmp_path: Path, whole: str, figure: Figure, trials: Trials, calls: str
) -> None:
    number = random.Random(calls).randint(2, 5)
    with trials(f"kill at {calls} number {number}"):
        death = killed_at(tmp_path / "run", PATIENT, calls, number)
        assert death.happened
        check(death, figure)
        assert death.sha256 == whole


@needs_strace
@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("calls", CALLS)
def test_a_client_killed_at_every_call_changes_no_bit(
    tmp_path: Path, whole: str, figure: Figure, trials: Trials, calls: str
) -> None:
    """Every call up to the 20th, then ever fewer of them, until one is never reached."""
    steps = itertools.chain(range(1, 21), (int(20 * 1.25**power) for power in range(1, 30)))
    for number in steps:
        with trials(f"kill at {calls} number {number}"):
            death = killed_at(tmp_path / str(number), PATIENT, calls, number)
            assert death.sha256 == whole
            check(death, figure)
        shutil.rmtree(tmp_path / str(number))
        if not death.happened:
            assert number > 1, f"no {calls} was made"
            return


@needs_strace
@pytest.mark.parametrize(
    ("calls", "number"),
    [
        ("sendmsg", 12),
        *(pytest.param("sendmsg", number, marks=pytest.mark.long) for number in range(2, 24, 2)),
        *(pytest.param(RENAMES, number, marks=pytest.mark.long) for number in range(2, 8)),
    ],
)
def test_a_quorum_ends_the_round_by_its_deadline(
    tmp_path: Path, figure: Figure, calls: str, number: int
) -> None:
    death = killed_at(tmp_path / "run", QUORUM, calls, number)
    check(death, figure)
    figure("seconds a round is open beyond its deadline", death.overdue_s)
    assert death.overdue_s <= LATE_S


# --------------------------------------------------------------------------- in mid-upload

BIG = ("--clients=2", "--rounds=2", "--seed=5", "--steps=1", "--deadline=60", "--model=mlp")
HIDDEN = "--model-arg=hidden=[1000,1000]"
SIZE = 4 * (64 * 1000 + 1000 + 1000 * 1000 + 1000 + 1000 * 10 + 10)  # bytes of the model
FIRST = 30_000  # bytes up after which all calls but the upload are over, and none of its chunks is


@pytest.fixture(scope="session")
def big(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the final model of BIG, undisturbed."""
    return processes.run_to_the_end(tmp_path_factory.mktemp("big"), (*BIG, HIDDEN), ("c0", "c1"))


@pytest.mark.parametrize("part", [0.5, *(pytest.param(part, marks=pytest.mark.long) for part in (0.0, 0.99))])
def test_a_client_killed_in_mid_upload_changes_no_bit(
    flock: Flock, big: str, figure: Figure, part: float
) -> None:
    server, frozen = flock.server(*BIG, HIDDEN), max(FIRST, int(part * SIZE))
    with Proxy(lambda: flock.address, ((Fault(Kind.FREEZE, "up", frozen),),)) as proxy:
        other, victim = flock.client("c0"), flock.client("c1", f"--server={proxy.address}")
        proxy.wait_for("up", frozen)
        victim.kill()
        figure("seconds to rejoin", comes_back(flock, server, leave_out=False))
        assert [program.ended() for program in (server, other, flock.programs[-1])] == [0, 0, 0]
    assert flock.sha256() == big


def test_a_client_killed_after_its_upload_changes_no_bit(flock: Flock, big: str, figure: Figure) -> None:
    server = flock.server(*BIG, HIDDEN)
    other, victim = flock.client("c0"), flock.client("c1")
    server.wait_for("round_opened")
    other.signal(signal.SIGSTOP)  # the round stays open
    until(lambda: received(flock, "c1") or received(flock, "c0") or None, lambda: str(status(flock)))
    victim.kill()
    figure("seconds to rejoin", comes_back(flock, server, leave_out=False))
    other.signal(signal.SIGCONT)
    assert [program.ended() for program in (server, other, flock.programs[-1])] == [0, 0, 0]
    assert flock.sha256() == big


def received(flock: Flock, client_id: str) -> bool:
    return any(member.received and member.client_id == client_id for member in status(flock).members)
