"""Whole rounds in which nothing is trained, against bare grpcio streaming of the same bytes.

Beside them the floor (promised_grpc): the same streaming with the least that the promises ask.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from benchmarks import bare_grpc, noop_run, promised_grpc
from benchmarks.live_run import Watched
from benchmarks.result import Benchmark, Row, against

_BARE = "bare grpcio streaming"


@dataclass(frozen=True)
class Case:
    """A number of clients and a size."""

    clients: int
    mib: float
    rounds: int
    limit: float

    @property
    def name(self) -> str:
        return f"no-op round, {self.clients} x {self.mib:g} MiB"


CASES = (Case(8, 0.25, 120, 2.0), Case(8, 44.7, 16, 1.35), Case(32, 10.4, 20, 1.5))


def measure(case: Case, repeats: int) -> Iterator[Row]:
    """Run bare, real, floor, bare ... bare; what is between two bare runs is compared with their mean."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bare, runs, floor = [_bare(folder / "bare-0", case)], list[Watched](), list[float]()
        for turn in range(repeats):
            runs.append(_real(folder / f"real-{turn}", case))
            floor.append(_floor(folder / f"floor-{turn}", case))
            bare.append(_bare(folder / f"bare-{turn + 1}", case))
    real = [statistics.median(run.rounds_s(noop_run.WARM_UP)) for run in runs]
    around = [(before + after) / 2 for before, after in pairwise(bare)]
    pairs = list(zip(around, real, strict=True))
    yield against(case.name, "s", pairs, case.limit, _BARE, bare=bare, real=real, **_details(runs))
    least = against(f"{case.name}, floor", "s", list(zip(around, floor, strict=True)), case.limit, _BARE)
    yield replace(least, target="reported", held=True)


def _real(folder: Path, case: Case) -> Watched:
    return noop_run.run(folder, clients=case.clients, mib=case.mib, rounds=case.rounds, sample_s=1.0)


def _bare(folder: Path, case: Case) -> float:
    seconds = bare_grpc.seconds_per_round(folder, case.clients, case.mib, case.rounds)
    return statistics.median(seconds[noop_run.WARM_UP - 1 :])


def _floor(folder: Path, case: Case) -> float:
    seconds = promised_grpc.seconds_per_round(folder, case.clients, case.mib, case.rounds)
    return statistics.median(seconds[noop_run.WARM_UP - 1 :])


def _details(runs: list[Watched]) -> dict[str, object]:
    """Return what explains the figure: parts of the last run's round, CPU seconds of both ends."""
    run, skip = runs[-1], noop_run.WARM_UP
    return {
        "parts": run.parts(skip),
        "server_cpu_s": run.cpu_per_round(run.server, skip),
        "clients_cpu_s": sum(run.cpu_per_round(samples, skip) for samples in run.clients),
    }


BENCHMARKS = {
    f"noop-{case.clients}x{case.mib:g}": Benchmark(case.name, partial(measure, case)) for case in CASES
}
