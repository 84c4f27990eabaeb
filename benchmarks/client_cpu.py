"""A client's CPU seconds per round outside training: rounds of zero steps."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import noop_run
from benchmarks.result import Benchmark, Row, at_most

CLIENTS = 2


@dataclass(frozen=True)
class Case:
    """A size, and rounds enough for the 10 ms of the kernel's clock not to matter."""

    mib: float
    rounds: int
    limit_s: float


CASES = (Case(44.7, 40, 0.15), Case(0.25, 400, 0.02))


def measure(repeats: int) -> Iterator[Row]:
    for case in CASES:
        values = [_cpu_s(case) for _ in range(repeats)]
        yield at_most(f"client CPU per round, {case.mib:g} MiB", "s", values, case.limit_s)


def _cpu_s(case: Case) -> float:
    with tempfile.TemporaryDirectory() as name:
        run = noop_run.run(Path(name), clients=CLIENTS, mib=case.mib, rounds=case.rounds, sample_s=0.1)
    return statistics.mean(run.cpu_per_round(samples, noop_run.WARM_UP) for samples in run.clients)


BENCHMARKS = {"client-cpu": Benchmark("client CPU per round outside training, 44.7 and 0.25 MiB", measure)}
