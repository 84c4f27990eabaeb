"""The server's test of a model in a real fl-server against a plain PyTorch loop in a fresh process.

A run that trains nothing tests every second round and waits for it; its journal says what CPU the server used
in each, and the difference of the two kinds is the test. Both take turns.
"""

from __future__ import annotations

import contextlib
import sqlite3
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import live_run, plain_loop
from benchmarks.result import Benchmark, Row, against

MODEL, SAMPLES, BATCH = "lenet5", 10_000, 256  # the server's batch
ROUNDS, WARM_UP = 24, 4
LIMIT = 0.85
_LIMIT_S = 300.0


def measure(repeats: int) -> Iterator[Row]:
    pairs = []
    for _ in range(repeats):
        plain = plain_loop.milliseconds("test", MODEL, BATCH, SAMPLES)["cpu_ms"]
        pairs.append((plain, server_ms()))
    name = f"test in fl-server, {MODEL}, {SAMPLES:,} samples, CPU"
    yield against(name, "ms", pairs, LIMIT, "plain loop, fresh process")


def server_ms() -> float:
    """Hold a run of no work and return the CPU milliseconds that a test adds to a round."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        x, y = plain_loop.data(MODEL, SAMPLES)
        np.savez(folder / "test.npz", x=x.numpy(), y=y.numpy())
        np.savez(folder / "data.npz", x=x[:8].numpy(), y=y[:8].numpy())
        server = (
            *("--model", MODEL, "--eval-data", str(folder / "test.npz"), "--eval-every", "2"),
            *("--eval-blocking", "--clients", "1", "--rounds", str(ROUNDS), "--steps", "0"),
            *("--log-level", "warning"),
        )
        client = ("--id", "c0", "--data", str(folder / "data.npz"), "--log-level", "warning")
        live_run.watch(folder, live_run.Spec(server, (client,), limit_s=_LIMIT_S))
        return _difference_ms(live_run.journal(folder))


def _difference_ms(path: Path) -> float:
    """Return how far apart rounds with a test and without lie: a test counts to its round or the next."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT round % 2, value FROM round_costs WHERE name = 'server_cpu_s' AND round BETWEEN ? AND ?",
            (WARM_UP, ROUNDS - 1),
        ).fetchall()
    odd, even = ([value for of, value in rows if of == kind] for kind in (1, 0))
    return abs(float(statistics.median(odd) - statistics.median(even))) * 1e3


BENCHMARKS = {"server-test": Benchmark("the server's test of a model against a plain loop", measure)}
