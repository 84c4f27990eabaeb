"""The network is cut in two between a client and the server: short is invisible, long is survived."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest

from faults.conftest import RUN, Figure
from support import processes
from support.commands import spawn_client, spawn_server
from support.fault import Fault, Kind
from support.namespaces import SERVER_IP, cable
from support.processes import Flock, Program
from support.promises import Trials
from support.proxy import Proxy

DETECTED_S = 20 + 10  # keepalive time and time-out (DESIGN rule 20)
PING_S = 60  # that gRPC gives the answer to a ping while something still comes: it may be behind much data
UNNOTICED_S = 5  # what is on its way unacknowledged may be so for 10 s
PATIENT = (*RUN, "--deadline=900", "--grace=900")  # nobody is left behind: the bits must be the same
BACK_S = 10
WAYS = (("up", "down"), ("up",), ("down",))
STAYS = "--give-up-after=900"


def seconds_until_back(client: Program, healed: float) -> float:
    """Wait until the client goes on with its work; return how long that took."""
    client.wait_for("update_settled", count=len(client.events("update_settled")) + 1)
    return time.monotonic() - healed


# --------------------------------------------------------------- what lies in between goes silent


def frozen_run(flock: Flock, seconds: float) -> tuple[int, float]:
    """Freeze what lies between one client and the server; return its connections, and when it was back."""
    server = flock.server(*PATIENT)
    with Proxy(lambda: flock.address) as proxy:
        clients = [flock.client("c0,c1"), flock.client("c2", f"--server={proxy.address}", STAYS)]
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
    connections, back = frozen_run(flock, UNNOTICED_S)
    figure("seconds until back", back)
    assert connections == 1
    assert flock.sha256() == undisturbed


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.promise("R8")
@pytest.mark.parametrize("seconds", [30, 300])
def test_something_in_between_that_freezes_for_long_changes_no_bit(
    flock: Flock, undisturbed: str, figure: Figure, seconds: int
) -> None:
    _, back = frozen_run(flock, seconds)
    figure("seconds until back", back)
    assert flock.sha256() == undisturbed
    assert back <= BACK_S


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.promise("R8")
@pytest.mark.parametrize("way", ["up", "down"])
def test_something_in_between_that_swallows_one_way_is_noticed(
    flock: Flock, undisturbed: str, figure: Figure, way: str
) -> None:
    """It acknowledges what vanishes in it, and the other way goes on: only an answer to a ping can tell."""
    server = flock.server(*PATIENT)
    with Proxy(lambda: flock.address, ((Fault(Kind.BLACKHOLE, way, 30_000),),)) as proxy:
        clients = [flock.client("c0,c1"), flock.client("c2", f"--server={proxy.address}", STAYS)]
        proxy.wait_for(way, 30_000)
        began = time.monotonic()
        server.wait_for("client_joined", client="c2", count=2, limit_s=120)
        figure("seconds until a new connection", took := time.monotonic() - began)
        assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
    assert took <= DETECTED_S + PING_S
    assert flock.sha256() == undisturbed


# --------------------------------------------------------------------------- packets are dropped


class Line:
    """A run over a cable that will be cut in some ways."""

    def __init__(self, folder: Path, stack: ExitStack, ways: tuple[str, ...]) -> None:
        folder.mkdir()
        self.ways, self._laid = ways, stack.enter_context(cable(packets=False))
        self.flock = stack.enter_context(processes.flock(folder))
        open_to_all = (f"--listen={SERVER_IP}:0", "--insecure")
        self.server = spawn_server(self.flock, self._laid.at_server(), *PATIENT, *open_to_all)
        self._near = spawn_client(self.flock, self._laid.at_server(), "c0,c1", "--insecure")
        self.far = spawn_client(self.flock, self._laid.at_client(), "c2", "--insecure", STAYS)
        self.server.wait_for("round_committed", count=10)
        self._laid.part(*ways)
        self.parted = time.monotonic()

    def noticed_s(self) -> float:
        left = self.server.wait_for("client_left", client="c2", limit_s=DETECTED_S + 5)
        ago_s = time.time() - datetime.fromisoformat(left["timestamp"]).timestamp()
        return time.monotonic() - ago_s - self.parted

    def heal_after(self, seconds: float) -> float:
        """Heal it when that time is over; return how long the client then took to work again."""
        time.sleep(max(0.0, self.parted + seconds - time.monotonic()))  # the fault itself
        healed = time.monotonic()
        self._laid.heal(*self.ways)
        return seconds_until_back(self.far, healed)

    def sha256(self) -> str:
        assert [self.server.ended(), self._near.ended(), self.far.ended()] == [0, 0, 0]
        return self.flock.sha256()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.promise("R8")
@pytest.mark.parametrize(
    ("seconds", "together"), [*((seconds, (ways,)) for seconds in (5, 30) for ways in WAYS), (300, WAYS)]
)
def test_lost_packets_are_noticed_by_keepalive_and_the_client_comes_back(
    tmp_path: Path,
    undisturbed: str,
    figure: Figure,
    trials: Trials,
    seconds: int,
    together: tuple[tuple[str, ...], ...],
) -> None:
    with ExitStack() as stack:
        lines = [Line(tmp_path / "-".join(ways), stack, ways) for ways in together]
        if seconds >= DETECTED_S:
            noticed = [line.noticed_s() for line in lines]
            figure("seconds until the server has noticed", max(noticed))
            assert max(noticed) <= DETECTED_S + 1
        back = [line.heal_after(seconds) for line in lines]
        figure("seconds until back", max(back))
        assert max(back) <= BACK_S
        for line in lines:
            with trials(f"{seconds} s, {' and '.join(line.ways)}"):
                assert line.sha256() == undisturbed
                assert seconds > UNNOTICED_S or len(line.server.events("client_joined", client="c2")) == 1


@pytest.mark.promise("R6", "R8")
def test_a_narrow_cable_that_loses_packets_changes_no_bit(flock: Flock, undisturbed: str) -> None:
    with cable(packets=True) as laid:
        laid.slow("2mbit")
        laid.lose(3, "up", "down")
        server = spawn_server(flock, laid.at_server(), *RUN, f"--listen={SERVER_IP}:0", "--insecure")
        near = spawn_client(flock, laid.at_server(), "c0,c1", "--insecure")
        far = spawn_client(flock, laid.at_client(), "c2", "--insecure")
        assert [server.ended(100), near.ended(), far.ended()] == [0, 0, 0]
    assert flock.sha256() == undisturbed
