"""A client that waits for a long time keeps its one connection."""

from __future__ import annotations

import time

import pytest

from support.processes import Flock


@pytest.mark.long
@pytest.mark.timeout(1000)
@pytest.mark.promise("R8")
@pytest.mark.parametrize("seconds", [75, 900])
def test_a_client_that_waits_for_the_roster_is_not_sent_away(flock: Flock, seconds: int) -> None:
    """Keepalive pings without data for more than a minute: no GOAWAY too_many_pings, no new session."""
    server = flock.server("--clients=2", "--rounds=2")
    first = flock.client("c0")
    server.wait_for("client_joined", client="c0")
    time.sleep(seconds)  # nothing is to happen in this time
    second = flock.client("c1")
    assert [server.ended(), first.ended(), second.ended()] == [0, 0, 0]
    assert not first.events("server_not_reached")
    assert len(server.events("client_joined", client="c0")) == 1
    assert "goaway" not in first.text.lower()
