"""A model taken from a run directory: the numbers of its final or best round in a module, ready to use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgeflock.common.datasets.kit import own
from edgeflock.common.datasets.kit.registry import scaling
from edgeflock.common.datasets.kit.stored import words
from edgeflock.common.errors import BadData, CorruptCheckpoint, MissingData, UsageError
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit.base import Net
from edgeflock.common.tuning import adapters
from edgeflock.server.config import ServerConfig
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.files.run_toml import from_toml
from edgeflock.server.journal.reader import Reader, snapshot
from edgeflock.server.start import build, samples

_SAMPLES = 64  # that an export is checked on
_MORE = 2000  # that one with other numbers is compared on


class Classifier(nn.Module):
    """A model as others use it: samples in, logits out."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net.bare()

    def forward(self, x: Tensor) -> Tensor:
        made = self.net(x)
        logits: Tensor = made[1] if isinstance(made, tuple) else made
        return logits


@dataclass(frozen=True)
class Taken:
    """A model and what is to be known of it."""

    classifier: Classifier  # in evaluation mode
    round: int
    samples: Tensor  # real ones, of the test set, or made up where the server has none
    about: Mapping[str, str]
    closing: bool = False  # the round is the closing task's, after the last one of training
    more: Tensor | None = None  # other samples of the test set, where there are
    made_up: bool = False  # the samples are

    @torch.no_grad()
    def logits(self) -> Tensor:
        logits: Tensor = self.classifier(self.samples)
        return logits


@dataclass(frozen=True)
class Given:
    """Samples of a file."""

    path: Path
    columns: tuple[str, ...] = ()  # of a table; (): as the server was told


@dataclass(frozen=True)
class OpenedRun:
    """What a run's models are read with: its options, its test samples and its mathematics."""

    config: ServerConfig
    test: samples.TestSet
    learner: Any  # as `build` makes it: of the lab nobody knows its type

    def net(self) -> Net:
        return build.build_net(self.config, self.test)

    def require_global(self) -> None:
        """Raise UsageError if the method has no global model."""
        if not self.learner.half.has_result:
            raise UsageError(
                f"{self.config.method} leaves every client its own head: there is no global model to export"
            )

    def load(self, run_dir: Path, round: int, digests: tuple[str, str]) -> Net:
        """Return the global model after a round. Raises BadData with a sentence."""
        try:
            build.load_round(self.learner, run_dir, round, digests)
        except CorruptCheckpoint as error:
            raise BadData(str(error)) from None
        net = self.net()
        fill(FlatModel(net), self.learner.result(), self.learner.result_state().vectors)
        adapters.merge(net, adapters.parse(self.config.adapter or ""))
        return net


def opened(run_dir: Path, data_root: Path | None = None) -> OpenedRun:
    """Return a run's options, test samples and mathematics, before any of its rounds."""
    config = from_toml(run_dir / rundir.RUN_TOML)
    if data_root is not None:
        config = replace(config, data_root=data_root)
    test = samples.load_test_set(config)
    learner, _ = build.build_learner(config, test)
    return OpenedRun(config, test, learner)


def take(run_dir: Path, which: str, data_root: Path | None = None, given: Given | None = None) -> Taken:
    """Return the final or best model of a run, with samples of a file if one is `given`.

    Raises UsageError, MissingData or BadData with a sentence.
    """
    run = opened(run_dir, data_root)
    run.require_global()
    round, digests, closing = _find(run_dir, which)
    net = run.load(run_dir, round, digests)
    about = _about(run.config, run.test, which, round)
    found = run.test.x if given is None else _samples_of(run, net, given)
    samples, more = found[:_SAMPLES], found[_SAMPLES : _SAMPLES + _MORE]
    made_up = not len(samples)
    if made_up:
        samples = _made_up(run.test.input_shape, net)
    return Taken(Classifier(net).eval(), round, samples, about, closing, more if len(more) else None, made_up)


def _samples_of(run: OpenedRun, net: Net, given: Given) -> Tensor:
    """Return the samples of a file, as clients give theirs to the model; labels do not matter."""
    config, task, path = run.config, net.task, given.path
    reading = own.Reading(
        columns=given.columns or config.columns, label=() if given.columns else config.label
    )
    part = own.load_own(path, reading=reading).train
    x, _ = part.take(np.arange(min(len(part), _SAMPLES + _MORE)))
    fit = own.Fit(run.test.input_shape, scaling(config.dataset), task, net.tokens)
    if np.prod(x.shape[1:]) != np.prod(fit.input_shape):
        raise BadData(
            f"{path}: samples have the shape {words(x.shape[1:])}, this run needs "
            f"{words(fit.input_shape)}: of a table --columns says which columns they are"
        )
    return fit.inputs(x)


def _made_up(shape: tuple[int, ...], net: Net) -> Tensor:
    """Return samples of any numbers, the same every time; of tokens those that every vocabulary has."""
    if net.task.tokens or net.tokens:
        return torch.zeros(_SAMPLES, *shape, dtype=torch.int64)
    return torch.randn(_SAMPLES, *shape, generator=torch.Generator().manual_seed(0))


def of_round(run: OpenedRun, run_dir: Path, round: int) -> Net:
    """Return the global model after a round that is kept. Raises MissingData with those that are."""
    run.require_global()
    with snapshot(run_dir) as reader:
        digests = reader.digests(round)
    folders = (run_dir / "rounds").glob("[0-9]*")
    kept = sorted(int(path.name) for path in folders if path.name.isdigit())
    if digests is None or round not in kept:
        held = digests is not None
        hint = f": --keep-every {max(1, round)} would have kept it" if held else ""
        raise MissingData(
            f"round {round} of {run_dir} is not kept, kept are {', '.join(map(str, kept))}{hint}"
        )
    return run.load(run_dir, round, digests)


def fill(flat: FlatModel, parameters: Tensor, vectors: Mapping[str, Tensor]) -> None:
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


def _about(config: ServerConfig, test: samples.TestSet, which: str, round: int) -> dict[str, str]:
    """Return what the file says of itself: enough to build the model again."""
    return {**build.told_of_model(config, test), "which": which, "round": str(round)}
