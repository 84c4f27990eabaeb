"""Every method's fold of a round, for each uploaded byte, against FedAvg's.

Four updates of resnet18 (44.7 MB a vector), read out of the spool, summed and checked as the server does it.
pFedMo's scoring of the updates (a forward on 64 samples each) and FedADM's second walk stand apart.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.result import Benchmark, Row, against, at_most
from benchmarks.second_round import CLIENTS, second_round, spooled
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit.registry import load, names
from edgeflock.server.learning.fold import Fold, SpooledUpdate

LIMIT = 1.5
MEMBERS = range(CLIENTS)
_TIMES = 5  # in every repeat
_MODEL, _SHAPE, _BATCH = "resnet18", (3, 32, 32), 8


def measure(repeats: int) -> Iterator[Row]:
    """One thread, as the server has it; the page cache is warm."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            base = _Folding("fedavg", Path(folder))
            for name in names():
                if name != "fedavg" and not load(name).central:
                    yield from _compare(base, _Folding(name, Path(folder)), repeats)
    finally:
        torch.set_num_threads(threads)


class _Folding:
    """One method's fold of one round."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._second = second_round(name, _MODEL, _SHAPE, folder, batch=_BATCH)
        self._half = self._second.server
        self.walks, self._half.second_walk = self._half.second_walk, False  # it is timed by itself
        if name == "pfedmo":
            self._score, self._half._distance = self._half._distance, lambda sums, update: 1.0
        layouts = ModelLayouts(
            self._half.setting.layout, Layout((), "float32"), Layout((), "int64")
        )  # resnet18 has GroupNorm, hence no buffers
        self._fold = Fold(self._half, layouts, float)
        first = self._update(folder / f"{name}-2.data")
        self._updates = {
            index: SpooledUpdate(index, first.package, folder / f"{name}-2.data", self._layouts())
            for index in MEMBERS
        }
        self.bytes = CLIENTS * first.package.size_bytes

    def _update(self, path: Path) -> SpooledUpdate:
        generator = torch.Generator().manual_seed(1)
        bundles = {
            kind: torch.rand(layout.elements, generator=generator).mul_(1e-3)
            for kind, layout in self._layouts().items()
        }
        numbers = dict.fromkeys((*self._half.scalars, "loss"), 0.5)
        return spooled(self._half, bundles, {**numbers, "samples": float(_BATCH), "steps": 1.0}, path)

    def _layouts(self) -> dict[Kind, Layout]:
        return {kind: self._half.layout(kind) for kind in self._half.uploads(self._second.round)}

    def begin(self) -> None:
        self._fold.open(self._second.server_state, self._second.round)

    def fold(self) -> None:
        self._fold.finish(MEMBERS, self._updates)

    def score(self) -> None:
        """pFedMo's l_i of every update."""
        for update in self._updates.values():
            self._score(self._fold.total.sums, update)

    def walk(self) -> None:
        """FedADM's distances of the gradients from their mean."""
        for update in self._updates.values():
            self._half.second(self._fold.total.sums, update, float(_BATCH))


def _compare(base: _Folding, ours: _Folding, repeats: int) -> Iterator[Row]:
    scored = ours.name == "pfedmo"
    pairs, scores, walks = list[tuple[float, float]](), list[float](), list[float]()
    for turn in range(_TIMES * repeats + 1):
        ours.begin()
        base.begin()
        first, second = _seconds(base.fold), _seconds(ours.fold)
        score = _seconds(ours.score) if scored else 0.0
        walk = _seconds(ours.walk) if ours.walks else 0.0
        if turn:  # the first is for pages and caches
            pairs.append((first / base.bytes * 1e9, second / ours.bytes * 1e9))
            scores.append(score / CLIENTS)
            walks.append(walk / CLIENTS)
    apart = " without its scoring" if scored else ""
    yield against(f"{ours.name}, fold{apart}", "ns/B", pairs, LIMIT, "fedavg's fold", bytes=ours.bytes)
    if scored:
        yield _reported("pfedmo, score of one update", scores)
    if ours.walks:
        yield _reported(f"{ours.name}, second walk over one update", walks)


def _reported(name: str, seconds: list[float]) -> Row:
    """A figure without a target of its own."""
    return replace(at_most(name, "s", seconds, float("inf")), target="reported")


def _seconds(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


BENCHMARKS = {"method-fold": Benchmark("every method's fold for each byte against FedAvg's", measure)}
