"""Folding one 44.7 MiB update out of the spool, checked for NaN and infinity, against a bare add_."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.result import Benchmark, Row, against
from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.payload.memory import memory
from edgeflock.common.payload.package import IDENTITY, Kind, Package, Section
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Round, Setting, State
from edgeflock.server.learning.fold import Fold, SpooledUpdate

ELEMENTS = int(44.7 * (1 << 20) / 4)
LIMIT = 2.5
_TIMES = 15  # in every repeat
_WEIGHT = 32.0


def measure(repeats: int) -> Iterator[Row]:
    """One thread, as the server has it; the page cache is warm."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as name:
            yield _compare(Path(name) / "000000.data", repeats)
    finally:
        torch.set_num_threads(threads)


def _compare(path: Path, repeats: int) -> Row:
    values = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(1)).mul_(1e-3)
    path.write_bytes(memory(values))
    layout = Layout.single("model", ELEMENTS)
    update, folding = _update(path, values, layout), _fold(layout)
    total = torch.zeros(ELEMENTS)

    def bare() -> None:
        total.add_(values, alpha=_WEIGHT)

    def ours() -> None:
        folding.finish((0,), {0: update})

    for _ in range(3):  # pages, caches
        _pair(bare, ours, folding)
    pairs = [_pair(bare, ours, folding) for _ in range(_TIMES * repeats)]
    return against("fold of one 44.7 MiB update", "s", pairs, LIMIT, "torch.Tensor.add_(x, alpha=w)")


def _pair(bare: Callable[[], None], ours: Callable[[], None], folding: Fold) -> tuple[float, float]:
    folding.open(State(), Round(1, 0.0, (0,), {}))
    return _seconds(bare), _seconds(ours)


def _seconds(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _update(path: Path, values: torch.Tensor, layout: Layout) -> SpooledUpdate:
    section = Section(Kind.DELTA, layout.digest, IDENTITY, layout.elements, layout.size_bytes)
    scalars = {"samples": _WEIGHT, "steps": 0.0, "loss": 0.0}
    package = Package((section,), scalars, extend(0, memory(values)))
    return SpooledUpdate(0, package, path, {Kind.DELTA: layout})


def _fold(layout: Layout) -> Fold:
    method = load("fedavg")
    params = parse(method.params, {})
    half = method.server(params, Setting(layout, classes=10, features=1, clients=1, seed=0))
    nothing = Layout((), "float32")
    layouts = ModelLayouts(layout, nothing, Layout((), "int64"))
    return Fold(half, layouts, lambda samples: method.weight(params, samples))


BENCHMARKS = {"fold": Benchmark("fold of one 44.7 MiB update", measure)}
