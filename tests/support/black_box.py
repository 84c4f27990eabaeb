"""One run of the real commands on data of its own, and the same run by the reference.

Four clients with an .npz file each, of unequal sizes, two of them without a class; full batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from support import processes
from support.processes import Flock
from support.reference import REFERENCES
from support.reference.base import FedAvg, Run, Training
from support.reference.model import Data, Net, Vector

NET = Net(inputs=10, hidden=16, classes=4)
STEPS = 3
EVERYBODY = ("a", "b", "c", "d")
SIZES = {"a": 41, "b": 17, "c": 30, "d": 9, "public": 36, "score": 22, "eval": 20}
LACKING = {"b": 3, "d": 1}
# The first cohort holds no sample of class 3; gaps of one to four rounds; a, b and d come back.
SCRIPT = (("b",), ("a", "c"), ("b", "c", "d"), ("a", "b"), ("a", "d"))


@dataclass(frozen=True)
class Case:
    """One run: flags given to the server, None where the method's own default serves."""

    method: str
    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, float] = field(default_factory=dict)  # lr, momentum, weight_decay, lr_decay
    partial: bool = False

    @property
    def cohorts(self) -> tuple[tuple[str, ...], ...]:
        return SCRIPT if self.partial else (EVERYBODY,) * len(SCRIPT)

    def __str__(self) -> str:
        return f"{self.method}-{self.name}"


def samples(name: str) -> Data:
    """Return data whose classes differ by their mean, another one for each client, mixed unevenly."""
    generator = np.random.default_rng([5, *name.encode()])
    classes = [label for label in range(NET.classes) if label != LACKING.get(name)]
    shares = generator.dirichlet([0.5] * len(classes))
    y = np.concatenate([classes, generator.choice(classes, SIZES[name] - len(classes), p=shares)])
    centres = np.random.default_rng(8).normal(size=(NET.classes, NET.inputs))
    centres = centres + generator.normal(size=centres.shape)
    x = centres[y] + generator.normal(size=(len(y), NET.inputs))
    return Data(x.astype(np.float32).astype(np.float64), y.astype(np.int64))


def write(folder: Path) -> None:
    """Write the files that the processes read."""
    for name in SIZES:
        data = samples(name)
        np.savez(folder / f"{name}.npz", x=data.x.astype(np.float32), y=data.y)
    (folder / "script").write_text("".join(" ".join(line) + "\n" for line in SCRIPT))


def server_flags(case: Case, folder: Path) -> list[str]:
    flags = {
        "method": case.method,
        "clients": len(EVERYBODY),
        "rounds": len(SCRIPT),
        "eval-data": folder / "eval.npz",
        "eval-every": 0,
        "model": "mlp",
        "model-arg": f"hidden=[{NET.hidden}]",
        "batch-size": 0,
    }
    flags |= {name.replace("_", "-"): value for name, value in case.flags.items()}
    if "tau" not in case.options:
        flags["steps"] = STEPS
    if case.partial:
        flags["cohort-script"] = folder / "script"
    if case.method == "pfedmo":
        flags["public-data"] = folder / "public.npz"
        if not _scored_on_test(case):
            flags["score-data"] = folder / "score.npz"
    return [f"--{name}={value}" for name, value in flags.items()] + [
        f"--set={name}={value}" for name, value in case.options.items()
    ]


@dataclass(frozen=True)
class Outcome:
    """What a run left: the initial and the final model, the line of every committed round."""

    first: Vector
    last: Vector
    rounds: list[dict[str, Any]]


def _scored_on_test(case: Case) -> bool:
    return case.options.get("score_set") == "test"


def product(case: Case, folder: Path, *more: str) -> Outcome:
    """Run the commands; the run directory is `run` in the folder."""
    write(folder)
    with processes.flock(folder) as flock:
        server = flock.server(*server_flags(case, folder), *more)
        clients = [_client(flock, name) for name in EVERYBODY]
        codes = [server.ended(), *(client.ended() for client in clients)]
        assert codes == [0] * len(codes), server.text[-3000:]
        models = ("rounds/000000/model.safetensors", "model.safetensors")
        first, last = (NET.flat(load_file(flock.run_dir / name)) for name in models)
        return Outcome(first, last, server.events("round_committed"))


def _client(flock: Flock, name: str) -> processes.Program:
    return flock.client(name, f"--data={flock.folder / name}.npz")


def reference(case: Case, start: Vector) -> FedAvg:
    """Play the same rounds."""
    made = prepared(case, start)
    for cohort in case.cohorts:
        made.play(cohort)
    return made


def prepared(case: Case, start: Vector) -> FedAvg:
    """Return the reference before its first round."""
    kind = REFERENCES[case.method]
    numbers: dict[str, Any] = {**kind.training, **case.flags}
    clients = {name: samples(name) for name in EVERYBODY}
    score = samples("eval" if _scored_on_test(case) else "score")
    run = Run(NET, clients, Training(steps=STEPS, **numbers), case.options, samples("public"), score)
    return kind(run, start)


def error(first: Vector, last: Vector, expected: Vector) -> float:
    """Return the relative error of the whole update."""
    return float(np.linalg.norm(last - expected) / np.linalg.norm(expected - first))
