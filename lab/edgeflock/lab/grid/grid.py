"""Grids of runs: a TOML file with lists of options becomes cells, each one run, checked before any starts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgeflock.common.command.options import public, read_toml, unknown
from edgeflock.common.errors import BadValue, EdgeflockError, UsageError
from edgeflock.common.scores import LOCAL, POOLED
from edgeflock.lab.grid import identity
from edgeflock.lab.grid.options import (
    METHOD,
    Choice,
    axis_of,
    label_of,
    method_of,
    section,
    text_of,
    values_of,
)
from edgeflock.lab.history import GLOBAL
from edgeflock.lab.run.config import LabConfig
from edgeflock.methods.kit.registry import load, names
from edgeflock.server.config import ServerConfig
from edgeflock.server.files.run_dir import RUN_TOML
from edgeflock.server.files.run_toml import from_toml

SEED = "seed"
CELLS = "cells"  # where the run directories lie in that of a comparison
_TOP = ("grid", "run", METHOD, "baseline", "target", "measure", "last", "at", "figure")
_MEASURE = "measure"
_INSIDE = "options of the runs stand in [run], or in [grid] as lists"
_DEFAULT = ServerConfig().method


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    labels: Mapping[str, str]  # the value of every axis, as text
    given: Mapping[str, Any]  # options of fl-server
    lab: Mapping[str, Any]  # options of fl-lab run
    config: ServerConfig  # what they resolve to
    digest: str
    digest_before: str  # as an earlier edgeflock made it, of fewer options
    targets: tuple[float, ...] = ()  # its own; empty: the grid's
    measure: str = ""  # its own; empty: the grid's

    @property
    def method(self) -> str:
        """The name of the method or of its variant."""
        return self.labels.get(METHOD, self.config.method)

    @property
    def folder(self) -> str:
        return f"{self.method}-{self.digest}"

    @property
    def name(self) -> str:
        """The cell for people: fedprox seed=1 partition=iid."""
        return _name(self.method, self.labels)

    def with_data(self, root: Path) -> Cell:
        """Return the cell with its data sets elsewhere: that does not make it another one."""
        return replace(
            self, given={**self.given, "data_root": root}, config=replace(self.config, data_root=root)
        )

    @property
    def group(self) -> Mapping[str, str]:
        """The labels that cells have in common over which is averaged: all but the seed."""
        return {axis: label for axis, label in self.labels.items() if axis != SEED}


def run_dir(out: Path, cell: Cell) -> Path:
    """Return where a cell's run lies in the directory of its comparison.

    One that an earlier edgeflock has made is there by another name: it is this cell's if it is no other run.
    """
    here, before = out / CELLS / cell.folder, out / CELLS / f"{cell.method}-{cell.digest_before}"
    kept = not here.exists() and (before / RUN_TOML).exists() and not _difference(before, cell)
    return before if kept else here


def _difference(folder: Path, cell: Cell) -> str:
    return identity.difference(from_toml(folder / RUN_TOML), cell.config)


@dataclass(frozen=True)
class Grid:
    """All cells, in the order in which they are run, and what is asked of them."""

    cells: tuple[Cell, ...]
    axes: Mapping[str, tuple[str, ...]]  # the labels of every axis, in the file's order
    targets: tuple[float, ...]
    baseline: Mapping[str, str]  # labels; empty: there is none
    measure: str  # the model whose accuracy counts
    last: int = 0  # so many last rounds have a mean of their own in the tables; 0: none
    at: tuple[int, ...] = ()  # rounds whose accuracy stands in the tables
    figures: tuple[Mapping[str, Any], ...] = ()  # pictures beside the usual one, as the file asks for them

    def targets_of(self, cell: Cell) -> tuple[float, ...]:
        return cell.targets or self.targets

    def measure_of(self, cell: Cell) -> str:
        return cell.measure or self.measure


def read_grid(path: Path) -> Grid:
    """Return the grid of a file. Raises UsageError with a sentence that names the key."""
    return make_grid(read_toml(path), str(path))


def make_grid(table: Mapping[str, Any], where: str) -> Grid:
    """Return the grid of parsed TOML."""
    if not table:
        raise UsageError(f"{where} describes no run: {_INSIDE}")
    for key in table:
        if key not in _TOP:
            raise UsageError(f"unknown key in {where}: {key}, known are {', '.join(_TOP)}; {_INSIDE}")
    sections = {name: section(table, name, where) for name in ("grid", "run", METHOD)}
    fixed = values_of(sections["run"], f"[run] of {where}")
    axes = {key: axis_of(key, values, where) for key, values in sections["grid"].items()}
    if twice := sorted(axes.keys() & sections["run"].keys()):
        raise UsageError(f"{twice[0]} stands in [grid] and in [run] of {where}: give it once")
    named = [label for label, _ in axes[METHOD]] if METHOD in axes else [fixed.get(METHOD, _DEFAULT)]
    methods = {name: method_of(name, sections[METHOD].get(name, {}), axes, where) for name in named}
    measures = {
        name: read_measure(options[_MEASURE], f"{_MEASURE} in [method.{name}] of {where}")
        for name, options in sections[METHOD].items()
        if isinstance(options, dict) and _MEASURE in options
    }
    for name in sections[METHOD]:
        if name not in methods:
            raise unknown(f"method in [method.{name}] of {where}, which the grid does not run", name, methods)
    labels = {key: tuple(label for label, _ in values) for key, values in axes.items()}
    cells = (_cell(choice, fixed, methods, axes) for choice in _choices(axes))
    return Grid(
        cells=tuple(replace(cell, measure=measures.get(cell.method, "")) for cell in cells),
        axes=labels,
        targets=read_targets(table.get("target", []), f"target in {where}"),
        baseline=read_baseline(table.get("baseline", {}), labels, f"baseline in {where}"),
        measure=read_measure(table.get("measure", GLOBAL), f"measure in {where}"),
        last=_count(table.get("last", 0), f"last in {where}", 0),
        at=tuple(_count(round, f"at in {where}", 1) for round in _listed(table.get("at", []))),
        figures=_tables(table.get("figure", []), f"figure in {where}"),
    )


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _count(value: Any, label: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BadValue(label, value, f"whole numbers from {least}")
    return value


def _tables(value: Any, label: str) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise BadValue(label, value, "tables, [[figure]]")
    return tuple(value)


def read_measure(value: Any, label: str) -> str:
    """Return the name of the model whose accuracy counts: one that some method has tested."""
    name = text_of(value, label)
    known = {GLOBAL, LOCAL, POOLED, *(model for method in names() for model in load(method).models)}
    if name not in known:
        raise BadValue(label, name, ", ".join(sorted(known)))
    return name


def read_targets(value: Any, label: str) -> tuple[float, ...]:
    """Return target accuracies, ascending, from a number or a list of them."""
    found = value if isinstance(value, list | tuple) else [value]
    for target in found:
        if not isinstance(target, int | float) or isinstance(target, bool) or not 0 < target <= 1:
            raise BadValue(label, target, "accuracies in (0, 1]")
    return tuple(sorted({float(target) for target in found}))


def read_baseline(value: Any, axes: Mapping[str, Sequence[str]], label: str) -> dict[str, str]:
    """Return the labels of the baseline, from the name of a method, AXIS=VALUE, or a table of axes."""
    if isinstance(value, str):
        axis, equals, name = value.partition("=")
        value = {axis: name} if equals else {METHOD: value}
    if not isinstance(value, dict):
        raise BadValue(label, value, "the name of a method, or values of axes")
    found = {axis: label_of(entry) for axis, entry in value.items()}
    for axis, entry in found.items():
        if axis == SEED or axis not in axes:
            raise BadValue(
                label, axis, f"one of the grid's axes: {', '.join(a for a in axes if a != SEED) or 'none'}"
            )
        if entry not in axes[axis]:
            raise BadValue(label, entry, f"one of {', '.join(axes[axis])}, which the grid runs")
    return found


# ---------------------------------------------------------------------------------------------- the cells


def _choices(
    axes: Mapping[str, list[Choice]],
) -> list[dict[str, Choice]]:
    """Return every combination; seeds change slowest, so that soon every method has a figure."""
    order = sorted(axes, key=lambda key: key != SEED)
    products = itertools.product(*(axes[key] for key in order))
    return [dict(zip(order, values, strict=True)) for values in products]


def _cell(
    choice: Mapping[str, Choice],
    fixed: Mapping[str, Any],
    methods: Mapping[str, dict[str, Any]],
    axes: Mapping[str, Any],
) -> Cell:
    labels = {axis: choice[axis][0] for axis in axes}
    method = labels[METHOD] if METHOD in labels else str(fixed.get(METHOD, _DEFAULT))
    chosen = {
        name: value for _, values in choice.values() for name, value in values.items() if name != METHOD
    }
    given = _layered(fixed, methods[method], chosen)
    lab = {entry.name: given.pop(entry.name) for entry in public(LabConfig) if entry.name in given}
    config = _resolved(given, _name(method, labels))
    digest, before = (make(config, lab, axes) for make in (identity.digest, identity.digest_before))
    return Cell(labels, given, lab, config, digest, before)


def _layered(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Put options over others: epochs and steps replace each other."""
    given: dict[str, Any] = {}
    for layer in layers:
        for name, other in (("epochs", "steps"), ("steps", "epochs")):
            if name in layer and other not in layer:
                given.pop(other, None)
        given |= layer
    return given


def _resolved(given: Mapping[str, Any], name: str) -> ServerConfig:
    from edgeflock.server.start.resolve import combine

    try:
        return combine(given)
    except EdgeflockError as error:
        raise UsageError(f"{name}: {error}") from None


def _name(method: str, labels: Mapping[str, str]) -> str:
    return " ".join([method, *(f"{axis}={label}" for axis, label in labels.items() if axis != METHOD)])
