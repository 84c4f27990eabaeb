"""A model taken from a run directory: the numbers of its final or best round in a module, ready to use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from edgeflock.common.errors import BadData, CorruptCheckpoint, UsageError
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit.base import Net
from edgeflock.server.config import ServerConfig
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.files.run_toml import from_toml
from edgeflock.server.journal.reader import Reader, snapshot
from edgeflock.server.start import build

_SAMPLES = 64  # that an export is checked on


class Classifier(nn.Module):
    """A model as others use it: samples in, logits out."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)[1]
        return logits


@dataclass(frozen=True)
class Taken:
    """A model and what is to be known of it."""

    classifier: Classifier  # in evaluation mode
    round: int
    samples: Tensor  # real ones, of the test set
    about: Mapping[str, str]
    closing: bool = False  # the round is the closing task's, after the last one of training

    @torch.no_grad()
    def logits(self) -> Tensor:
        logits: Tensor = self.classifier(self.samples)
        return logits


def take(run_dir: Path, which: str, data_root: Path | None = None) -> Taken:
    """Return the final or best model of a run. Raises UsageError, MissingData or BadData with a sentence."""
    config = from_toml(run_dir / rundir.RUN_TOML)
    if data_root is not None:
        config = replace(config, data_root=data_root)
    test = build.load_test_set(config)
    learner, _ = build.build_learner(config, test)
    if not learner.half.has_global:
        raise UsageError(
            f"{config.method} leaves every client its own head: there is no global model to export"
        )
    round, digests, closing = _find(run_dir, which)
    try:
        build.load_round(learner, run_dir, round, digests)
    except CorruptCheckpoint as error:
        raise BadData(str(error)) from None
    net = build.build_net(config, test)
    _fill(FlatModel(net), learner.result(), learner.result_state().vectors)
    about = _about(config, test, which, round)
    return Taken(Classifier(net).eval(), round, test.x[:_SAMPLES], about, closing)


def _fill(flat: FlatModel, parameters: Tensor, vectors: Mapping[str, Tensor]) -> None:
    flat.params.copy_(parameters)
    flat.buffers.copy_(vectors["buffers"])
    flat.counters.copy_(vectors["counters"])
    flat.restore()


def _find(run_dir: Path, which: str) -> tuple[int, tuple[str, str], bool]:
    """Return the round of that model, the digests of its files, and whether it is the closing task's."""
    with snapshot(run_dir) as reader:
        standing = [row for row in reader.rounds() if row.stands]
        round = standing[-1].number if standing else 0
        if which == "best":
            round = _best(run_dir, reader)
        elif "ended_kind" not in reader.meta():
            raise UsageError(f"{run_dir} is not over: --which best gives the best model so far")
        digests = reader.digests(round)
    if digests is None:
        raise BadData(f"{reader.path} names no model of round {round}")
    return round, digests, any(row.number == round and row.last for row in standing)


def _best(run_dir: Path, reader: Reader) -> int:
    found = reader.best()
    if found is None:
        raise UsageError(f"{run_dir} has no evaluation of a global model: --which best has nothing to go by")
    return found[1]


def _about(config: ServerConfig, test: build.TestSet, which: str, round: int) -> dict[str, str]:
    """Return what the file says of itself: enough to build the model again."""
    return {
        "model": config.model,
        "model_arguments": " ".join(f"{key}={value}" for key, value in config.model_arg.items()),
        "input_shape": ",".join(map(str, test.input_shape)),
        "classes": str(test.classes),
        "dataset": config.dataset or "",
        "method": config.method,
        "which": which,
        "round": str(round),
    }
