"""One client on a very slow line: the others' work costs them no more, and rounds end at their deadline."""

from __future__ import annotations

import signal
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import pytest

from faults.conftest import Figure
from support.commands import spawn_client, spawn_server
from support.fault import Fault, Kind, Script
from support.namespaces import SERVER_IP, Cable, cable
from support.operator import pause, resume
from support.processes import Flock, Program, until
from support.proxy import Proxy

KBIT = 125  # bytes per second
JOINED = 8_000  # bytes up: more than a client says before it delivers
LINES = 100  # connections that are all slow

LANES: dict[str, Script] = {
    "256 kbit/s": ((Fault(Kind.RATE, "up", 0, 256 * KBIT), Fault(Kind.RATE, "down", 0, 256 * KBIT)),) * LINES,
    "1 byte/s up": ((Fault(Kind.RATE, "up", JOINED, 1.0),),) * LINES,
}


@pytest.mark.promise("R9")
@pytest.mark.parametrize("lane", LANES)
def test_a_slow_client_holds_no_round_beyond_its_deadline(flock: Flock, figure: Figure, lane: str) -> None:
    server = flock.server(
        *("--clients=4", "--min-updates=3", "--deadline=1", "--rounds=5", "--seed=3"),
        *("--steps=0", "--eval-every=0", "--model=mlp", "--model-arg=hidden=[256,64]"),
    )
    with Proxy(lambda: flock.address, LANES[lane]) as proxy:
        flock.clients("c0", "c1", "c2")
        flock.client("c3", f"--server={proxy.address}")
        server.wait_for("round_committed", count=5)
    ((longest,),) = flock.rows("SELECT max(value) FROM round_costs WHERE name = 'open_s'")
    figure("seconds beyond the deadline", over := longest - 1)
    assert over <= 1
    counted = flock.rows("SELECT count(*) FROM outcomes WHERE verdict = 'counted' AND seat < 3")
    assert counted == [(15,)]


# ------------------------------------------------------------------- what it costs the others

PAIRS = 20
WORK = (
    *("--clients=4", "--cohort=3", "--over-select=1", "--deadline=60", "--rounds=1000", "--seed=3"),
    *("--steps=0", "--eval-every=0", "--model=mlp", "--model-arg=hidden=[4000,2730]"),
)


class Slow(Protocol):
    """The slow client of a bench."""

    def busy(self) -> None:
        """Let it take part in the open round; return when it is in the midst of its slow transfer."""

    def silent(self) -> None:
        """Let nothing more come from it."""


class Trickle:
    """It fetches at once; its update comes as one byte a second."""

    def __init__(self, client: Program, proxy: Proxy) -> None:
        self._client, self._proxy = client, proxy

    def busy(self) -> None:
        before = self._proxy.passed["up"]
        self._client.signal(signal.SIGCONT)
        self._proxy.wait_for("up", before + JOINED + 3)

    def silent(self) -> None:
        self._client.signal(signal.SIGSTOP)
        self._proxy.reset_all()  # what is still in the proxy would come, too


class Narrow:
    """It fetches and delivers at 256 kbit/s."""

    def __init__(self, laid: Cable) -> None:
        self._laid = laid

    def busy(self) -> None:
        self._laid.heal("up", "down")
        before = self._laid.counted()["down"]
        until(lambda: self._laid.counted()["down"] > before + 100_000 or None, lambda: "the slow client")

    def silent(self) -> None:
        self._laid.part("up", "down")


class Bench:
    """Three prompt clients, and a slow one that is there or not, round by round."""

    def __init__(self, flock: Flock, server: Program, prompt: list[Program], slow: Slow) -> None:
        self._flock, self._server, self._prompt, self._slow = flock, server, prompt, slow
        server.wait_for("round_committed", count=2)  # a first one, in which everything is new
        pause(flock)
        server.wait_for("run_paused")
        self._slow.silent()

    def round(self, *, beside: bool) -> int:
        """Hold a round beside the slow transfer, or after that has been broken off; return its number."""
        opened, paused = (len(self._server.events(name)) for name in ("round_opened", "run_paused"))
        self._signal(signal.SIGSTOP)
        resume(self._flock)
        number = int(self._server.wait_for("round_opened", count=opened + 1)["round"])
        pause(self._flock)
        self._slow.busy()
        if not beside:
            self._slow.silent()
        self._signal(signal.SIGCONT)
        self._server.wait_for("run_paused", count=paused + 1)
        if beside:
            self._slow.silent()
        return number

    def _signal(self, number: signal.Signals) -> None:
        for client in self._prompt:
            client.signal(number)

    def costs(self, number: int) -> tuple[float, float]:
        """Return how long a prompt client fetched and delivered in a round, and the server's CPU seconds.

        They are known once another round was held.
        """
        prompt = "SELECT fetch_s + deliver_s FROM costs JOIN seats USING (seat) WHERE client_id <> 'c3'"
        server = "SELECT value FROM round_costs WHERE name = 'server_cpu_s'"
        work = [seconds for (seconds,) in self._flock.rows(f"{prompt} AND round = {number}")]
        ((cpu_s,),) = self._flock.rows(f"{server} AND round = {number}")
        return float(statistics.median(work)), float(cpu_s)


@contextmanager
def trickling(flock: Flock) -> Iterator[Bench]:
    server = flock.server(*WORK)
    with Proxy(lambda: flock.address, LANES["1 byte/s up"]) as proxy:
        prompt = flock.clients("c0", "c1", "c2")
        slow = flock.client("c3", f"--server={proxy.address}", "--give-up-after=900")
        yield Bench(flock, server, prompt, Trickle(slow, proxy))


@contextmanager
def narrow(flock: Flock) -> Iterator[Bench]:
    with cable(packets=True) as laid:
        laid.slow("256kbit")
        server = spawn_server(flock, laid.at_server(), *WORK, f"--listen={SERVER_IP}:0", "--insecure")
        prompt = [spawn_client(flock, laid.at_server(), f"c{index}", "--insecure") for index in range(3)]
        spawn_client(flock, laid.at_client(), "c3", "--insecure", "--give-up-after=900")
        yield Bench(flock, server, prompt, Narrow(laid))


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.promise("R9")
@pytest.mark.parametrize("lane", [trickling, narrow])
def test_a_slow_client_does_not_slow_the_others(
    flock: Flock, figure: Figure, lane: Callable[[Flock], AbstractContextManager[Bench]]
) -> None:
    """Rounds with and without it take turns in one run: what they cost is compared in pairs."""
    with lane(flock) as bench:
        pairs = []
        for number in range(PAIRS):
            order = (True, False) if number % 2 else (False, True)
            pairs.append({beside: bench.round(beside=beside) for beside in order})
        bench.round(beside=False)
        costs = [(bench.costs(pair[True]), bench.costs(pair[False])) for pair in pairs]
    for place, what in enumerate(("others' work", "server's CPU time")):
        ratios = sorted(beside[place] / without[place] for beside, without in costs)
        figure(f"{what} beside a slow client ({lane.__name__})", ratio := statistics.median(ratios))
        assert ratio <= 1.1, ratios
