"""What a program that tracks runs is told beside figures: a run's name and options, its end, its model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from edgeflock.common.command.options import public
from edgeflock.common.errors import EdgeflockError
from edgeflock.lab import history
from edgeflock.lab.grid.grid import CELLS
from edgeflock.lab.history import Ending
from edgeflock.server.config import ServerConfig
from edgeflock.server.files.run_dir import RUN_TOML, write_small
from edgeflock.server.files.run_toml import from_toml

MODEL = "model.safetensors"
_NOTE = "written.json"
_USUAL = "edgeflock"  # the experiment or project of runs that are in no comparison


@dataclass(frozen=True)
class Heading:
    """What a run is, as it is told to a program that tracks runs."""

    name: str
    group: str  # the comparison that it is a cell of, or all others
    options: Mapping[str, str]


def heading(run_dir: Path) -> Heading:
    """Return what a run is. Raises EdgeflockError with a sentence if that cannot be read."""
    config, place = from_toml(run_dir / RUN_TOML), run_dir.absolute()
    group = place.parent.parent.name if place.parent.name == CELLS else _USUAL
    return Heading(place.name, group or _USUAL, dict(_options(config)))


def _options(config: ServerConfig) -> Iterator[tuple[str, str]]:
    for entry in public(config):
        value = getattr(config, entry.name)
        if isinstance(value, Mapping):
            yield from ((f"{entry.name}.{key}", str(one)) for key, one in value.items())
        elif isinstance(value, tuple):
            yield from [(entry.name, ",".join(value))] if value else []
        elif value is not None:
            yield entry.name, str(value)


def ending(run_dir: Path) -> tuple[Ending | None, dict[str, float]]:
    """Return how a run ended, None while it has not, and what it has cost in all."""
    found = history.read(run_dir)
    costs = {f"total/{name}": value for name, value in found.total.items() if name != "samples"}
    return found.ending, costs  # the same samples in every round


@contextmanager
def final_model(run_dir: Path) -> Iterator[Path | None]:
    """Give the file that `fl-lab export` writes of the final model; None, which is said, if there is none."""
    from edgeflock.lab.export import files  # brings torch
    from edgeflock.lab.export.model import take

    with TemporaryDirectory() as folder:
        path = Path(folder) / MODEL
        try:
            files.write(take(run_dir, "final"), "safetensors", path)
        except EdgeflockError as error:
            click.echo(f"no model is written: {error}", err=True)
            yield None
        else:
            yield path


def read_note(place: Path) -> dict[str, Any]:
    """Return what is noted of earlier writing, nothing if there was none."""
    try:
        found = json.loads((place / _NOTE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_note(place: Path, note: Mapping[str, Any]) -> None:
    """Note what is written, for whoever goes on."""
    write_small(place / _NOTE, json.dumps(note) + "\n")
