"""The runs whose final bits are held: their table, how one is run, and which bits this machine gives.

How the table is written is said in `tests/methods/test_final_bits.py`.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import platform
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from support.processes import flock

TABLE = Path(__file__).parents[1] / "methods" / "final_bits.json"
RECORD = "PYTHONPATH=tests .venv/bin/python -m support.final_bits --record"


# --------------------------------------------------------------------------------- the runs


@dataclass(frozen=True)
class Run:
    """One run of the real commands; its name begins with the method's."""

    flags: str = ""  # of the server, after those of every run
    model: str = ""  # flags that say which, in place of those of every run
    client: str | None = ""  # flags of the client process, after those of every one; None: there is none
    note: str = ""  # why the flags are as they are


@dataclass(frozen=True)
class Recorded:
    """What the runs ended in on machines of one fingerprint."""

    machine: str  # in words
    sha256: dict[str, str] = field(default_factory=dict)  # of model.safetensors, by the run's name


@dataclass(frozen=True)
class Table:
    """The runs, and their bits by fingerprint."""

    every_server: str
    every_model: str
    every_client: str
    runs: dict[str, Run]
    recorded: dict[str, Recorded]

    def end(self, name: str, folder: Path) -> str:
        """Run it with real processes to its end; return the SHA-256 of the final model."""
        run = self.runs[name]
        model = run.model or self.every_model
        server = shlex.split(f"--method={method_of(name)} {self.every_server} {model} {run.flags}")
        with flock(folder) as made:
            programs = [made.server(*server)]
            if run.client is not None:
                programs.append(made.client(*shlex.split(f"{self.every_client} {run.client}")))
            codes = [program.ended() for program in programs]
            assert codes == [0] * len(codes), programs[0].text[-3000:]
            return made.sha256()


def method_of(name: str) -> str:
    return name.partition(",")[0]


def read() -> Table:
    content = json.loads(TABLE.read_text("utf-8"))
    return Table(
        content["every_server"],
        content["every_model"],
        content["every_client"],
        {name: Run(**fields) for name, fields in content["runs"].items()},
        {digest: Recorded(**fields) for digest, fields in content["recorded"].items()},
    )


def write(table: Table) -> None:
    """Write it as people edit it: without the fields that have their default."""
    content = asdict(table)
    for name, run in table.runs.items():
        kept = {key: value for key, value in asdict(run).items() if value != getattr(Run, key)}
        content["runs"][name] = kept
    TABLE.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def net(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The model of runs with BatchNorm, for images of 8x8."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(36, 16),
        nn.Dropout(0.2),
        nn.Linear(16, classes),
    )


# --------------------------------------------------------------------------------- this machine


@functools.cache
def fingerprint() -> str:
    """Return the digest of numbers that torch alone has calculated, in one thread, without the product."""
    digest, threads = hashlib.sha256(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for numbers in _calculated(torch.Generator().manual_seed(13)):
            digest.update(numbers.detach().contiguous().numpy().tobytes())
    finally:
        torch.set_num_threads(threads)
    return digest.hexdigest()[:16]


def _calculated(random: torch.Generator) -> Iterator[Tensor]:
    """Yield what the training of small models is made of, in the shapes of the runs' models and others."""
    draw = functools.partial(torch.randn, generator=random)
    yield from (torch.randperm(97, generator=random), torch.rand(99, generator=random))
    numbers = draw(4099)
    yield from (numbers.exp(), numbers.sum(), numbers.norm(), numbers.double().dot(numbers.double()))
    yield from (numbers.half(), numbers.bfloat16().float(), draw(50, 784) @ draw(784, 100))
    for batch in (17, 50, 64):
        for channels, width, size in ((1, 4, 8), (4, 8, 4), (16, 32, 4)):
            weights = [draw(width, channels, 3, 3), draw(width)]
            yield from _both_ways(draw, functional.conv2d, draw(batch, channels, size, size), weights)
        for inputs, outputs in ((32, 16), (16, 10), (64, 20)):
            weights = [draw(outputs, inputs), draw(outputs)]
            yield from _both_ways(draw, functional.linear, draw(batch, inputs), weights)
    yield from _trained(draw)


def _both_ways(
    draw: Callable[..., Tensor], layer: Callable[..., Tensor], x: Tensor, weights: list[Tensor]
) -> list[Tensor]:
    """Return what a layer makes of a batch, and the gradients of its input and weights."""
    given = [tensor.requires_grad_() for tensor in (x, *weights)]
    y = layer(*given)
    return [y, *torch.autograd.grad(y, given, draw(*y.shape))]


def _trained(draw: Callable[..., Tensor]) -> list[Tensor]:
    """Return the weights after some steps of SGD with momentum on random images, and the last scores."""
    shapes = ((4, 1, 3, 3), (4,), (8, 4, 3, 3), (8,), (10, 32), (10,))
    weights = [(0.3 * draw(*shape)).requires_grad_() for shape in shapes]
    x, y = draw(50, 1, 8, 8), torch.arange(50) % 10
    optimizer = torch.optim.SGD(weights, lr=0.05, momentum=0.9, weight_decay=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        torch.autograd.backward(functional.cross_entropy(_logits(weights, x), y))
        optimizer.step()
    return [*weights, functional.log_softmax(_logits(weights, x), 1)]


def _logits(weights: list[Tensor], x: Tensor) -> Tensor:
    first, its_bias, second, other_bias, head, last_bias = weights
    x = functional.max_pool2d(functional.conv2d(x, first, its_bias, padding=1), 2)
    x = functional.relu(functional.batch_norm(x, None, None, training=True))
    x = functional.max_pool2d(functional.conv2d(x, second, other_bias, padding=1), 2)
    return functional.linear(functional.relu(x.flatten(1)), head, last_bias)


def machine() -> str:
    """Return in words what the fingerprint stands for."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__} on {platform.machine()}, {capability}"


# --------------------------------------------------------------------------------- recording


def record(names: list[str]) -> None:
    """Run these, or all that have no bits of this machine yet, and write down what they end in."""
    table = read()
    here = table.recorded.setdefault(fingerprint(), Recorded(machine()))
    for name in set(here.sha256) - set(table.runs):
        del here.sha256[name]
    for name in names or [name for name in table.runs if name not in here.sha256]:
        here.sha256[name] = _twice(table, name)
        sys.stdout.write(f"{here.sha256[name]}  {name}\n")
        write(table)


def _twice(table: Table, name: str) -> str:
    """Return the bits of a run; one that ends otherwise the second time cannot be held."""
    ends = set()
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            ends.add(table.end(name, Path(folder)))
    if len(ends) > 1:
        raise SystemExit(f"{name} does not end in the same bits twice: find flags that make it repeatable")
    return ends.pop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Which bits this machine gives, and the table of final bits."
    )
    parser.add_argument("--record", nargs="*", metavar="RUN", help="these runs, or all that have no bits yet")
    asked = parser.parse_args().record
    sys.stdout.write(f"fingerprint {fingerprint()}: {machine()}\n")
    if asked is not None:
        record(asked)


if __name__ == "__main__":
    main()
