"""Whatever the order of arrivals, the number of client processes and of training threads: one SHA-256."""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from support import processes
from support.fault import Fault, Kind, Script
from support.processes import Flock
from support.proxy import Proxy

FLAGS = ("--clients=4", "--rounds=5", "--seed=9", "--deadline=60", "--partition=dirichlet:0.5")
LATEST_S = 0.15  # of a message, each way; a round takes a tenth of that


@dataclass(frozen=True)
class Way:
    """How a run is spread and delayed: a function of its seed."""

    hosts: tuple[str, ...]
    parallel: int
    scripts: tuple[Script, ...]  # one for each host


def way(seed: int) -> Way:
    dice = random.Random(seed)
    ids = ["c0", "c1", "c2", "c3"]
    dice.shuffle(ids)
    size = (4, 2, 1)[seed % 3]  # one, two, four processes
    hosts = tuple(",".join(ids[start : start + size]) for start in range(0, 4, size))
    return Way(hosts, dice.choice([1, 2, 4]), tuple(slow(dice) for _ in hosts))


def slow(dice: random.Random) -> Script:
    """Other delays on every line, so that any client is the first and any the last."""
    amounts = [dice.uniform(0, LATEST_S / 2) for _ in range(3)]
    kinds = ((Kind.DELAY, "up"), (Kind.DELAY, "down"), (Kind.JITTER, "up"))
    return (
        tuple(Fault(kind, target, 0, amount) for (kind, target), amount in zip(kinds, amounts, strict=True)),
    )


@pytest.fixture(scope="session")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the final model with everything in one process and nothing delayed."""
    return processes.run_to_the_end(tmp_path_factory.mktemp("one"), FLAGS, ("c0,c1,c2,c3",))


@pytest.mark.promise("R13")
@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 23))]
)
def test_the_order_of_arrivals_changes_no_bit(flock: Flock, one_process: str, seed: int) -> None:
    chosen = way(seed)
    server = flock.server(*FLAGS)
    with ExitStack() as stack:
        clients = []
        for ids, script in zip(chosen.hosts, chosen.scripts, strict=True):
            proxy = stack.enter_context(Proxy(lambda: flock.address, script, seed=seed))
            clients.append(flock.client(ids, f"--server={proxy.address}", f"--parallel={chosen.parallel}"))
        assert [server.ended(), *(client.ended() for client in clients)] == [0] * (1 + len(clients)), chosen
    assert flock.sha256() == one_process, chosen
