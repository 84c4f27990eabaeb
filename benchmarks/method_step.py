"""Every method's local step against FedAvg's: lenet5 with batches of 50, resnet18 with batches of 32.

FedAvg's round and the method's are timed one after the other, in turns which goes first; the ratio is the
median of the pairs' ratios. A step is timed from step to step, so that what a method does once a round
(FedTR's centroids, Mime's full gradient, FedADM's estimates) is not in it; the whole round's ratio stands in
the details. It is the method's round 2: all that it ever receives is there, and its client has state.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.result import Benchmark, Row, against
from benchmarks.second_round import Second, samples, second_round
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.registry import load, names


@dataclass(frozen=True)
class Case:
    """A model with its batch: how many steps a round has, and how many rounds a repeat."""

    model: str
    shape: tuple[int, ...]
    batch: int
    steps: int
    rounds: int
    closed: float  # the limit for a method whose term has a closed form


CASES = (
    Case("lenet5", (1, 28, 28), 50, 9, 15, 1.06),
    Case("resnet18", (3, 32, 32), 32, 3, 2, 1.03),
)
LIMITS = {"fedtr": 1.10, "fedntd": 1.7, "moon": 2.1, "mofedsam": 2.05, "fedmrur": 2.45}
UNLIMITED = ("mime",)  # a second gradient on the same batch: twice a step, by its nature


def measure(case: Case, repeats: int) -> Iterator[Row]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from _measure(case, repeats)
    finally:
        torch.set_num_threads(threads)


def _measure(case: Case, repeats: int) -> Iterator[Row]:
    data = samples(case.batch * case.steps, case.shape)
    with tempfile.TemporaryDirectory() as folder:
        for name in names():
            if name == "fedavg" or load(name).central:
                continue
            momentum = load(name).training.momentum or 0.0
            base, ours = (
                second_round(one, case.model, case.shape, Path(folder), batch=case.batch, momentum=momentum)
                for one in ("fedavg", name)
            )
            yield _compare(case, base, ours, data, case.rounds * repeats)


def _compare(case: Case, base: Second, ours: Second, data: LocalData, rounds: int) -> Row:
    """The plans differ in nothing but the method: both have the method's momentum."""
    for one in (base, ours):
        _timed(one, data)  # pages, caches, algorithms of convolutions
    found = [_pair(base, ours, data, turn) for turn in range(rounds)]
    pairs = [(first.step_s * 1e3, second.step_s * 1e3) for first, second in found]
    limit = LIMITS.get(ours.name, case.closed)
    whole = statistics.median(second.round_s / first.round_s for first, second in found)
    title = f"{ours.name}, step of {case.model}, batch {case.batch}"
    row = against(title, "ms", pairs, limit, "fedavg's step in the same run", round_ratio=whole)
    return replace(row, target="reported", held=True) if ours.name in UNLIMITED else row


@dataclass(frozen=True)
class _Times:
    step_s: float
    round_s: float


def _pair(base: Second, ours: Second, data: LocalData, turn: int) -> tuple[_Times, _Times]:
    """Time both once, in turns which goes first."""
    if turn % 2:
        second = _timed(ours, data)
        return _timed(base, data), second
    return _timed(base, data), _timed(ours, data)


def _timed(one: Second, data: LocalData) -> _Times:
    marks: list[float] = []

    def proceed() -> bool:
        marks.append(time.perf_counter())
        return True

    begun = time.perf_counter()
    work = one.local(data)
    steps.run(one.client, work, proceed)
    ended = time.perf_counter()
    # The first mark is before `begin`; the others are before every step but the first.
    return _Times((marks[-1] - marks[1]) / (len(marks) - 2), ended - begun)


BENCHMARKS = {
    f"method-step-{case.model}": Benchmark(f"every method's step of {case.model}", partial(measure, case))
    for case in CASES
}
