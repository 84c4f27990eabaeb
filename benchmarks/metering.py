"""What all measuring takes: blocks of rounds with the meters and without, taking turns in one run."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks import switched
from benchmarks.children import Children, environment
from benchmarks.result import Benchmark, Row, against, at_most
from benchmarks.switched import BLOCK

_START_S, _LIMIT_S = 60.0, 400.0
_SKIP = 2  # rounds of a block: what the block before still tells has been told
_OFF = "rounds without metering"
_LIMIT = 1.01


@dataclass(frozen=True)
class Case:
    """A run that is held: four clients in two processes, all of them in every round."""

    name: str
    model: str
    shape: tuple[int, ...]
    samples: int  # of each client
    turns: int  # blocks without, with, without, with timed meters; one more without at the end

    @property
    def blocks(self) -> int:
        return 4 * self.turns + 1


@dataclass(frozen=True)
class Mark:
    """The beginning of a round in a process."""

    round: int
    at: float
    cpu_s: float
    meters_s: float  # of which by meters, where they are timed


CASES = {
    "metering": Case("FedTrip, lenet5, 1,000 samples of 28x28 each", "lenet5", (1, 28, 28), 1000, 15),
    "metering-small": Case("FedTrip, mlp, 280 samples of 8x8 each", "mlp", (1, 8, 8), 280, 30),
}
_HOSTS = ("a,b", "c,d")
_SERVER = ("--method=fedtrip", "--lr=0.0001", "--clients=4", "--eval-every=0", "--batch-size=50")


def measure(case: Case, repeats: int) -> Iterator[Row]:
    """Compare every metered block with those around it, and with what its meters say themselves."""
    wall, cpu, share = list[tuple[float, float]](), list[tuple[float, float]](), list[float]()
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as name:
            server, *clients = _run(Path(name), case)
        wall += _around([_median_s(block) for block in _blocks(server, case)])
        used = _summed([[_cpu_s(block) for block in _blocks(marks, case)] for marks in (server, *clients)])
        cpu += _around(used)
        meters = [[_meters_s(block) for block in _blocks(marks, case)] for marks in (server, *clients)]
        share += [100 * _summed(meters)[at] / used[at] for at in range(7, case.blocks, 4)]
    yield against(f"metered round, {case.name}", "s", wall, _LIMIT, _OFF, interval=_interval(wall))
    yield against(f"CPU of a metered round, {case.name}", "s", cpu, _LIMIT, _OFF, interval=_interval(cpu))
    yield at_most(f"meters' part of a round's CPU, {case.name}", "%", share, 100 * (_LIMIT - 1))


def _run(folder: Path, case: Case) -> list[list[Mark]]:
    """Hold the run; return the marks of the server and of each client process."""
    run_dir, data = folder / "run", folder / "data.npz"
    random = np.random.default_rng(0)
    x = random.random((case.samples, *case.shape), np.float32)
    np.savez(data, x=x, y=np.arange(case.samples) % 10)
    marks = [folder / f"marks-{number}" for number in range(1 + len(_HOSTS))]
    own = (f"--run-dir={run_dir}", "--listen=127.0.0.1:0", f"--rounds={case.blocks * BLOCK + 1}")
    model = (f"--model={case.model}", f"--eval-data={data}")
    with Children() as children:
        _start(children, marks[0], "fl-server", *own, *model, *_SERVER)
        children.wait_until((run_dir / "address").exists, _START_S)
        server = f"--server={(run_dir / 'address').read_text().strip()}"
        for path, ids in zip(marks[1:], _HOSTS, strict=True):
            place = (server, f"--state-dir={folder / ids}", f"--data={data}")
            _start(children, path, "fl-client", f"--ids={ids}", *place, "--device=cpu")
        children.finish(_LIMIT_S)
    return [_read(path) for path in marks]


def _start(children: Children, marks: Path, name: str, *flags: str) -> None:
    command = [sys.executable, "-m", switched.__name__, str(marks), name, *flags, "--log-level=warning"]
    children.start(name, command, marks.with_suffix(".log"), environment())


def _read(path: Path) -> list[Mark]:
    """Return the first mark of every round: a process may host several clients."""
    found: dict[int, Mark] = {}
    for line in path.read_text().splitlines():
        round, *seconds = line.split()
        found.setdefault(int(round), Mark(int(round), *map(float, seconds)))
    return [found[round] for round in sorted(found)]


def _blocks(marks: Sequence[Mark], case: Case) -> list[Sequence[Mark]]:
    """Return the marks from the beginning of every block's first round that counts to the block's end."""
    return [marks[block * BLOCK + _SKIP : (block + 1) * BLOCK + 1] for block in range(case.blocks)]


def _median_s(block: Sequence[Mark]) -> float:
    return statistics.median(end.at - begin.at for begin, end in pairwise(block))


def _cpu_s(block: Sequence[Mark]) -> float:
    return (block[-1].cpu_s - block[0].cpu_s) / (len(block) - 1)


def _meters_s(block: Sequence[Mark]) -> float:
    return (block[-1].meters_s - block[0].meters_s) / (len(block) - 1)


def _summed(processes: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) for column in zip(*processes, strict=True)]


def _around(blocks: Sequence[float]) -> list[tuple[float, float]]:
    """Return every metered block but those of the first turn, after the mean of its neighbours."""
    return [((blocks[at - 1] + blocks[at + 1]) / 2, blocks[at]) for at in range(5, len(blocks), 4)]


def _interval(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return between what the median of the ratios lies with 95 %, by the ranks of the sign test."""
    ratios = sorted(measured / base for base, measured in pairs)
    low = max(0, int((len(ratios) - 1) / 2 - 0.98 * len(ratios) ** 0.5))
    return ratios[low], ratios[-1 - low]


BENCHMARKS = {
    name: Benchmark(f"what metering takes: {case.name}", partial(measure, case))
    for name, case in CASES.items()
}
