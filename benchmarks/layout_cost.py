"""Server CPU per client and round: the model as 122 tensors against the same bytes as one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import noop_run
from benchmarks.result import Benchmark, Row, against

CLIENTS, SIZE_MIB, ROUNDS, TENSORS = 4, 44.7, 24, 122
TOLERANCE = 0.10


def measure(repeats: int) -> Iterator[Row]:
    """Take turns which of the two comes first."""
    pairs = []
    for turn in range(repeats):
        cost = {tensors: _cpu_s(tensors) for tensors in ((1, TENSORS) if turn % 2 == 0 else (TENSORS, 1))}
        pairs.append((cost[1], cost[TENSORS]))
    name = f"server CPU per client and round, {TENSORS} tensors"
    yield against(name, "s", pairs, 1 + TOLERANCE, "the same bytes as 1 tensor")


def _cpu_s(tensors: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        run = noop_run.run(
            Path(name), clients=CLIENTS, mib=SIZE_MIB, rounds=ROUNDS, tensors=tensors, sample_s=0.1
        )
    return run.cpu_per_round(run.server, noop_run.WARM_UP) / CLIENTS


BENCHMARKS = {"layout-cost": Benchmark("server CPU, 122 tensors against 1", measure)}
