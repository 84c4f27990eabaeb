"""Ten thousand rounds, ten thousand clients that come and go: memory, descriptors and threads stay flat."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

import grpc
import psutil
import pytest

from edgeflock.common.wire.transport import PROTOCOL, channel_options
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import aggregator_pb2_grpc as rpc
from faults.conftest import Figure
from support.growth import grown
from support.processes import Flock, Program, until

MIB = 1 << 20
SLOPE_MIB = 1.0  # per 1,000
WARM_UP = 0.2  # share of the samples: pools, caches and the allocator's arenas fill
EVERY_S = 0.25


@dataclass
class Watch:
    """What a process needed as the count of what it did went up."""

    samples: list[tuple[float, float, int, int]] = field(default_factory=list)  # count, MiB, fds, threads

    def per_thousand_mib(self) -> float:
        """Return the slope of the resident memory."""
        steady = self._steady()
        fit = statistics.linear_regression([count for count, *_ in steady], [mib for _, mib, *_ in steady])
        return fit.slope * 1000

    def grown_mib(self, end: int) -> float:
        """Return how much more there was at the end than when all was warm."""
        return grown(((count, mib) for count, mib, *_ in self.samples), SETTLED, end)

    def more_handles(self) -> int:
        """Return how many more descriptors and threads the last third needs than the first."""
        steady = self._steady()
        third = len(steady) // 3
        ends = [
            [
                statistics.median_low(sample[place] for sample in part)
                for part in (steady[:third], steady[-third:])
            ]
            for place in (2, 3)
        ]
        return int(sum(max(0, last - first) for first, last in ends))

    def _steady(self) -> list[tuple[float, float, int, int]]:
        return self.samples[int(len(self.samples) * WARM_UP) :]


@contextmanager
def watched(program: Program, count: Callable[[], float]) -> Iterator[Watch]:
    """Take samples of a process until the block ends."""
    process, watch, over = psutil.Process(program.process.pid), Watch(), Event()

    def look() -> None:
        while not over.wait(EVERY_S) and process.is_running():
            with process.oneshot():
                rss, threads, fds = process.memory_info().rss, process.num_threads(), process.num_fds()
            if rss:  # none: it is on its way out
                watch.samples.append((count(), rss / MIB, fds, threads))

    thread = Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


def check(watch: Watch, figure: Figure, what: str) -> None:
    figure(f"{what}: MiB per 1,000", watch.per_thousand_mib())
    figure(f"{what}: more descriptors and threads", watch.more_handles())
    assert watch.per_thousand_mib() < SLOPE_MIB
    assert watch.more_handles() == 0


# ----------------------------------------------------------------------------------------- rounds


@pytest.mark.promise("R11")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [pytest.param(10_000, marks=pytest.mark.long)])
def test_rounds_leave_nothing_behind(flock: Flock, figure: Figure, rounds: int) -> None:
    server = flock.begin_server("--clients=2", f"--rounds={rounds}", "--model=linear", "--eval-every=50")
    until(lambda: (flock.run_dir / "address").exists() or None, lambda: server.text)
    client = flock.client("c0,c1")

    def done() -> float:
        return float(flock.rows("SELECT max(round) FROM rounds")[0][0] or 0)

    with watched(server, done) as ours, watched(client, done) as theirs:
        assert server.ended(1500) == 0
    check(ours, figure, "server, rounds")
    check(theirs, figure, "client, rounds")


NOTHING = ("--clients=8", "--model=linear", "--steps=0", "--lr=0", "--eval-every=0")
SETTLED = 2000  # rounds until a process has what it needs


@pytest.mark.promise("R11")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [pytest.param(20_000, marks=pytest.mark.long)])
def test_rounds_in_which_nothing_is_trained_need_no_more_and_no_more_memory(
    flock: Flock, figure: Figure, rounds: int
) -> None:
    server = flock.begin_server(*NOTHING, f"--rounds={rounds}")
    until(lambda: (flock.run_dir / "address").exists() or None, lambda: server.text)
    client = flock.client(",".join(f"c{index}" for index in range(8)))

    def done() -> float:
        return float(flock.rows("SELECT max(round) FROM rounds")[0][0] or 0)

    with watched(server, done) as ours, watched(client, done) as theirs:
        assert server.ended(3000) == 0
    more = {"server": ours.grown_mib(rounds), "client": theirs.grown_mib(rounds)}
    for what, mib in more.items():
        figure(f"{what}: more MiB from round {SETTLED} to {rounds}", mib)
    assert max(more.values()) < 1, more


# ------------------------------------------------------------------------------------ connections


async def come_and_go(address: str, number: int) -> None:
    """Connect, join, look at the first view, and break off or say goodbye."""
    channel = grpc.aio.insecure_channel(address, options=channel_options())
    stub = rpc.AggregatorStub(channel)
    join = pb.JoinRequest(
        protocol=PROTOCOL, client_id=f"x{number}", instance_id=number.to_bytes(16, "little")
    )
    session = (await stub.Join(join, timeout=20)).admission.session
    watch = stub.Watch(pb.WatchRequest(session=session), timeout=20)
    await watch.read()
    if number % 2:
        await stub.Leave(pb.LeaveRequest(session=session, reason="enough"), timeout=20)
    watch.cancel()
    await channel.close()


@pytest.mark.promise("R11")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("connections", [pytest.param(10_000, marks=pytest.mark.long)])
def test_clients_that_come_and_go_leave_nothing_behind(
    flock: Flock, figure: Figure, connections: int
) -> None:
    server = flock.begin_server("--clients=5000", "--max-clients-wait=3600", "--model=linear")
    until(lambda: (flock.run_dir / "address").exists() or None, lambda: server.text)
    done = 0

    async def all_of_them() -> None:
        nonlocal done
        for done in range(connections):
            await come_and_go(flock.address, done)

    with watched(server, lambda: done) as watch:
        asyncio.run(all_of_them())
    check(watch, figure, "server, connections")
