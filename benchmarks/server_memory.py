"""The server's peak memory while 2, 8 and 32 clients deliver 44.7 MiB each, against its own memory idle."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import noop_run
from benchmarks.result import Benchmark, Row, slope

MIB = 1 << 20
SIZE_MIB, CLIENTS, ROUNDS = 44.7, (2, 8, 32), 6
PER_CLIENT_MIB = 4.0
CREDIT_MIB = 32.0  # the default of --credit-mib
_SAMPLE_S = 0.1


def measure(repeats: int) -> Iterator[Row]:
    """Yield a row per number of clients, and one of what each added client costs."""
    seen: dict[int, list[tuple[float, float]]] = {clients: [] for clients in CLIENTS}
    for _ in range(repeats):
        for clients in CLIENTS:
            seen[clients].append(_idle_and_peak(clients))
    peaks = []
    for clients, pairs in seen.items():
        row = _bounded(clients, pairs)
        peaks.append((float(clients), row.measured))
        yield row
    grown = slope(peaks)
    yield Row(
        name="server peak RSS, growth per added client",
        unit="MiB",
        measured=grown,
        target=f"<= {PER_CLIENT_MIB:g} MiB",
        held=grown <= PER_CLIENT_MIB,
        details={"peaks": peaks},
    )


def _bounded(clients: int, pairs: list[tuple[float, float]]) -> Row:
    """Rule 8: idle + FedAvg's state and accumulator, a model each + one model for evaluation + credit."""
    idle = statistics.median(base for base, _ in pairs)
    peak = statistics.median(measured for _, measured in pairs)
    bound = idle + 3 * SIZE_MIB + CREDIT_MIB
    return Row(
        name=f"server peak RSS, {clients} x {SIZE_MIB:g} MiB",
        unit="MiB",
        baseline=idle,
        measured=peak,
        ratio=peak / idle,
        target=f"<= {bound:.0f} MiB",
        held=peak <= bound,
        against="its own RSS idle after start",
        details={"pairs": pairs},
    )


def _idle_and_peak(clients: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as name:
        run = noop_run.run(
            Path(name), clients=clients, mib=SIZE_MIB, rounds=ROUNDS, sample_s=_SAMPLE_S, limit_s=600
        )
    return run.idle_rss / MIB, max(sample.peak_rss for sample in run.server) / MIB


BENCHMARKS = {"server-memory": Benchmark("server peak RSS with 2, 8 and 32 clients of 44.7 MiB", measure)}
