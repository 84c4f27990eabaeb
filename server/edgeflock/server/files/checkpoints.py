"""Checkpoints: the state after every kept round, each round in a directory of its own, made in one rename.

Paths with a round in them are text, here and in the spool: pathlib enters each new name into the
interpreter's table of names, which takes 2 to 6 MiB more at a time as the rounds go on.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch

from edgeflock.common.flat import Change, grouped, regrouped
from edgeflock.common.payload import tensorfile
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.payload.tensorfile import Group, Written
from edgeflock.methods.kit.values import State
from edgeflock.server.files.run_dir import sync_directory

MODEL_FILE = "model.safetensors"
STATE_FILE = "state.safetensors"
MODEL_VECTORS = (
    "counters",
    "model",
    "buffers",
)  # in this order in the file; integers first keeps all aligned


@dataclass(frozen=True)
class Saved:
    """A round on disk."""

    model: Written
    state_digest: str  # empty: the method has no state of its own


class Checkpoints:
    """The `rounds/` directory of a run."""

    def __init__(
        self,
        run_dir: Path,
        layouts: ModelLayouts,
        constants: Mapping[str, torch.Tensor] = MappingProxyType({}),
        merge: Change | None = None,
    ) -> None:
        self.run_dir = run_dir
        self.root = run_dir / "rounds"
        self.layouts = layouts
        self._merge = merge  # of the result's tensors, where what was trained stands beside them
        self._constants = constants  # buffers of the model that are the same in every round

    def path(self, round: int) -> str:
        return f"{self.root}/{round:06d}"

    def model_path(self, round: int) -> str:
        return f"{self.path(round)}/{MODEL_FILE}"

    def save(self, round: int, state: State) -> Saved:
        """Make the round's directory durable; the journal then names it."""
        temporary = f"{self.root}/.tmp-{round:06d}"
        for left in (temporary, self.path(round)):  # from an attempt that the journal does not know
            shutil.rmtree(left, ignore_errors=True)
        if not self.root.exists():
            self.root.mkdir(parents=True)
            sync_directory(self.run_dir)
        os.mkdir(temporary)
        model = tensorfile.write(
            f"{temporary}/{MODEL_FILE}", self._model_groups(state), {"round": str(round)}
        )
        own = self._own_groups(state)
        digest = ""
        if own or state.scalars:
            metadata = {"round": str(round), "scalars": json.dumps(state.scalars, sort_keys=True)}
            digest = tensorfile.write(f"{temporary}/{STATE_FILE}", own, metadata).digest
        sync_directory(temporary)
        os.rename(temporary, self.path(round))
        sync_directory(self.root)
        return Saved(model, digest)

    def load(self, round: int, into: State, digests: tuple[str, str]) -> Saved:
        """Fill a state, whose vectors have the right sizes, from a kept round.

        Raises CorruptCheckpoint if a file is not what the journal names.
        """
        folder = self.path(round)
        _, model = tensorfile.read(f"{folder}/{MODEL_FILE}", self._model_groups(into), digests[0])
        into.scalars = {}
        if digests[1]:
            metadata, _ = tensorfile.read(f"{folder}/{STATE_FILE}", self._own_groups(into), digests[1])
            into.scalars = json.loads(metadata.get("scalars", "{}"))
        return Saved(model, digests[1])

    def write_result(self, state: State, parameters: torch.Tensor) -> Path:
        """Write the run's model, atomically, with the buffers that never changed."""
        final, temporary = self.run_dir / MODEL_FILE, self.run_dir / f".tmp-{MODEL_FILE}"
        groups = [
            (self.layouts.of(name), parameters if name == "model" else state.vectors[name])
            for name in MODEL_VECTORS
        ]
        groups += grouped(self._constants)
        whole = groups if self._merge is None else regrouped(groups, self._merge)
        tensorfile.write(temporary, whole, {})
        temporary.rename(final)
        sync_directory(self.run_dir)
        return final

    def kept(self) -> list[int]:
        """Return the rounds that are on disk, ascending."""
        return sorted(int(name) for name in self._names() if name.isdigit())

    def prune(self, keep: Collection[int], *, upto: int | None = None) -> None:
        """Remove every other round and half-made directories, of later rounds than `upto` nothing."""
        for name in self._names():
            number = name.removeprefix(".tmp-")
            if not number.isdigit() or (upto is not None and int(number) > upto):
                continue
            if number != name or int(number) not in keep:
                shutil.rmtree(f"{self.root}/{name}", ignore_errors=True)

    def _names(self) -> list[str]:
        return os.listdir(self.root) if self.root.exists() else []

    def forget_after(self, round: int) -> None:
        """Remove later rounds, durably: a journal that goes back must not meet them again."""
        self.prune([number for number in self.kept() if number <= round])
        sync_directory(self.root)

    def _model_groups(self, state: State) -> list[Group]:
        return [(self.layouts.of(name), state.vectors[name]) for name in MODEL_VECTORS]

    def _own_groups(self, state: State) -> list[Group]:
        return [
            (Layout.single(name, vector.numel()), vector)
            for name, vector in sorted(state.vectors.items())
            if name not in MODEL_VECTORS
        ]
