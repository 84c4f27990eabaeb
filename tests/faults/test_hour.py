"""The server is away for an hour; whoever stands behind its address meanwhile, its clients come back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgeflock.client.deciding.backoff import MOST_S
from faults.conftest import RUN, Figure
from support import processes
from support.operator import pause
from support.processes import Flock, Program

AWAY_S = float(os.environ.get("AWAY_S", "3600"))  # less to try the test itself
IDS = ("c0", "c1", "c2")
FULL = ("--clients=3", "--min-updates=3", "--rounds=100000", "--steps=0", "--eval-every=0", "--model=linear")


def lonely(server: int, test: int) -> str:
    """Return an address of this machine at which nobody is given a port by chance for an hour."""
    return f"--listen=127.{os.getpid() % 200 + 20}.{test}.{server}:0"


@contextmanager
def strangers(folder: Path, address: str, ids: tuple[str, ...]) -> Iterator[Program]:
    """Another run behind the address, whose clients have all its seats."""
    folder.mkdir()
    with processes.flock(folder) as others:
        server = others.server(*FULL, f"--listen={address}")
        others.clients(*ids)
        server.wait_for("round_committed")
        pause(others)  # they are only to be there
        server.wait_for("run_paused")
        yield server


def wait_s(seconds: float, alive: list[Program]) -> None:
    """The hour itself: nothing is to happen in it but that the clients try again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert all(program.process.is_alive() for program in alive), [program.sentence() for program in alive]
        time.sleep(min(5.0, max(0.0, end - time.monotonic())))


def away(flock: Flock, figure: Figure, listen: str, hour: Callable[[list[Program]], None]) -> str:
    """Kill the server in mid-round, let the hour go by, start it again; return the hash of the model."""
    server = flock.server(*RUN, listen)
    clients = [flock.client(name, "--give-up-after=12h") for name in IDS]
    server.wait_for("round_committed", count=3)
    clients[-1].signal(signal.SIGSTOP)  # no round can close now
    server.kill()
    hour(clients)
    server = flock.server(listen)  # the port is the one of before
    began = time.monotonic()
    server.wait_for("round_committed")
    figure("seconds until the next round after an hour away", back_s := time.monotonic() - began)
    assert back_s < 2 * MOST_S  # each comes at its next attempt, at most MOST_S apart
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0, 0]
    return flock.sha256()


@pytest.mark.hour
@pytest.mark.timeout(AWAY_S + 300)
@pytest.mark.promise("R5", "R8")
def test_clients_come_back_to_a_server_that_was_away_for_an_hour(
    flock: Flock, figure: Figure, undisturbed: str
) -> None:
    def hour(clients: list[Program]) -> None:
        clients[-1].signal(signal.SIGCONT)
        wait_s(AWAY_S, clients)

    assert away(flock, figure, lonely(1, 1), hour) == undisturbed
    assert flock.sent_again() == 0


@pytest.mark.hour
@pytest.mark.timeout(AWAY_S + 300)
@pytest.mark.promise("R5", "R8")
@pytest.mark.parametrize(
    ("ids", "sentence"),
    [(IDS, "another living client uses the id"), (("x0", "x1", "x2"), "all 3 seats of this run are taken")],
    ids=["namesakes", "others"],
)
def test_clients_come_back_although_strangers_were_behind_the_address(
    flock: Flock, figure: Figure, undisturbed: str, ids: tuple[str, ...], sentence: str
) -> None:
    """A port that was given to another run meanwhile, which refuses them."""

    def hour(clients: list[Program]) -> None:
        for client in clients:
            client.signal(signal.SIGSTOP)  # the strangers are to be first
        with strangers(flock.folder / "strangers", flock.address, ids) as other:
            for client in clients:
                client.signal(signal.SIGCONT)
            wait_s(AWAY_S * 0.8, clients)
            assert all(sentence in client.text for client in clients)
            assert other.process.is_alive()
        wait_s(AWAY_S * 0.2, clients)

    assert away(flock, figure, lonely(1, 2 if ids == IDS else 3), hour) == undisturbed
