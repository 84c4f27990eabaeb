"""A model trained or tested by a plain PyTorch loop, alone in a fresh process, on one thread.

`python -m benchmarks.plain_loop step|test MODEL BATCH COUNT` prints CPU and wall milliseconds of one step, or
of one walk over COUNT samples, as JSON: the medians of its rounds, the first left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from benchmarks.children import Failed, environment
from edgeflock.common.models.kit import registry as models

LR, MOMENTUM, CLASSES = 0.01, 0.9, 10
SHAPES = {"mlp": (1, 28, 28), "lenet5": (1, 28, 28), "resnet18": (3, 32, 32)}
ROUNDS = 6  # the first warms up
_LIMIT_S = 600


def data(model: str, samples: int) -> tuple[Tensor, Tensor]:
    """Return random samples for a model; the same for the same arguments."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand((samples, *SHAPES[model]), generator=generator)
    return x, torch.randint(CLASSES, (samples,), generator=generator)


def written_down(model: str) -> nn.Module:
    """Return the model as one writes it down."""
    if model == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, CLASSES))
    if model == "lenet5":
        return nn.Sequential(
            *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 120, 5), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES)),
        )
    return _LogitsOnly(models.build(model, input_shape=SHAPES[model], classes=CLASSES, seed=1))


class _LogitsOnly(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)[1]
        return logits


def trainer(model: str, batch: int, count: int) -> Callable[[], None]:
    """Return so many steps: slices of preloaded tensors, torch.optim.SGD."""
    net, (x, y) = written_down(model), data(model, batch * count)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM)

    def train() -> None:
        for start in range(0, len(y), batch):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x[start : start + batch]), y[start : start + batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return train


def tester(model: str, batch: int, count: int) -> Callable[[], None]:
    """Return one test on so many samples: accuracy and mean loss."""
    net, (x, y) = written_down(model).eval(), data(model, count)

    @torch.no_grad()
    def test() -> None:
        hits, loss = 0, 0.0
        for start in range(0, len(y), batch):
            labels = y[start : start + batch]
            logits = net(x[start : start + batch])
            hits += int((logits.argmax(1) == labels).sum())
            loss += float(F.cross_entropy(logits, labels)) * len(labels)

    return test


def milliseconds(what: str, model: str, batch: int, count: int) -> dict[str, float]:
    """Run it in a process of its own and return what it says; raises Failed."""
    words = [sys.executable, "-m", "benchmarks.plain_loop", what, model, str(batch), str(count)]
    try:
        done = subprocess.run(words, env=environment(), timeout=_LIMIT_S, check=True, capture_output=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from None
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plain_loop", description=__doc__)
    parser.add_argument("what", choices=("step", "test"))
    parser.add_argument("model", choices=SHAPES)
    parser.add_argument("batch", type=int)
    parser.add_argument("count", type=int)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    make, parts = (trainer, asked.count) if asked.what == "step" else (tester, 1)
    work = make(asked.model, asked.batch, asked.count)
    cpu, wall = list[float](), list[float]()
    for _ in range(ROUNDS):
        used, begun = time.process_time(), time.perf_counter()
        work()
        cpu.append((time.process_time() - used) / parts * 1e3)
        wall.append((time.perf_counter() - begun) / parts * 1e3)
    print(json.dumps({"cpu_ms": statistics.median(cpu[1:]), "wall_ms": statistics.median(wall[1:])}))


if __name__ == "__main__":
    main()
