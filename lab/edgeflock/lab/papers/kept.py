"""What came of a paper here, kept as small files: numbers as CSV, and beside them what they are of."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgeflock.common.command.options import read_toml
from edgeflock.common.command.settings_file import value_text
from edgeflock.common.errors import BadData, UsageError
from edgeflock.lab.grid.grid import Cell, Grid
from edgeflock.lab.grid.options import SEED
from edgeflock.lab.papers.judging.sheet import Sheet, case_of, from_csv, row_of, to_csv
from edgeflock.lab.papers.paper import Paper

_ELSEWHERE = (SEED, "data_root")  # what is not the setting: which seed, and where the data lie
_HEAD = "# what the numbers beside it are of; written by fl-lab paper, not by hand\n"


@dataclass(frozen=True)
class Circumstances:
    """What numbers are of, and where they were made."""

    settings: str  # the digest of all that the file fixes
    seeds: tuple[int, ...]
    quick: bool
    commit: str
    date: str
    machine: str
    torch: str
    cells: int  # that have a result, of all seeds
    of: int
    seconds: float  # that the runs took, one after the other
    failures: tuple[str, ...] = ()  # of runs that have none, in a sentence each
    cautions: tuple[str, ...] = ()  # what stands below the tables of fl-lab compare

    @property
    def span(self) -> str:
        """The seeds in words."""
        return f"{min(self.seeds)} to {max(self.seeds)}" if len(self.seeds) > 1 else f"{min(self.seeds)}"


@dataclass(frozen=True)
class KeptResult:
    """The numbers of a paper's runs, and what they are of."""

    about: Circumstances
    sheet: Sheet
    figures: tuple[Path, ...] = field(default=())


def settings_digest(paper: Paper, *, quick: bool = False) -> str:
    """Return what tells a paper's settings from others: all that its file says of runs, but for the seeds.

    Of what it says, not of what that comes to: an option that a later edgeflock adds changes no setting.
    """
    grid = paper.grid([0], quick=quick)
    told = {_told(cell, grid) for cell in grid.cells}
    told |= {json.dumps(paper.testbed, sort_keys=True)} if paper.testbed else set()
    return hashlib.sha256("\n".join(sorted(told)).encode()).hexdigest()[:12]


def _told(cell: Cell, grid: Grid) -> str:
    given = {name: value for name, value in cell.given.items() if name not in _ELSEWHERE}
    said = [
        case_of(cell),
        row_of(cell),
        given,
        cell.lab.get("client_data"),
        grid.targets_of(cell),
        grid.measure_of(cell),
    ]
    return json.dumps(said, sort_keys=True, default=str)


def write(folder: Path, name: str, about: Circumstances, found: Sheet) -> list[Path]:
    """Write NAME.csv and NAME.toml into a folder; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers, beside = folder / f"{name}.csv", folder / f"{name}.toml"
    text = to_csv(found)
    numbers.write_text(text, "utf-8")
    lines = {**_values(about), "sha256": _digest(text)}
    beside.write_text(
        _HEAD + "".join(f"{key} = {value_text(value)}\n" for key, value in lines.items()), "utf-8"
    )
    return [numbers, beside]


def _values(about: Circumstances) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(about).items()}


def read(folder: Path, paper: Paper) -> KeptResult | None:
    """Return what is kept of a paper, None if nothing is.

    Raises UsageError with a sentence if it is of other settings, BadData if it is damaged.
    """
    numbers, beside = folder / f"{paper.name}.csv", folder / f"{paper.name}.toml"
    if not beside.is_file() or not numbers.is_file():
        return None
    about, text = _about(beside), numbers.read_text("utf-8")
    if about[1] != _digest(text):
        raise BadData(f"{numbers} is not what fl-lab paper has written: {beside.name} names another SHA-256")
    check_settings(about[0], paper, str(numbers))
    return KeptResult(
        about[0], from_csv(text, str(numbers)), tuple(sorted(folder.glob(f"{paper.name}.*svg")))
    )


def copy(source: Path, target: Path, name: str) -> None:
    """Copy a result and its figures; what was kept of it before is gone."""
    target.mkdir(parents=True, exist_ok=True)
    for old in files_of(target, name):
        old.unlink()
    for path in files_of(source, name):
        shutil.copyfile(path, target / path.name)


def files_of(folder: Path, name: str) -> list[Path]:
    """Return the files of a kept result: NAME.csv, NAME.toml, NAME.svg, NAME.2.svg ..."""
    return sorted(path for path in folder.glob(f"{name}.*") if path.suffix in (".csv", ".toml", ".svg"))


def check_settings(about: Circumstances, paper: Paper, where: str) -> None:
    """Refuse a result of other settings than those of the paper's file."""
    mine = settings_digest(paper, quick=about.quick)
    if about.settings != mine:
        raise UsageError(
            f"{where} is of other settings ({about.settings}) than {paper.where} has now ({mine}): "
            f"run fl-lab paper {paper.name} again, or put the file back"
        )


def _about(path: Path) -> tuple[Circumstances, str]:
    table = read_toml(path)
    sha256 = table.pop("sha256", "")
    try:
        lists: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
        }
        return Circumstances(**lists), sha256
    except TypeError:
        raise BadData(f"{path} is not what fl-lab paper writes beside its numbers") from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def seeds_of(found: Sheet) -> Sequence[str]:
    """Return the seeds that there are numbers of."""
    return sorted({seed for numbers in found.numbers.values() for seed in numbers}, key=int)
