"""One client on a very slow line: the others' work costs them no more, and rounds end at their deadline."""

from __future__ import annotations

import signal
import statistics
from pathlib import Path

import pytest

from faults.conftest import Figure
from support import processes
from support.fault import Fault, Kind, Script
from support.processes import Flock
from support.proxy import Proxy

KBIT = 125  # bytes per second
JOINED = 8_000  # bytes up: more than a client says before it delivers
LINES = 50  # connections that are all slow

LANES: dict[str, Script] = {
    "256 kbit/s": ((Fault(Kind.RATE, "up", 0, 256 * KBIT), Fault(Kind.RATE, "down", 0, 256 * KBIT)),) * LINES,
    "1 byte/s up": ((Fault(Kind.RATE, "up", JOINED, 1.0),),) * LINES,
}


class Bench:
    """A run of three prompt clients and one that does not keep up."""

    def __init__(self, flock: Flock, hidden: str, deadline: float, rounds: int) -> None:
        self.flock, self.deadline, self.rounds = flock, deadline, rounds
        self.flags = (
            *("--clients=4", "--min-updates=3", f"--deadline={deadline}", f"--rounds={rounds}", "--seed=3"),
            *("--steps=0", "--eval-every=0", "--model=mlp", f"--model-arg=hidden={hidden}"),
        )

    def start(self, address: str = "") -> processes.Program:
        """Start all of them; return the one that will be slow."""
        self.server = self.flock.server(*self.flags)
        self.prompt = self.flock.clients("c0", "c1", "c2")
        return self.flock.client("c3", *([f"--server={address}"] if address else []))

    def committed(self, round: int) -> None:
        self.server.wait_for("round_committed", count=round, limit_s=30 + round * (self.deadline + 5))

    def work_s(self, skip: int) -> float:
        """Return the median seconds that a prompt client fetched and delivered in a round."""
        query = f"SELECT fetch_s + deliver_s FROM costs WHERE idx < 3 AND round > {skip} AND deliver_s > 0"
        return float(statistics.median(seconds for (seconds,) in self.flock.rows(query)))

    def longest_open_s(self) -> float:
        ((longest,),) = self.flock.rows("SELECT max(value) FROM round_costs WHERE name = 'open_s'")
        return float(longest)


def pair(tmp_path: Path, script: Script, hidden: str, deadline: float, rounds: int) -> tuple[Bench, Bench]:
    """Run one bench with a slow client, and beside it one whose fourth client does nothing at all."""
    (tmp_path / "slow").mkdir()
    (tmp_path / "idle").mkdir()
    with processes.flock(tmp_path / "slow") as first, processes.flock(tmp_path / "idle") as second:
        slow, idle = Bench(first, hidden, deadline, rounds), Bench(second, hidden, deadline, rounds)
        with Proxy(lambda: first.address, script) as proxy:
            slow.start(proxy.address)
            stopped = idle.start()
            idle.committed(1)
            stopped.signal(signal.SIGSTOP)
            for bench in (slow, idle):
                bench.committed(rounds)
        return slow, idle


@pytest.mark.promise("R9")
@pytest.mark.parametrize("lane", LANES)
def test_a_slow_client_holds_no_round_beyond_its_deadline(flock: Flock, figure: Figure, lane: str) -> None:
    bench = Bench(flock, "[256,64]", 1.0, 5)
    with Proxy(lambda: flock.address, LANES[lane]) as proxy:
        bench.start(proxy.address)
        bench.committed(5)
    figure("seconds beyond the deadline", over := bench.longest_open_s() - bench.deadline)
    assert over <= 1
    late = flock.rows("SELECT count(*) FROM outcomes WHERE verdict = 'counted' AND idx < 3")
    assert late == [(15,)]


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.promise("R9")
@pytest.mark.parametrize("lane", LANES)
def test_a_slow_client_does_not_slow_the_others(tmp_path: Path, figure: Figure, lane: str) -> None:
    slow, idle = pair(tmp_path, LANES[lane], "[4000,2730]", 8.0, 16)
    ratio = slow.work_s(skip=2) / idle.work_s(skip=2)
    figure(f"others' work beside {lane}, over undisturbed", ratio)
    figure("seconds beyond the deadline", over := slow.longest_open_s() - slow.deadline)
    assert over <= 1
    assert ratio <= 1.1
