"""The network is cut in two between a client and the server: short is invisible, long is survived."""

from __future__ import annotations

import time

import pytest

from faults.conftest import RUN, Figure
from support.commands import spawn_client, spawn_server
from support.namespaces import SERVER_IP, cable
from support.processes import Flock, Program
from support.proxy import Proxy

DETECTED_S = 20 + 10  # keepalive time and time-out (DESIGN rule 20)
PATIENT = (*RUN, "--deadline=900")  # nobody is left behind: the bits must be the same
BACK_S = 10
BOTH = ("up", "down")


def seconds_until_back(client: Program, healed: float) -> float:
    """Wait until the client goes on with its work; return how long that took."""
    client.wait_for("update_settled", count=len(client.events("update_settled")) + 1)
    return time.monotonic() - healed


def frozen_run(flock: Flock, seconds: float) -> tuple[int, float]:
    """Freeze what lies between one client and the server; return its connections, and when it was back."""
    server = flock.server(*PATIENT)
    with Proxy(lambda: flock.address) as proxy:
        clients = [
            flock.client("c0,c1"),
            flock.client("c2", f"--server={proxy.address}", "--give-up-after=900"),
        ]
        server.wait_for("round_committed", count=10)
        proxy.part()
        time.sleep(seconds)  # the fault itself
        healed = time.monotonic()
        proxy.heal()
        back = seconds_until_back(clients[1], healed)
        assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
        return proxy.connections, back


@pytest.mark.promise("R8")
def test_a_short_partition_is_invisible(flock: Flock, undisturbed: str, figure: Figure) -> None:
    connections, back = frozen_run(flock, 5)
    figure("seconds until back", back)
    assert connections == 1
    assert flock.sha256() == undisturbed


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.promise("R8")
@pytest.mark.parametrize("seconds", [30, 120, 300])
def test_something_in_between_that_freezes_for_long_changes_no_bit(
    flock: Flock, undisturbed: str, figure: Figure, seconds: int
) -> None:
    """It goes on to acknowledge what it swallows, so only the ping of gRPC, which has 60 s, can tell."""
    _, back = frozen_run(flock, seconds)
    figure("seconds until back", back)
    assert flock.sha256() == undisturbed
    assert back <= BACK_S


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.promise("R8")
@pytest.mark.parametrize(
    ("ways", "seconds"),
    [(BOTH, 5), (BOTH, 30), (BOTH, 45), (BOTH, 300), (("up",), 5), (("up",), 45), (("down",), 45)],
)
def test_lost_packets_are_noticed_by_keepalive_and_the_client_comes_back(
    flock: Flock, undisturbed: str, figure: Figure, ways: tuple[str, ...], seconds: int
) -> None:
    with cable(packets=False) as laid:
        flags = (f"--listen={SERVER_IP}:0", "--insecure")
        server = spawn_server(flock, laid.at_server(), *PATIENT, *flags)
        near = spawn_client(flock, laid.at_server(), "c0,c1", "--insecure")
        far = spawn_client(flock, laid.at_client(), "c2", "--insecure", "--give-up-after=900")
        server.wait_for("round_committed", count=10)
        laid.part(*ways)
        began = time.monotonic()
        if seconds > DETECTED_S:
            server.wait_for("client_left", client="c2", limit_s=seconds)
            noticed = time.monotonic() - began
            figure("seconds until the server has noticed", noticed)
            assert noticed <= DETECTED_S + 5
        time.sleep(max(0.0, began + seconds - time.monotonic()))  # the fault itself
        healed = time.monotonic()
        laid.heal(*ways)
        back = seconds_until_back(far, healed)
        figure("seconds until back", back)
        assert [server.ended(), near.ended(), far.ended()] == [0, 0, 0]
    assert flock.sha256() == undisturbed
    assert back <= BACK_S
