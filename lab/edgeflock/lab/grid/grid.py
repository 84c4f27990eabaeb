"""Grids of runs: a TOML file with lists of options becomes cells, each one run, checked before any starts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgeflock.common.command.options import public, read_toml, unknown
from edgeflock.common.errors import BadValue, EdgeflockError, UsageError
from edgeflock.common.plugins.loading import is_reference
from edgeflock.common.scores import ACCURACY, DEVICES, LOCAL, POOLED, Metric
from edgeflock.lab.grid import identity
from edgeflock.lab.grid.cases import CASE, Case, check_cases, read_cases
from edgeflock.lab.grid.options import METHOD, SEED, Choice, axis_of, label_of, section, text_of, values_of
from edgeflock.lab.grid.rows import (
    MethodRow,
    applies,
    check_rows,
    flat,
    is_own,
    options_of,
    own_axis_of,
    row_of,
)
from edgeflock.lab.history import GLOBAL
from edgeflock.lab.run.config import LabConfig
from edgeflock.methods.kit.registry import load, names
from edgeflock.server.config import ServerConfig
from edgeflock.server.files.run_dir import RUN_TOML
from edgeflock.server.files.run_toml import from_toml
from edgeflock.server.start.resolve import judged_by

CELLS = "cells"  # where the run directories lie in that of a comparison
_TOP = ("grid", "run", CASE, METHOD, "baseline", "target", "measure", "last", "at", "figure")
_INSIDE = "options of the runs stand in [run], or in [grid] as lists"
_DEFAULT = ServerConfig().method


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    labels: Mapping[str, str]  # the value of every axis that is for its method, as text
    given: Mapping[str, Any]  # options of fl-server
    lab: Mapping[str, Any]  # options of fl-lab run
    config: ServerConfig  # what they resolve to
    digest: str
    digest_before: str  # as an earlier edgeflock made it, of fewer options
    folder: str  # of its run, below that of all cells
    targets: tuple[float, ...] | None = None  # of its case or method, ascending; None: the grid's
    measure: str = ""  # of its case or method; empty: the grid's

    @property
    def method(self) -> str:
        """The name of the method or of its variant."""
        return self.labels.get(METHOD, self.config.method)

    @property
    def name(self) -> str:
        """The cell for people: fedprox seed=1 partition=iid."""
        return shown_name(self.method, self.labels)

    def with_data(self, root: Path) -> Cell:
        """Return the cell with its data sets elsewhere: that does not make it another one."""
        return replace(
            self, given={**self.given, "data_root": root}, config=replace(self.config, data_root=root)
        )

    def anywhere(self) -> Cell:
        """Return the cell with paths that do not depend on where its command is typed."""
        given = {
            name: value.absolute() if isinstance(value, Path) else value for name, value in self.given.items()
        }
        lab, data = dict(self.lab), str(self.lab.get("client_data", ""))
        if data and not is_reference(data):
            lab["client_data"] = str(Path(data).absolute())
        return replace(self, given=given, lab=lab)

    @property
    def group(self) -> Mapping[str, str]:
        """The labels that cells have in common over which is averaged: all but the seed."""
        return {axis: label for axis, label in self.labels.items() if axis != SEED}


def shown_name(method: str, labels: Mapping[str, str]) -> str:
    """Return a cell, or several that differ in other axes, for people: fedtrip seed=1 mu=0.4."""
    rest = (f"{axis.removeprefix(f'{method}.')}={label}" for axis, label in labels.items() if axis != METHOD)
    return " ".join([method, *rest])


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
    targets: tuple[float, ...]  # of all cells
    baseline: Mapping[str, str]  # labels; empty: there is none
    measure: str  # the model that counts
    last: int = 0  # so many last rounds have a mean of their own in the tables; 0: none
    at: tuple[int, ...] = ()  # rounds whose tests stand in the tables
    figures: tuple[Mapping[str, Any], ...] = ()  # pictures beside the usual one, as the file asks for them
    figure: Metric = ACCURACY  # by which models are judged

    def targets_of(self, cell: Cell) -> tuple[float, ...]:
        return self.targets if cell.targets is None else cell.targets

    def measure_of(self, cell: Cell) -> str:
        return cell.measure or self.measure

    @property
    def runs(self) -> tuple[Cell, ...]:
        """The cells without those that another one's run answers, too."""
        return tuple({cell.folder: cell for cell in reversed(self.cells)}.values())[::-1]

    def only(self, cell: Cell) -> Grid:
        """Return the grid with one of its cells alone."""
        return replace(self, cells=(cell,))


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
    plan = _plan(table, where)
    labels = {key: tuple(label for label, _ in values) for key, values in plan.axes.items()}
    cells = _sharing(_each_with_targets([_cell(choice, plan) for choice in _choices(plan)], plan.targets))
    return Grid(
        cells=cells,
        axes=labels,
        targets=_ascending(
            plan.figure,
            (target for cell in cells for target in (plan.targets if cell.targets is None else cell.targets)),
        ),
        baseline=read_baseline(table.get("baseline", {}), labels, f"baseline in {where}"),
        measure=plan.measure,
        last=_count(table.get("last", 0), f"last in {where}", 0),
        at=tuple(_count(round, f"at in {where}", 1) for round in _listed(table.get("at", []))),
        figures=_tables(table.get("figure", []), f"figure in {where}"),
        figure=plan.figure,
    )


