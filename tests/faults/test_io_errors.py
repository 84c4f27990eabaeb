"""A disk that is full or fails, at the n-th system call of either end, costs no accepted round and no bit."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.test_syscalls import HOST, ROUNDS, SMALL, is_up, rounds
from support import processes
from support.processes import Flock, Program, until
from support.promises import Trials
from support.strace import Tracer, needs_strace

pytestmark = [needs_strace, pytest.mark.promise("R4")]

CODEC = "--codec=topk:0.2"  # a client keeps what is not sent yet
RENAMES, SYNCS, MAKES = "rename,renameat,renameat2", "fsync,fdatasync", "mkdir,mkdirat"


@dataclass(frozen=True)
class Trouble:
    """What the disk of one end says to calls of a kind: once, or from then on until there is space again."""

    end: str  # server, client
    calls: str
    error: str
    lasting: bool = False

    def at(self, number: int) -> str:
        return f"error={self.error}:when={number}{'+' if self.lasting else ''}"

    def __str__(self) -> str:
        return f"{self.end} {self.calls.partition(',')[0]} {self.error}{' lasting' * self.lasting}"


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    happened: bool
    code: int  # of the process that was in trouble
    sha256: str


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the final model of the run, undisturbed."""
    return processes.run_to_the_end(tmp_path_factory.mktemp("sound"), (*SMALL, CODEC), (HOST,))


def run_with(folder: Path, trouble: Trouble, number: int) -> Outcome:
    """Run with an end whose disk is in trouble, start it again if it ended, and let the run end."""
    folder.mkdir()
    with processes.flock(folder) as flock:
        life = _server_life if trouble.end == "server" else _client_life
        happened, code = life(flock, trouble, number)
        assert rounds(flock) == ROUNDS
        return Outcome(happened, code, flock.sha256())


def _server_life(flock: Flock, trouble: Trouble, number: int) -> tuple[bool, int]:
    gate = flock.folder / "gate"
    server = flock.begin_server(*SMALL, CODEC, gate=gate)
    tracer = Tracer(server, gate, trouble.calls, trouble.at(number), server_files(flock.run_dir))
    with closing(tracer):  # then there is space again
        clients = [flock.client(HOST)] if _is_up_at_once(server) else []
        if not server.events(
            "start_waits"
        ):  # or strace fails the first call of every thread that tries again
            _wait_for_trouble(server, trouble)
    clients = clients or ([flock.client(HOST)] if is_up(server) else [])
    code = server.ended()
    committed = rounds(flock)
    if code:
        server = flock.begin_server(*SMALL, CODEC)
        is_up(server)  # or it says that the run is over
    clients = clients or [flock.client(HOST)]
    assert [server.ended(), clients[0].ended()] == [0, 0]
    assert rounds(flock) >= committed
    return bool(tracer.injected), code


def _is_up_at_once(server: Program) -> bool:
    """Wait until the server listens, waits for room before it does, or is dead."""
    ends = ("listening", "start_waits")
    until(
        lambda: any(map(server.events, ends)) or not server.process.is_alive() or None,
        lambda: f"the server to listen, or to wait for room: {server.text[-2000:]}",
    )
    return bool(server.events("listening"))


def _client_life(flock: Flock, trouble: Trouble, number: int) -> tuple[bool, int]:
    gate = flock.folder / "gate"
    server = flock.server(*SMALL, CODEC)
    client = flock.client(HOST, gate=gate)
    tracer = Tracer(client, gate, trouble.calls, trouble.at(number), client_files(flock))
    with closing(tracer):
        code = client.ended()
    if code:
        _come_back(flock, server)
    assert server.ended() == 0
    return bool(tracer.injected), code


def _come_back(flock: Flock, server: Program) -> None:
    """Start the client again; nobody is there any more if its last trouble came after the end of the run."""
    joined, client = len(server.events("client_joined")), flock.client(HOST)
    until(
        lambda: len(server.events("client_joined")) > joined or not server.process.is_alive() or None,
        lambda: server.text[-3000:],
    )
    assert server.ended() == 0
    if len(server.events("client_joined")) > joined:
        assert client.ended() == 0
    else:
        client.kill()


def _wait_for_trouble(server: Program, trouble: Trouble) -> None:
    """Let a lasting trouble last until the server waits for space or has ended."""
    said = ("run_paused", "refused", "start_waits") if trouble.lasting else ()
    until(
        lambda: any(map(server.events, said)) or not server.process.is_alive() or None,
        lambda: f"{trouble}: {server.text[-3000:]}",
    )


def server_files(run_dir: Path) -> Iterator[Path]:
    """What the server writes: all but its log, its sockets and the wake-ups between its threads."""
    yield from (run_dir / name for name in ("", "rounds", "spool", "journal.sqlite", "journal.sqlite-wal"))
    yield from (run_dir / f".tmp-{name}" for name in ("run.toml", "address", "control", "model.safetensors"))
    for number in range(ROUNDS + 2):
        yield from _pair(run_dir / "rounds", number, ("", "model.safetensors", "state.safetensors"))
        for folder in (run_dir / "spool" / f"{number:06d}", run_dir / "spool" / ".new"):
            yield folder
            yield from (folder / f"{index:06d}.{kind}" for index in (0, 1) for kind in ("data", "log"))


