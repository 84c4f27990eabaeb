"""The models that came back: whole versions, a link to the one that counts, and one that is on its way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edgeflock.client.keeping.files import flush_names, make_folder, replace_file
from edgeflock.common.payload import tensorfile, tensorheader
from edgeflock.common.payload.checksum import GRANULE, Marks
from edgeflock.common.payload.description import MAX_BYTES, CorruptDescription, Description
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.payload.package import Kind, Package
from edgeflock.common.payload.tensorfile import Group

MODEL_FILE, CURRENT = "model.safetensors", "current"  # as `edgeflock.load` looks for them
_VERSIONS, _ARRIVING, _TOLD = "versions", ".arriving", ".told"
_BLOCK = 4 << 20
_NUMPY = {"float32": np.float32, "int64": np.int64}
_TORCH = {"float32": torch.float32, "int64": torch.int64}


@dataclass(frozen=True)
class ModelKey:
    """Which model of which run."""

    run_id: str
    epoch: int
    round: int
    best: bool = False  # the best so far; else the final one

    def metadata(self) -> dict[str, str]:
        """Return it as a file says it."""
        which = "best" if self.best else "final"
        return {"run": self.run_id, "epoch": str(self.epoch), "round": str(self.round), "which": which}


@dataclass(frozen=True)
class Shelf:
    """The folder of a client's models. After a power cut its link leads to a whole version, old or new."""

    path: Path
    saves: str = "final"  # or best
    keep: int = 3  # versions
    command: tuple[str, ...] = ()  # to be run when there is a new one

    @property
    def model(self) -> Path:
        """The file of the current version, whichever that is."""
        return self.path.absolute() / CURRENT / MODEL_FILE

    def holds(self, key: ModelKey) -> bool:
        """Whether the current version is that model; of one that is both best and final it does not matter
        which it was fetched as."""
        said, wanted = self._said(), key.metadata()
        return all(said.get(name) == wanted[name] for name in ("run", "epoch", "round"))

    def put(self, groups: Sequence[Group], metadata: Mapping[str, str]) -> None:
        """Write a version, durably, and let the link lead to it; the oldest ones go."""
        versions = self.path / _VERSIONS
        make_folder(versions, 0o755)
        number = 1 + max((int(name.partition("-")[0]) for name in self._versions()), default=0)
        name = f"{number:06d}-round-{metadata['round']}"
        building = versions / f".{name}"
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir()
        tensorfile.write(building / MODEL_FILE, groups, metadata)
        flush_names(building)
        building.rename(versions / name)
        flush_names(versions)
        self._lead_to(name)
        self._prune(name)

    def arrival(self, key: ModelKey) -> ArrivingModel:
        """Return where the bytes of a model go that is to be fetched, with what came of them before."""
        make_folder(self.path, 0o755)
        return ArrivingModel(self.path / _ARRIVING, key)

    @property
    def untold(self) -> Mapping[str, str] | None:
        """What the current version says of itself, unless the command has been run for it."""
        try:
            name = os.readlink(self.path / CURRENT)
            told = (self.path / _TOLD).read_text("utf-8") if (self.path / _TOLD).exists() else ""
        except OSError:
            return None
        return self._said() if name != told else None

    def tell(self) -> None:
        """Note that the command was run for the current version."""
        replace_file(self.path / _TOLD, os.readlink(self.path / CURRENT).encode())

    def _said(self) -> Mapping[str, str]:
        try:
            with (self.path / CURRENT / MODEL_FILE).open("rb") as file:
                return tensorheader.parse(tensorheader.read(file)).metadata
        except (OSError, ValueError):
            return {}

    def _versions(self) -> list[str]:
        there = os.listdir(self.path / _VERSIONS)
        return sorted(name for name in there if name.partition("-")[0].isdigit())

    def _lead_to(self, name: str) -> None:
        link = self.path / f".{CURRENT}"
        link.unlink(missing_ok=True)
        link.symlink_to(f"{_VERSIONS}/{name}")
        link.replace(self.path / CURRENT)
        flush_names(self.path)

    def _prune(self, current: str) -> None:
        kept = self._versions()[-self.keep :]
        for name in os.listdir(self.path / _VERSIONS):
            if name not in kept and name != current:
                shutil.rmtree(self.path / _VERSIONS / name, ignore_errors=True)


class ArrivingModel:
    """The bytes of a model on their way; a process after this one goes on with those that are there."""

    def __init__(self, path: Path, key: ModelKey) -> None:
        self._path, self._about, self._key = path, path.with_name(f"{path.name}.about"), key
        self.package = self._described()  # None: not known yet
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def begin(self, package: Package) -> None:
        """What comes from now on is that package, from its first byte on."""
        os.ftruncate(self._descriptor, 0)
        described = Description(self._key.round, package, 0).to_bytes({"of": self._key.metadata()})
        replace_file(self._about, described, lasting=False)
        self.package = package

    def marks(self) -> Marks:
        """Return the checksums of what is here, up to the last whole granule of the package."""
        assert self.package is not None
        held = min(os.fstat(self._descriptor).st_size, self.package.size_bytes)
        held -= held % GRANULE if held < self.package.size_bytes else 0
        starts = range(0, held, _BLOCK)
        return Marks.of(os.pread(self._descriptor, min(_BLOCK, held - start), start) for start in starts)

    def write(self, offset: int, data: memoryview) -> None:
        """Take bytes that are known to be good."""
        while data:
            count = os.pwrite(self._descriptor, data, offset)
            data, offset = data[count:], offset + count

    def groups(self, layouts: ModelLayouts) -> list[Group]:
        """Return the tensors of the whole package, as they lie on the disk."""
        return [
            (layout, self._flat(kind, layout))
            for kind, layout in (
                (Kind.COUNTERS, layouts.counters),
                (Kind.MODEL, layouts.parameters),
                (Kind.BUFFERS, layouts.buffers),
            )
        ]

    def _flat(self, kind: Kind, layout: Layout) -> Tensor:
        if not layout.elements or self.package is None:
            return torch.zeros(0, dtype=_TORCH[layout.dtype])
        start, shape = self.package.offset(kind), (layout.elements,)
        return torch.from_numpy(np.memmap(self._path, _NUMPY[layout.dtype], "c", start, shape))

    def drop(self) -> None:
        """Nobody needs it any more."""
        self._path.unlink(missing_ok=True)
        self._about.unlink(missing_ok=True)
        self.package = None

    def close(self) -> None:
        os.close(self._descriptor)

    def _described(self) -> Package | None:
        """Return what is here, if it is of this model."""
        try:
            with self._about.open("rb") as file:
                described, beside = Description.from_bytes(file.read(MAX_BYTES))
        except (OSError, CorruptDescription):
            return None
        return described.package if beside.get("of") == self._key.metadata() else None