@dataclass(frozen=True)
class _Plan:
    """A grid's file, read: what cells are made of."""

    fixed: Mapping[str, Any]  # options of [run]
    rows: Mapping[str, MethodRow]  # by the labels of the methods
    cases: Mapping[str, Case]
    axes: Mapping[str, list[Choice]]  # the cases first
    targets: tuple[float, ...]
    measure: str
    where: str
    figure: Metric = ACCURACY

    @property
    def varied(self) -> set[str]:
        """The options that a plain axis or a case varies."""
        plain = {key for key in self.axes if key != CASE and not is_own(key)}
        return plain | {key for case in self.cases.values() for key in case.options}


def _plan(table: Mapping[str, Any], where: str) -> _Plan:
    sections = {name: section(table, name, where) for name in ("grid", "run", METHOD)}
    fixed = values_of(sections["run"], f"[run] of {where}")
    cases = read_cases(table.get(CASE, []), where)
    axes = _axes(sections["grid"], cases, where)
    if twice := sorted(axes.keys() & sections["run"].keys()):
        raise UsageError(f"{twice[0]} stands in [grid] and in [run] of {where}: give it once")
    rows = _rows(sections[METHOD], axes, fixed.get(METHOD, _DEFAULT), where)
    check_cases(cases.values(), rows.values(), axes)
    check_rows(filter(is_own, axes), rows.values(), f"[grid] of {where}")
    figure = figure_of(table)
    targets = read_targets(table.get("target", []), f"target in {where}", figure)
    methods = [row.method for row in rows.values()]
    measure = read_measure(table.get("measure", GLOBAL), f"measure in {where}", methods)
    return _Plan(fixed, rows, cases, axes, targets, measure, where, figure)


def _axes(table: Mapping[str, Any], cases: Mapping[str, Case], where: str) -> dict[str, list[Choice]]:
    axes: dict[str, list[Choice]] = {CASE: [(name, {}) for name in cases]} if cases else {}
    for key, values in flat(table).items():
        axes[key] = (
            own_axis_of(key, values, f"[grid] of {where}") if is_own(key) else axis_of(key, values, where)
        )
    return axes


def _rows(
    tables: Mapping[str, Any], axes: Mapping[str, list[Choice]], alone: str, where: str
) -> dict[str, MethodRow]:
    named = [label for label, _ in axes[METHOD]] if METHOD in axes else [alone]
    rows = {name: row_of(name, tables.get(name, {}), axes, where) for name in named}
    for name in tables:
        if name not in rows:
            raise unknown(f"method in [method.{name}] of {where}, which the grid does not run", name, rows)
    return rows


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


def read_measure(value: Any, label: str, methods: Sequence[str] = ()) -> str:
    """Return the name of the model that counts: one that some method has tested."""
    name = text_of(value, label)
    every = dict.fromkeys([*names(), *methods])
    known = {GLOBAL, DEVICES, LOCAL, POOLED, *(model for method in every for model in load(method).models)}
    if name not in known:
        raise BadValue(label, name, ", ".join(sorted(known)))
    return name


def figure_of(table: Mapping[str, Any]) -> Metric:
    """Return by what the models of a grid's runs are judged, from its table; of several tasks the first."""
    run, axes = table.get("run", {}), table.get("grid", {})
    asked = [_listed(axes.get(key, run.get(key, "")))[:1] for key in ("task", "watch")]
    task, watch = (str(values[0]) if values else "" for values in asked)
    return judged_by(task or ServerConfig().task, watch)