def _pair(folder: Path, number: int, names: Iterable[str]) -> Iterator[Path]:
    for place in (f"{number:06d}", f".tmp-{number:06d}"):
        yield from (folder / place / name for name in names)


def client_files(flock: Flock) -> Iterator[Path]:
    """What the client writes: all but its log and the wake-ups between its threads."""
    state = flock.folder / "clients" / HOST
    ((run_id,),) = flock.rows("SELECT value FROM meta WHERE name = 'run_id'")
    yield from (state, state / "clients", state / ".identity.toml.tmp", state / "identity.toml")
    for name in HOST.split(","):
        outbox = state / "clients" / name / "outbox"
        yield from (outbox.parent, outbox.parent / "runs", outbox, outbox / "payload", outbox / "meta")
        yield outbox / ".meta.tmp"
        run = outbox.parent / "runs" / run_id
        yield from (run, run / "candidate.safetensors", run / "spare.safetensors", run / ".epoch.tmp")
        yield from (run / f"state-{number:06d}.safetensors" for number in range(1, ROUNDS + 1))


ONCE = [
    *(Trouble("server", "pwrite64", error) for error in ("ENOSPC", "EIO", "EDQUOT")),
    *(Trouble("server", SYNCS, error) for error in ("EIO", "ENOSPC", "EDQUOT")),
    *(Trouble("server", "write", error) for error in ("ENOSPC", "EIO", "EDQUOT")),
    *(Trouble("server", "fallocate", error) for error in ("ENOSPC", "EDQUOT")),
    *(Trouble("server", RENAMES, error) for error in ("ENOSPC", "EIO")),
    *(Trouble("server", "ftruncate", error) for error in ("ENOSPC", "EIO")),
    *(Trouble("server", MAKES, error) for error in ("ENOSPC",)),
    *(Trouble("client", "pwrite64", error) for error in ("ENOSPC", "EIO", "EDQUOT")),
    *(Trouble("client", "write", error) for error in ("ENOSPC", "EIO")),
    *(Trouble("client", RENAMES, error) for error in ("ENOSPC", "EIO")),
    *(Trouble("client", MAKES, error) for error in ("ENOSPC",)),  # it cuts and removes no file in these runs
]
LASTING = [Trouble(item.end, item.calls, item.error, lasting=True) for item in ONCE if item.end == "server"]
FAST = [
    Trouble("server", "pwrite64", "ENOSPC", lasting=True),
    Trouble("server", SYNCS, "EIO"),
    Trouble("server", RENAMES, "ENOSPC"),
    Trouble("client", "pwrite64", "ENOSPC"),
    Trouble("client", RENAMES, "EIO"),
]


def check(outcome: Outcome, sound: str, trouble: Trouble) -> None:
    assert outcome.code in (0, 1, 2)
    assert outcome.sha256 == sound, f"exit code {outcome.code}"
    if outcome.happened and trouble.calls == SYNCS and trouble.error == "EIO" and trouble.end == "server":
        assert outcome.code == 1, "DESIGN rule 7"


@pytest.mark.parametrize("trouble", FAST, ids=str)
def test_a_disk_in_trouble_at_some_call_costs_no_round(
    tmp_path: Path, sound: str, trials: Trials, trouble: Trouble
) -> None:
    number = random.Random(str(trouble)).randint(2, 9)
    with trials(f"{trouble} at call {number}"):
        outcome = run_with(tmp_path / "run", trouble, number)
        assert outcome.happened
        check(outcome, sound, trouble)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("trouble", ONCE + LASTING, ids=str)
def test_a_disk_in_trouble_at_every_call_costs_no_round(
    tmp_path: Path, sound: str, trials: Trials, trouble: Trouble
) -> None:
    """Every call up to the 12th, then ever fewer of them, until one is never reached."""
    steps = itertools.chain(range(1, 13), (int(12 * 1.3**power) for power in range(1, 20)))
    for number in steps:
        with trials(f"{trouble} at call {number}"):
            outcome = run_with(tmp_path / str(number), trouble, number)
            check(outcome, sound, trouble)
        shutil.rmtree(tmp_path / str(number))
        if not outcome.happened:
            assert number > 1, f"no {trouble.calls} was made"
            return


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_log_on_a_full_disk_stops_nobody(tmp_path: Path, sound: str) -> None:
    run_dir, state_dir = tmp_path / "run", tmp_path / "state"
    server = mute("server", f"--run-dir={run_dir}", "--listen=127.0.0.1:0", *SMALL, CODEC)
    with server, ExitStack() as stack:
        stack.callback(server.kill)
        until(lambda: (run_dir / "address").exists() or None, lambda: "the server has no address")
        address = (run_dir / "address").read_text().strip()
        client = mute("client", f"--server={address}", f"--state-dir={state_dir}", f"--ids={HOST}")
        with client:
            stack.callback(client.kill)
            assert [server.wait(60), client.wait(60)] == [0, 0]
    assert Flock(tmp_path).sha256() == sound


def mute(end: str, *flags: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", f"from edgeflock.{end}.cli import main; main()", *flags]
    with Path("/dev/full").open("wb") as full:
        return subprocess.Popen(words, stderr=full)
