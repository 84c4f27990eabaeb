"""The local training step of a real fl-client against a plain PyTorch loop, and FedProx's against FedAvg's.

A run with one client, whose journal says what each round took: CPU seconds of the whole client over its
steps, so fetching, the outbox and the delivery are in it. The plain loop runs in a fresh process. Both take
turns.
"""

from __future__ import annotations

import contextlib
import sqlite3
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import live_run, plain_loop
from benchmarks.result import Benchmark, Row, against

ROUNDS = 6  # the first and the last are left out: warming up, and the end of the run
_LIMIT_S = 600.0
_MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """A model, its batches, and what its step may take in a client."""

    model: str
    batch: int
    steps: int  # in a round
    limit: float
    method: str = "fedavg"
    against: str = ""  # another method; nothing: the plain loop

    @property
    def name(self) -> str:
        what = f"{self.method} step" if self.against else "local step"
        return f"{what} in fl-client, {self.model}, batch {self.batch}"


CASES = {
    "local-step-mlp": Case("mlp", 50, 1200, 0.92),
    "local-step-lenet5": Case("lenet5", 50, 200, 0.85),
    "local-step-resnet18": Case("resnet18", 32, 4, 1.02),
    "local-step-fedprox": Case("lenet5", 50, 200, 1.05, "fedprox", against="fedavg"),
}


@dataclass(frozen=True)
class Seen:
    """What a step took: medians over the rounds of a run."""

    cpu_ms: float
    wall_ms: float
    peak_mib: float  # of the whole client


def measure(case: Case, repeats: int) -> Iterator[Row]:
    """Run base and client in turns, the other one first in every second turn."""
    pairs, seen = list[tuple[Seen, Seen]](), list[Seen]()
    for turn in range(repeats):
        tries = [partial(_base, case), partial(client_step, case, case.method)]
        found = {place: tries[place]() for place in ((0, 1) if turn % 2 == 0 else (1, 0))}
        pairs.append((found[0], found[1]))
        seen.append(found[1])
    what = case.against or "plain loop, fresh process"
    cpu = [(base.cpu_ms, ours.cpu_ms) for base, ours in pairs]
    wall = [(base.wall_ms, ours.wall_ms) for base, ours in pairs]
    peak = statistics.median(ours.peak_mib for ours in seen)
    yield against(f"{case.name}, CPU", "ms", cpu, case.limit, what, wall_ms=wall, peak_mib=peak)


def _base(case: Case) -> Seen:
    if case.against:
        return client_step(case, case.against)
    found = plain_loop.milliseconds("step", case.model, case.batch, case.steps)
    return Seen(found["cpu_ms"], found["wall_ms"], 0.0)


def client_step(case: Case, method: str) -> Seen:
    """Hold a run of one client and return what its journal says of a step."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        held(folder, case.model, case.batch * case.steps)
        server = (
            *("--method", method, "--model", case.model, "--eval-data", str(folder / "small.npz")),
            *("--eval-every", "0", "--clients", "1", "--rounds", str(ROUNDS), "--steps", str(case.steps)),
            *("--batch-size", str(case.batch), "--log-level", "warning"),
            *("--lr", str(plain_loop.LR), "--momentum", str(plain_loop.MOMENTUM)),
        )
        client = ("--id", "c0", "--data", str(folder / "data.npz"), "--log-level", "warning")
        live_run.watch(folder, live_run.Spec(server, (client,), limit_s=_LIMIT_S))
        return journalled(live_run.journal(folder))


def held(folder: Path, model: str, samples: int) -> None:
    """Write the samples of a run, and a few of all classes."""
    x, y = plain_loop.data(model, samples)
    np.savez(folder / "data.npz", x=x.numpy(), y=y.numpy())
    np.savez(folder / "small.npz", x=x[: plain_loop.CLASSES].numpy(), y=np.arange(plain_loop.CLASSES))


def journalled(path: Path) -> Seen:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT cpu_s / steps, train_s / steps, peak_rss_bytes FROM costs WHERE round BETWEEN 2 AND ?",
            (ROUNDS - 1,),
        ).fetchall()
    cpu, wall, peaks = zip(*rows, strict=True)
    return Seen(statistics.median(cpu) * 1e3, statistics.median(wall) * 1e3, max(peaks) / _MIB)


BENCHMARKS = {name: Benchmark(case.name, partial(measure, case)) for name, case in CASES.items()}