def read_targets(value: Any, label: str, figure: Metric = ACCURACY) -> tuple[float, ...]:
    """Return targets of a figure, the hardest one at the end, from a number or a list of them."""
    found = value if isinstance(value, list | tuple) else [value]
    allowed = "accuracies in (0, 1]" if figure == ACCURACY else f"values of {figure.name}"
    for target in found:
        number = isinstance(target, int | float) and not isinstance(target, bool)
        if not number or not math.isfinite(target) or (figure.share and not 0 < target <= 1):
            raise BadValue(label, target, allowed)
    return _ascending(figure, map(float, found))


def _ascending(figure: Metric, targets: Iterable[float]) -> tuple[float, ...]:
    return tuple(sorted(set(targets), reverse=not figure.higher))


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


def _choices(plan: _Plan) -> list[dict[str, Choice]]:
    """Return every combination once; seeds change slowest, so that soon every method has a figure.

    An option of one method is no axis of the others.
    """
    order = sorted(plan.axes, key=lambda key: key != SEED)
    found: dict[tuple[str, ...], dict[str, Choice]] = {}
    for values in itertools.product(*(plan.axes[key] for key in order)):
        every = dict(zip(order, values, strict=True))
        row = _row(every, plan)
        mine = {key: every[key] for key in plan.axes if not is_own(key) or applies(key, row, plan.axes)}
        found.setdefault(tuple(f"{key}={label}" for key, (label, _) in mine.items()), mine)
    return list(found.values())


def _row(choice: Mapping[str, Choice], plan: _Plan) -> MethodRow:
    return plan.rows[choice[METHOD][0]] if METHOD in choice else next(iter(plan.rows.values()))


def _cell(choice: Mapping[str, Choice], plan: _Plan) -> Cell:
    labels = {axis: label for axis, (label, _) in choice.items()}
    row, case = _row(choice, plan), plan.cases[labels[CASE]] if CASE in labels else None
    layers = [
        plan.fixed,
        case.options if case else {},
        row.options,
        case.options_of(row) if case else {},
        *(_options(axis, values, row, plan) for axis, (_, values) in choice.items()),
    ]
    given = _layered(*layers)
    lab = {entry.name: given.pop(entry.name) for entry in public(LabConfig) if entry.name in given}
    config = _resolved(given, shown_name(row.name, labels))
    told_apart = [make(config, lab, plan.varied) for make in (identity.digest, identity.digest_before)]
    asked = case.asked_of(row) if case else row.asked
    where = f"of {shown_name(row.name, labels)} in {plan.where}"
    return Cell(
        labels=labels,
        given=given,
        lab=lab,
        config=config,
        digest=told_apart[0],
        digest_before=told_apart[1],
        folder=f"{row.name}-{told_apart[0]}",
        targets=read_targets(asked["target"], f"target {where}", plan.figure) if "target" in asked else None,
        measure=read_measure(asked["measure"], f"measure {where}") if "measure" in asked else "",
    )


def _options(axis: str, values: dict[str, Any], row: MethodRow, plan: _Plan) -> dict[str, Any]:
    """Return what a value of an axis stands for; the method itself is that of the row."""
    if is_own(axis):
        return options_of(row.method, values, f"[grid] of {plan.where}")
    return {} if axis == METHOD else values


def _each_with_targets(cells: Sequence[Cell], targets: tuple[float, ...]) -> Sequence[Cell]:
    """Return the cells, all with their own targets if some have such: the grid's are those of all cells."""
    if all(cell.targets is None for cell in cells):
        return cells
    return [replace(cell, targets=targets) if cell.targets is None else cell for cell in cells]


def _sharing(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return the cells, those with one directory that are one run, of which different things are asked."""
    first: dict[tuple[str, int], str] = {}
    return tuple(
        replace(cell, folder=first.setdefault((cell.digest, cell.config.rounds), cell.folder))
        for cell in cells
    )


def _layered(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Put options over others: epochs and steps replace each other, those of a method come together."""
    given: dict[str, Any] = {}
    for layer in layers:
        for name, other in (("epochs", "steps"), ("steps", "epochs")):
            if name in layer and other not in layer:
                given.pop(other, None)
        own = {**given.get("set", {}), **layer.get("set", {})}
        given |= {**layer, "set": own} if own else layer
    return given


def _resolved(given: Mapping[str, Any], name: str) -> ServerConfig:
    from edgeflock.server.start.resolve import combine

    try:
        return combine(given)
    except EdgeflockError as error:
        raise UsageError(f"{name}: {error}") from None
