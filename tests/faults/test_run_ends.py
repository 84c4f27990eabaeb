"""The very end of a run, and who comes to its directory then: all hear it, and nothing is left."""

from __future__ import annotations

import fcntl
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from edgeflock.server.files.run_dir import CONTROL, CONTROL_SOCKET, JOURNAL, LOCK
from edgeflock.server.journal.schema import connect
from support import processes
from support.operator import stop
from support.processes import Flock
from support.proxy import Proxy

RUN = ("--clients=2", "--rounds=3", "--seed=5", "--model=linear")


@pytest.fixture
def over(flock: Flock) -> Flock:
    """A run that is over, as a kill leaves it that comes before its last word and its clearing."""
    server, client = flock.server(*RUN), flock.client("c0,c1")
    assert [server.ended(), client.ended()] == [0, 0]
    (flock.run_dir / "spool" / "000003").mkdir(parents=True)
    (flock.run_dir / CONTROL).write_text("127.0.0.1:1\n")
    change(flock, "DELETE FROM meta WHERE name = 'farewell'")
    return flock


def change(flock: Flock, statement: str) -> None:
    with closing(connect(flock.run_dir / JOURNAL)) as connection:
        connection.execute(statement)


def left(flock: Flock) -> set[str]:
    """Return what only a run needs that goes on."""
    return {name for name in ("spool", CONTROL, CONTROL_SOCKET) if (flock.run_dir / name).exists()}


@pytest.mark.promise("R1")
def test_a_server_killed_after_all_have_heard_waits_for_nobody_and_clears(over: Flock) -> None:
    (over.run_dir / CONTROL_SOCKET).touch()
    server = over.begin_server("--linger=600")
    assert server.ended() == 0
    assert server.events("run_is_over", reason="all 3 rounds are done")
    assert (server.events("listening"), left(over)) == ([], set())


@pytest.mark.promise("R1")
def test_a_server_killed_before_all_have_heard_waits_for_the_rest_alone(over: Flock) -> None:
    change(over, "DELETE FROM meta WHERE name = 'parted 1'")
    server = over.server("--linger=600")
    client = over.client("c1")
    assert [server.ended(), client.ended()] == [0, 0]
    assert left(over) == set()


@pytest.mark.long
@pytest.mark.promise("R8")
def test_a_network_that_is_away_as_the_run_ends_leaves_nobody_behind(flock: Flock) -> None:
    server = flock.server(*RUN, "--linger=60", "--rounds=100000")
    with Proxy(lambda: flock.address) as proxy:
        client = flock.client("c0,c1", f"--server={proxy.address}")
        server.wait_for("round_committed")
        proxy.part()
        stop(flock, "enough")
        server.wait_for("run_ended")
        time.sleep(8)  # the outage, longer than any patience but --linger
        proxy.reset_all()  # what had been on its way is lost
        proxy.heal()
        assert [server.ended(), client.ended()] == [0, 0]


@pytest.mark.promise("R19")
def test_a_directory_that_another_server_holds_is_refused_before_it_is_looked_at(flock: Flock) -> None:
    """The other may be in the midst of making its journal."""
    flock.run_dir.mkdir()
    with (
        (flock.run_dir / LOCK).open("w") as lock,
        closing(sqlite3.connect(flock.run_dir / JOURNAL, isolation_level=None)) as journal,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        journal.execute("BEGIN EXCLUSIVE")
        before = files(flock.run_dir)
        server = flock.begin_server(*RUN)
        assert server.ended(processes.LIMIT_S) == 2
        assert "is in use by another fl-server" in server.sentence()
        assert files(flock.run_dir) == before


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
