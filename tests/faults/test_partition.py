"""The network is cut in two between a client and the server: short is invisible, long is survived."""

from __future__ import annotations

import time

import pytest

from faults.conftest import RUN, Figure
from support.processes import Flock
from support.proxy import Proxy

DETECTED_S = 20 + 10  # keepalive time and time-out (DESIGN rule 20)


def parted_run(flock: Flock, seconds: float) -> tuple[int, float]:
    """Cut one client off in mid-run; return its connections, and how long after the healing it was back."""
    server = flock.server(*RUN, "--deadline=900")  # nobody is left behind: the bits must be the same
    with Proxy(lambda: flock.address) as proxy:
        clients = [
            flock.client("c0,c1"),
            flock.client("c2", f"--server={proxy.address}", "--give-up-after=900"),
        ]
        server.wait_for("round_committed", count=10)
        proxy.part()
        time.sleep(seconds)  # the fault itself
        proxy.heal()
        healed, settled = time.monotonic(), len(clients[1].events("update_settled"))
        clients[1].wait_for("update_settled", count=settled + 1)
        back = time.monotonic() - healed
        assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
        return proxy.connections, back


@pytest.mark.promise("R8")
def test_a_short_partition_is_invisible(flock: Flock, undisturbed: str, figure: Figure) -> None:
    connections, back = parted_run(flock, 5)
    figure("seconds until back after 5 s", back)
    assert connections == 1
    assert flock.sha256() == undisturbed


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.promise("R8")
@pytest.mark.parametrize("seconds", [30, 45, 120, 300])
def test_a_long_partition_ends_in_a_new_connection_and_the_same_bits(
    flock: Flock, undisturbed: str, figure: Figure, seconds: int
) -> None:
    connections, back = parted_run(flock, seconds)
    figure(f"seconds until back after {seconds} s", back)
    assert connections > 1 or seconds <= DETECTED_S
    assert flock.sha256() == undisturbed
    assert back <= 10
