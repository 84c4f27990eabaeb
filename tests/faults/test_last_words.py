"""Every end of a process leaves one line with its reason and an exit code that has a meaning."""

from __future__ import annotations

import signal

import pytest

from support.fault import Fault, Kind
from support.lastwords import silent
from support.operator import stop
from support.processes import Flock
from support.proxy import Proxy

pytestmark = pytest.mark.promise("R19")

RUN = ("--clients=2", "--rounds=3", "--seed=5", "--model=linear")


def test_a_completed_run_says_so_on_both_ends(flock: Flock) -> None:
    server, client = flock.server(*RUN), flock.client("c0,c1")
    assert [server.ended(), client.ended()] == [0, 0]
    for end in (server, client):
        assert end.events("ended")[-1]["reason"] == "all 3 rounds are done"


def test_a_failed_run_ends_both_ends_with_1_and_its_reason(flock: Flock) -> None:
    server, client = flock.server(*RUN, "--lr=1e38"), flock.client("c0,c1")
    assert [server.ended(), client.ended()] == [1, 1]
    reason = server.sentence().removeprefix("fl-server: error: ")
    assert "non_finite" in reason
    assert client.sentence() == f"fl-client: error: the run has failed: {reason}"


def test_a_stopped_run_ends_well(flock: Flock) -> None:
    server, client = flock.server(*RUN, "--rounds=100000"), flock.client("c0,c1")
    server.wait_for("round_committed")
    stop(flock, "enough")
    assert [server.ended(), client.ended()] == [0, 0]
    assert client.events("ended")[-1]["reason"] == "enough"


def test_a_client_that_gives_up_says_why(flock: Flock) -> None:
    server, client = flock.server(*RUN), flock.client("c0", "--give-up-after=1")
    server.wait_for("client_joined")
    server.kill()
    assert client.ended() == 1
    assert "no server was reached at" in client.sentence()


def test_the_end_of_the_terminal_is_an_orderly_one(flock: Flock) -> None:
    """It may be said twice."""
    server, client = flock.server(*RUN, "--rounds=100000"), flock.client("c0,c1")
    server.wait_for("round_committed")
    for program in (client, server):
        program.signal(signal.SIGHUP)
        program.signal(signal.SIGHUP)
    assert [server.ended(), client.ended()] == [0, 0]
    assert server.events("parked")[-1]["reason"] == "asked by SIGHUP"
    assert client.events("ended")[-1]["reason"] == "asked by SIGHUP"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_server_at_once_and_says_so(flock: Flock, number: signal.Signals) -> None:
    """An upload that does not move keeps the server from going at once."""
    server = flock.server(*RUN)
    script = ((Fault(Kind.FREEZE, "up", 2500),),)
    with Proxy(lambda: flock.address, script) as proxy:
        flock.client("c0,c1", f"--server={proxy.address}")
        server.wait_for("client_joined")
        server.signal(number)
        server.wait_for("draining")
        server.signal(number)
        assert server.ended() in (0, 128 + number)  # it may have gone before


def test_silence_is_noticed() -> None:
    assert silent("fl-server", '{"event": "listening"}\n', 0)
    assert silent("fl-server", "", 1)
    assert silent("fl-server", '{"event": "ended", "reason": "all is done"}\n', -15)
    assert not silent("fl-server", '{"event": "ended", "reason": "all is done"}\n', 0)
    assert not silent("fl-server", "", -9)
