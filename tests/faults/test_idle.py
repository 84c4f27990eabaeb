"""A client that waits for a long time keeps its one connection, and neither end needs more and more."""

from __future__ import annotations

import time

import psutil
import pytest

from faults.conftest import Figure
from support.processes import Flock, Program

IDLE_S = 900
SETTLED_S = 60  # after which nothing new should be needed
MIB = 1 << 20


def needs(program: Program) -> tuple[float, int]:
    """Return the process's memory in MiB, and how many descriptors and threads it has."""
    process = psutil.Process(program.process.pid)
    return process.memory_info().rss / MIB, process.num_fds() + process.num_threads()


@pytest.mark.long
@pytest.mark.timeout(1100)
@pytest.mark.promise("R8", "R11")
def test_an_idle_quarter_of_an_hour_ends_in_nothing(flock: Flock, figure: Figure) -> None:
    """Keepalive pings without data: no GOAWAY too_many_pings, no new session, nothing that grows."""
    server = flock.server("--clients=2", "--rounds=2")
    first = flock.client("c0")
    server.wait_for("client_joined", client="c0")
    time.sleep(SETTLED_S)
    before = [needs(program) for program in (server, first)]
    time.sleep(IDLE_S - SETTLED_S)  # nothing is to happen in this time
    for (mib, handles), (mib_then, handles_then) in zip(map(needs, (server, first)), before, strict=True):
        figure("idle: more MiB", mib - mib_then)
        assert mib - mib_then < 1
        assert handles <= handles_then
    second = flock.client("c1")
    assert [server.ended(), first.ended(), second.ended()] == [0, 0, 0]
    assert not first.events("server_not_reached")
    assert len(server.events("client_joined", client="c0")) == 1
    assert "goaway" not in first.text.lower()
