"""A paper's table or figure as a file: settings as a grid, its own values, claims, deviations, needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeflock.common.command.options import read_toml, unknown
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.lab.compare.figure_spec import read_figures
from edgeflock.lab.grid.grid import Grid, make_grid
from edgeflock.lab.grid.options import SEED
from edgeflock.lab.papers.judging.claims import Claim, read_claim
from edgeflock.lab.papers.judging.paper_table import PaperTable, read_table
from edgeflock.lab.papers.judging.quantity_name import QuantityName, read_quantity
from edgeflock.lab.papers.judging.sheet import rows_of
from edgeflock.lab.papers.small import small
from edgeflock.lab.testbed.plan import make_plan

_OWN = ("paper", "table", "claim", "deviation", "quick")
_TESTBED = ("devices", "medium", "cable", "sweep", "check")  # tables of fl-lab testbed
_TEXTS = ("title", "source", "shows")
_PAPER = (*_TEXTS, "seeds", "minutes", "needs", "note", "also")
_DEVIATION = ("what", "why")


@dataclass(frozen=True)
class Deviation:
    """In what our setting is not the paper's, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Paper:
    """One table or figure of a paper, as its file says it."""

    name: str
    where: str
    title: str
    source: str  # which table or figure of which paper
    shows: str
    seeds: int
    minutes: float  # on two cores
    needs: str  # what has to be there beside data sets, as a sentence; empty: nothing
    testbed: Mapping[str, Any]  # the tables of the testbed on which it runs; empty: it needs none
    note: str
    tables: tuple[PaperTable, ...]
    claims: tuple[Claim, ...]
    deviations: tuple[Deviation, ...]
    grid_table: Mapping[str, Any]  # without seeds
    quick: Mapping[str, Any]
    also: tuple[QuantityName, ...]  # quantities that are kept though no table shows them

    def quantities(self) -> list[QuantityName]:
        """Return every figure that a table or a claim needs, once."""
        found = [table.quantity for table in self.tables]
        found += [one for claim in self.claims for one in claim.quantities()]
        return list({one.text: one for one in (*found, *self.also)}.values())

    def table(self, seeds: Sequence[int], *, quick: bool = False) -> dict[str, Any]:
        """Return the grid's table with its seeds, or that of the small version."""
        table = small(self.grid_table, self.quick) if quick else self.grid_table
        return {**table, "grid": {**table.get("grid", {}), SEED: list(seeds)}}

    def grid(self, seeds: Sequence[int], *, quick: bool = False) -> Grid:
        return self.grid_of(self.table(seeds, quick=quick))

    def grid_of(self, table: Mapping[str, Any]) -> Grid:
        return make_grid(table, self.where)

    @property
    def quick_seeds(self) -> int:
        return int(self.quick.get("seeds", 1))


def read_paper(path: Path) -> Paper:
    """Return the paper of a file. Raises UsageError with a sentence that names the key."""
    return make_paper(read_toml(path), path.stem, str(path))


def make_paper(table: Mapping[str, Any], name: str, where: str) -> Paper:
    """Return the paper of parsed TOML, checked against the grid that it holds."""
    about = table.get("paper")
    if not isinstance(about, dict):
        raise UsageError(f"{where} is no paper's file: it has no [paper]; fl-lab compare runs a grid alone")
    for key in about:
        if key not in _PAPER:
            raise unknown(f"key in [paper] of {where}", key, _PAPER)
    texts = {key: _text(about.get(key), f"{key} in [paper] of {where}") for key in _TEXTS}
    grid_table = {key: value for key, value in table.items() if key not in (*_OWN, *_TESTBED)}
    if SEED in grid_table.get("grid", {}) or SEED in grid_table.get("run", {}):
        raise UsageError(f"{SEED} in {where}: seeds are 0, 1, 2 ..., as many as [paper] says")
    testbed = {key: table[key] for key in _TESTBED if key in table}
    one_seed = {**grid_table, "grid": {**grid_table.get("grid", {}), SEED: [0]}}
    grid = make_plan({**one_seed, **testbed}, where).grid if testbed else make_grid(one_seed, where)
    read_figures(grid.figures, grid.axes, where, grid.figure.name)
    rows = rows_of(grid)
    return Paper(
        name=name,
        where=where,
        **texts,
        seeds=_number(about.get("seeds", 3), f"seeds in [paper] of {where}", whole=True),
        minutes=_number(about.get("minutes"), f"minutes in [paper] of {where}"),
        needs=str(about.get("needs", "")),
        testbed=testbed,
        note=str(about.get("note", "")),
        tables=tuple(
            read_table(one, rows, f"[[table]] {number} of {where}")
            for number, one in enumerate(_several(table, "table", where), 1)
        ),
        claims=tuple(
            read_claim(one, rows, f"[[claim]] {number} of {where}")
            for number, one in enumerate(_several(table, "claim", where), 1)
        ),
        deviations=tuple(
            _deviation(one, f"[[deviation]] {number} of {where}")
            for number, one in enumerate(_several(table, "deviation", where), 1)
        ),
        grid_table=grid_table,
        quick=_quick(table.get("quick", {}), grid_table, where),
        also=tuple(read_quantity(text, f"also in [paper] of {where}") for text in about.get("also", [])),
    )


def _quick(value: Any, table: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return the small version's table; that it makes a grid is checked, too."""
    if not isinstance(value, dict):
        raise BadValue(f"quick in {where}", value, "a table, [quick]")
    made = small(table, value, f"[quick] of {where}")
    make_grid({**made, "grid": {**made.get("grid", {}), SEED: [0]}}, f"{where}, [quick]")
    return value


def _several(table: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise BadValue(f"{key} in {where}", value, f"tables, [[{key}]]")
    return value


def _deviation(table: Any, where: str) -> Deviation:
    if not isinstance(table, dict) or set(table) != set(_DEVIATION):
        raise BadValue(where, table, "a table of what and why")
    return Deviation(*(_text(table[key], f"{key} in {where}") for key in _DEVIATION))


def _text(value: Any, label: str) -> str:
    if not isinstance(value, str) or not value:
        raise BadValue(label, value, "a text")
    return value


def _number(value: Any, label: str, *, whole: bool = False) -> Any:
    good = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool) and value > 0
    if not good:
        raise BadValue(label, value, "a whole number from 1" if whole else "a number above 0")
    return value
