"""The local training step against a plain PyTorch loop, and FedProx's step against FedAvg's.

Every repeat times both variants of a case one after the other; figures are medians over the repeats,
ratios are medians of the ratios within a repeat. One thread. `python benchmarks/local_step.py [--json FILE]`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common import models
from edgeflock.common.package import Kind
from edgeflock.methods import load, steps
from edgeflock.methods.local import Local, LocalData
from edgeflock.methods.options import parse
from edgeflock.methods.values import Plan, Setting
from edgeflock.methods.workbench import Workbench

LR, MOMENTUM = 0.01, 0.9
Round = Callable[[], None]


@dataclass(frozen=True)
class Case:
    """One comparison: a model, its input, and what is measured against what."""

    name: str
    model: str
    shape: tuple[int, ...]
    batch: int
    steps: int  # in one timed round
    repeats: int
    target: float
    against: str = "plain loop"
    options: tuple[tuple[str, str], ...] = ()


CASES = (
    Case("mlp", "mlp", (1, 28, 28), 50, 120, 31, 0.92),
    Case("lenet5", "lenet5", (1, 28, 28), 50, 40, 21, 0.85),
    Case("resnet18-GroupNorm", "resnet18", (3, 32, 32), 32, 2, 9, 1.02),
    Case("fedprox on lenet5", "lenet5", (1, 28, 28), 50, 40, 21, 1.05, against="fedavg"),
)


def plain_model(case: Case) -> nn.Module:
    """The model as one writes it down."""
    if case.model == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
    if case.model == "lenet5":
        return nn.Sequential(
            *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 120, 5), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
        )
    net = models.build(case.model, input_shape=case.shape, classes=10, seed=1)
    return _LogitsOnly(net)


class _LogitsOnly(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)[1]
        return logits


def plain_loop(case: Case, x: Tensor, y: Tensor) -> Round:
    """The hand-written loop: slices of preloaded tensors, torch.optim.SGD."""
    model = plain_model(case)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)

    def train() -> None:
        for start in range(0, len(y), case.batch):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[start : start + case.batch]), y[start : start + case.batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return train


def engine_round(case: Case, x: Tensor, y: Tensor, method: str) -> Round:
    """A whole local round of the engine: start from the received model, K steps, delta."""
    net = models.build(case.model, input_shape=case.shape, classes=10, seed=1)
    bench = Workbench(net)
    setting = Setting(bench.model.layout, classes=10, features=net.features, clients=1, seed=1)
    found = load(method)
    half = found.client(parse(found.params, dict(case.options)), setting)
    start = bench.params.clone()
    plan = Plan(lr=LR, batch_size=case.batch, momentum=MOMENTUM)
    data, rounds = LocalData(x, y), iter(range(1, 1 << 30))

    def train() -> None:
        work = Local(bench, data, plan, seed=1, index=0, round=next(rounds), received={Kind.MODEL: start})
        steps.run(half, work)

    return train


def measure_case(case: Case) -> dict[str, Any]:
    """Time a case and return its row of the table."""
    generator = torch.Generator().manual_seed(1)
    samples = case.batch * case.steps
    x = torch.rand((samples, *case.shape), generator=generator)
    y = torch.randint(10, (samples,), generator=generator)
    if case.against == "plain loop":
        pair = (plain_loop(case, x, y), engine_round(case, x, y, "fedavg"))
    else:
        pair = (engine_round(case, x, y, "fedavg"), engine_round(case, x, y, "fedprox"))
    for train in pair:
        train()
    times = [_interleaved(pair, turn, case.steps) for turn in range(case.repeats)]
    ratio = statistics.median(ours / base for base, ours in times)
    return {
        "case": f"{case.name}, batch {case.batch}",
        "against": case.against,
        "base_ms": statistics.median(base for base, _ in times),
        "ours_ms": statistics.median(ours for _, ours in times),
        "ratio": ratio,
        "target": case.target,
        "ok": ratio <= case.target,
    }


def _interleaved(pair: tuple[Round, Round], turn: int, steps_done: int) -> tuple[float, float]:
    """Time both once, in turns which goes first; milliseconds per step."""
    found = [0.0, 0.0]
    for place in (0, 1) if turn % 2 == 0 else (1, 0):
        begun = time.perf_counter()
        pair[place]()
        found[place] = (time.perf_counter() - begun) / steps_done * 1e3
    return found[0], found[1]


def measure(only: str = "") -> list[dict[str, Any]]:
    """Time every case whose name contains `only`."""
    torch.set_num_threads(1)
    return [measure_case(case) for case in CASES if only in case.name]


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'local step':28} {'against':12} {'base ms':>9} {'ours ms':>9} {'ratio':>6} {'target':>6}"]
    for row in rows:
        figures = f"{row['base_ms']:9.3f} {row['ours_ms']:9.3f} {row['ratio']:6.3f} {row['target']:6.2f}"
        lines.append(f"{row['case']:28} {row['against']:12} {figures}  {'ok' if row['ok'] else 'MISSED'}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    chosen = parser.parse_args()
    rows = measure(chosen.only)
    print(table(rows))
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
