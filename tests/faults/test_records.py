"""What a run is decided from is written down first: no lock, kill or failing test changes its course."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeflock.server.journal.schema import connect
from edgeflock.v1 import aggregator_pb2
from support import operator, processes
from support.processes import Flock, Program, until

SMALL = ("--clients=2", "--model=linear", "--seed=3")
SCAFFOLD = (*SMALL, "--method=scaffold", "--rounds=3")  # its steps are weighted by every n_i of the roster
TARGET = (*SMALL, "--rounds=60", "--target=accuracy=0.8")
PAUSED = "paused by the operator"

# A model of somebody's own, which fails for as long as there is a file that says so.
OWN = """
import traceback
from pathlib import Path
from torch import nn

HERE = Path(__file__).parent

class Own(nn.Sequential):
    def forward(self, x):
        tested = any("evaluator" in frame.filename for frame in traceback.extract_stack())
        if (HERE / "no test").exists() and tested or (HERE / "no training").exists() and self.training:
            raise RuntimeError("no memory is left")
        return super().forward(x)

def factory(shape, classes):
    return Own(nn.Flatten(), nn.Linear(64, classes))
"""


@contextlib.contextmanager
def locked(flock: Flock) -> Iterator[None]:
    """Hold the journal's write lock, as a shell or a backup may."""
    with contextlib.closing(sqlite3.connect(flock.run_dir / "journal.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def ended(*programs: Program) -> list[int]:
    return [program.ended() for program in programs]


def paused(server: Program, reason: str) -> None:
    """Wait until the server has said that the run pauses for that reason."""

    def look() -> bool | None:
        return any(reason in str(event["reason"]) for event in server.events("run_paused")) or None

    until(look, lambda: f"{reason}: {server.text[-3000:]}")


@pytest.mark.promise("R4")
def test_a_journal_that_is_locked_while_clients_get_ready_loses_no_sample_count(
    flock: Flock, tmp_path: Path
) -> None:
    calm = processes.run_to_the_end(_folder(tmp_path / "calm"), SCAFFOLD, ("c0", "c1"))
    server = flock.server(*SCAFFOLD)
    server.kill()
    with contextlib.closing(
        connect(flock.run_dir / "journal.sqlite")
    ) as journal:  # nothing but ready is left
        journal.execute("INSERT INTO seats (seat, client_id) VALUES (0, 'c0'), (1, 'c1')")
    with locked(flock):
        server = flock.begin_server()
        server.wait_for("start_waits")
    server.wait_for("listening")
    with locked(flock):
        clients = flock.clients("c0", "c1")
        paused(server, "another program has locked the journal")
    assert ended(server, *clients) == [0, 0, 0]
    assert flock.sha256() == calm
    assert [len(samples) > 12 for (samples,) in flock.rows("SELECT samples FROM rosters")] == [True]


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.promise("R4")
def test_a_journal_that_is_locked_passes_no_target_over(flock: Flock, tmp_path: Path) -> None:
    calm = processes.run_to_the_end(_folder(tmp_path / "calm"), TARGET, ("c0", "c1"))
    server = flock.server(*TARGET)
    clients = flock.clients("c0", "c1")
    server.wait_for("round_committed", count=2)
    with locked(flock):
        paused(server, "another program has locked the journal")
    assert ended(server, *clients) == [0, 0, 0]
    assert flock.sha256() == calm
    tested = [round for (round,) in flock.rows("SELECT round FROM evaluations ORDER BY round")]
    assert tested == list(range(1, len(tested) + 1))
    assert flock.rows("SELECT max(round) FROM rounds WHERE committed = 1") == [(len(tested),)]


@pytest.mark.promise("R3")
def test_a_paused_run_comes_back_paused(flock: Flock, tmp_path: Path) -> None:
    """Killed or asked to go: whoever copies its directory meanwhile relies on that."""
    rounds = (*SMALL, "--rounds=30")
    calm = processes.run_to_the_end(_folder(tmp_path / "calm"), rounds, ("c0", "c1"))
    server, clients = flock.server(*rounds), flock.clients("c0", "c1")
    server.wait_for("round_committed")
    operator.pause(flock)
    paused(server, PAUSED)
    for number in (signal.SIGKILL, signal.SIGTERM):
        committed = flock.rows("SELECT max(round) FROM rounds WHERE committed = 1")
        server.signal(number)
        server.process.join(processes.LIMIT_S)
        server = flock.server()
        paused(server, PAUSED)
        until(lambda: _online(flock) or None, lambda: str(operator.status(flock)))
        found = operator.status(flock)
        assert (found.state, found.reason) == (aggregator_pb2.RUN_STATE_PAUSED, PAUSED)
        assert flock.rows("SELECT max(round) FROM rounds WHERE committed = 1") == committed
    operator.resume(flock)
    assert ended(server, *clients) == [0, 0, 0]
    assert flock.sha256() == calm


def _online(flock: Flock) -> bool:
    return all(member.online and member.ready for member in operator.status(flock).members)


@pytest.mark.promise("R3")
def test_a_stop_that_was_answered_ends_the_run_whatever_becomes_of_the_server(flock: Flock) -> None:
    server, clients = flock.server(*SMALL, "--rounds=500", "--eval-every=400"), flock.clients("c0", "c1")
    server.wait_for("round_committed")
    operator.stop(flock, "enough")
    server.kill()
    if not server.events("ended"):
        server = flock.server()
    assert ended(server, *clients) == [0, 0, 0]
    (said,) = flock.announced("run_ended")
    assert (said["kind"], said["reason"]) == ("stopped", "enough")
    last = flock.rows("SELECT max(round) FROM rounds WHERE committed = 1")
    assert flock.rows("SELECT round FROM evaluations") == last


@pytest.mark.promise("R19")
@pytest.mark.parametrize("flags", [(), ("--target=accuracy=0.99",), ("--method=pfedmo",)], ids=str)
def test_a_model_that_cannot_be_tested_is_said(flock: Flock, flags: tuple[str, ...]) -> None:
    server = server_of_own(flock, "--rounds=3", *flags)
    (flock.folder / "here" / "no test").touch()
    clients = [client_of_own(flock, name) for name in ("c0", "c1")]
    target = "--target=accuracy=0.99" in flags
    assert ended(server, *clients) == ([1, 1, 1] if target else [0, 0, 0])
    said = flock.announced("evaluation_failed")
    reason = "the test of the model failed: no memory is left (own.py:12)"
    failed = [one["round"] for one in said if one["reason"] == reason]
    others = [one["round"] for one in said if one["reason"] == f"representation, personal: {reason}"]
    rounds = [1, 2, 3, 4] if "--method=pfedmo" in flags else [1, 2, 3]  # with the last one, of everybody
    assert failed == (rounds[:1] if target else rounds)
    assert others == (rounds if "--method=pfedmo" in flags else [])
    assert len(said) == len(failed) + len(others)
    assert flock.rows("SELECT round FROM evaluations WHERE model NOT LIKE 'client%'") == []


def server_of_own(flock: Flock, *flags: str) -> Program:
    """Start a server, and lay the model down for it and for clients, a file each."""
    for folder in ("here", "there"):
        _folder(flock.folder / folder).joinpath("own.py").write_text(OWN)
    words = (f"--run-dir={flock.run_dir}", "--listen=127.0.0.1:0", "--clients=2", "--model=own:factory")
    server = flock.start("fl-server", *words, *flags, environ={"PWD": str(flock.folder / "here")})
    server.wait_for("listening")
    return server


def client_of_own(flock: Flock, name: str) -> Program:
    place = (f"--server={flock.address}", f"--state-dir={flock.folder / name}", "--model=own:factory")
    return flock.start("fl-client", f"--ids={name}", *place, environ={"PWD": str(flock.folder / "there")})


@pytest.mark.promise("R4")
@pytest.mark.parametrize("by", ["resume", "restart"])
def test_a_task_that_was_refused_is_offered_again(flock: Flock, by: str) -> None:
    """By an operator's resume, or when the client is started again; no deadline is waited for in between."""
    server = server_of_own(flock, "--rounds=2", "--deadline=3600", "--min-updates=2")
    (flock.folder / "there" / "no training").touch()
    clients = [client_of_own(flock, name) for name in ("c0", "c1")]
    paused(server, "round 1 has 0 of at least")
    (flock.folder / "there" / "no training").unlink()
    if by == "resume":
        operator.resume(flock)
    else:
        for client in clients:
            client.kill()
        clients = [client_of_own(flock, name) for name in ("c0", "c1")]
    assert ended(server, *clients) == [0, 0, 0]
    assert flock.announced("round_extended") == []
    assert {verdict for (verdict,) in flock.rows("SELECT verdict FROM outcomes")} == {"counted"}
