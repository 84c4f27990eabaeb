"""Hundreds of clients lose their server at once: all come back, spread over the window it announced."""

from __future__ import annotations

import signal
import time

import psutil
import pytest

from edgeflock.client.deciding.backoff import MOST_S
from edgeflock.server.service.views import spread_ms
from faults.conftest import Figure
from support.processes import Flock, Program, until
from support.proxy import Proxy

HOSTS = 4
LONG = [
    (200, signal.SIGTERM, 0.0),
    (2000, signal.SIGTERM, 0.0),
    *((clients, signal.SIGKILL, away_s) for clients in (40, 200) for away_s in (0.0, 20.0)),
]
BUSY_S = 5.0  # so long may the server be busy with their return


def flags(clients: int) -> tuple[str, ...]:
    """A run that goes on for as long as one likes, with work that is none."""
    work = ("--model=linear", "--steps=0", "--eval-every=0")
    return (f"--clients={clients}", "--rounds=100000", "--cohort=2", "--deadline=60", *work)


def cpu_share(server: Program, seconds: float) -> float:
    """Return how much of one core the process needs in the next seconds."""
    return psutil.Process(server.process.pid).cpu_percent(seconds) / 100


def joins(flock: Flock, after: int) -> list[float]:
    """Return when clients joined, in seconds since 1970, behind an event."""
    query = f"SELECT at FROM events WHERE name = 'client_joined' AND cursor > {after} ORDER BY cursor"
    return [at for (at,) in flock.rows(query)]


def newest(flock: Flock) -> int:
    return int(flock.rows("SELECT max(cursor) FROM events")[0][0])


def all_back(flock: Flock, after: int, clients: int) -> list[float]:
    """Wait until so many have joined behind that event."""
    until(
        lambda: len(joins(flock, after)) >= clients or None,
        lambda: f"{len(joins(flock, after))} of {clients} have joined",
        limit_s=60 + clients / 20,
    )
    return joins(flock, after)


def crowd(back: list[float], clients: int, window_s: float) -> float:
    """Return the share of clients that came within any fifth of the window."""
    fifth = window_s / 5
    return max(sum(at <= other < at + fifth for other in back) for at in back) / clients


@pytest.mark.alone
@pytest.mark.promise("R16")
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("clients", "way", "away_s"),
    [
        (40, signal.SIGTERM, 0.0),
        *(pytest.param(*case, marks=pytest.mark.long) for case in LONG),
    ],
)
def test_a_herd_comes_back_spread_out(
    flock: Flock, figure: Figure, clients: int, way: signal.Signals, away_s: float
) -> None:
    """Over the window that a server which goes announces; over that of the back-off after a long absence."""
    server = flock.server(*flags(clients))
    for host in range(HOSTS):
        many = (
            f"--id=h{host}",
            f"--host-clients={clients // HOSTS}",
            f"--state-dir={flock.folder / f'h{host}'}",
        )
        flock.start("fl-client", f"--server={flock.address}", *many, "--give-up-after=60")
    server.wait_for("round_committed", count=2, limit_s=90 + clients / 20)
    last = newest(flock)
    server.signal(way)
    server.process.join(20)
    time.sleep(away_s)  # the fault itself
    server = flock.server(*flags(clients))
    began = time.time()
    back = all_back(flock, last, clients)
    figure(f"seconds until {clients} were back", back[-1] - began)
    announced = way == signal.SIGTERM
    if announced or away_s:  # a server that is killed and back at once finds them at their first attempts
        window_s = spread_ms(clients) / 1000 if announced else MOST_S
        figure(
            f"share of {clients} in the busiest fifth of the window",
            thickest := crowd(back, clients, window_s),
        )
        if clients >= 200:  # the window of fewer is over before a server is up on a busy machine: a figure
            assert thickest <= 0.6
    time.sleep(max(0.0, began + BUSY_S - time.time()))
    figure(f"share of a core 5 s after the return of {clients}", share := cpu_share(server, 2.0))
    assert back[-1] - began <= spread_ms(clients) / 1000 + MOST_S
    assert share < 1


@pytest.mark.promise("R5")
def test_a_client_that_was_connected_for_longer_than_it_waits_comes_back(flock: Flock) -> None:
    """It gives up when no server was there for so long, not when the server had no news for so long."""
    server = flock.server("--clients=2", "--model=linear")
    with Proxy(lambda: flock.address) as proxy:
        flock.client("c0", f"--server={proxy.address}", "--give-up-after=1")
        server.wait_for("client_joined")
        time.sleep(2)  # without news
        proxy.reset_all()
        server.wait_for("client_joined", count=2)
