"""What came of every cell of a grid, read from its run directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgeflock.common.command.options import read_toml
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.scores import ACCURACY, LOSS, Metric
from edgeflock.lab.findings.outcome import RunOutcome, outcome
from edgeflock.lab.grid.grid import Cell, Grid, run_dir
from edgeflock.lab.history import COMPLETED, FAILED, GLOBAL, History, read
from edgeflock.server.files.run_dir import JOURNAL

HOST = "host.toml"  # in the run directory of a cell that was held on another machine: its node, its cpu
_NOT_FINITE = ("NaN or infinity", "sum is not", "not finite")  # as the server says it


@dataclass(frozen=True)
class CellResult:
    """One cell with what came of it."""

    cell: Cell
    outcome: RunOutcome | None
    failure: str = ""  # why there is no outcome
    run_dir: str = ""
    history: History | None = None
    diverged: History | None = None  # of a run that failed because its numbers were not finite any more
    measure: str = GLOBAL  # the model that counts

    @property
    def host(self) -> Mapping[str, str]:
        """The machine that held its run, where it was another one than that of the comparison."""
        path = Path(self.run_dir, HOST)
        return read_toml(path) if path.is_file() else {}

    @property
    def measures(self) -> tuple[Metric, ...]:
        """By what its models are judged, its figure first."""
        history = self.history or self.diverged
        return (ACCURACY, LOSS) if history is None else history.measures


def gather(grid: Grid, out: Path, failures: Mapping[str, str]) -> list[CellResult]:
    """Return what came of every cell; `failures` are sentences by the cell's folder."""
    return [_result(grid, out, cell, failures.get(cell.folder, "")) for cell in grid.cells]


def _result(grid: Grid, out: Path, cell: Cell, failure: str) -> CellResult:
    folder, measure = run_dir(out, cell), grid.measure_of(cell)
    if not failure and not (folder / JOURNAL).is_file():
        failure = "its run has not begun"
    if failure:
        return CellResult(cell, None, failure, str(folder))
    try:
        history = read(folder)
    except EdgeflockError as error:
        return CellResult(cell, None, str(error), str(folder))
    if failure := _unfinished(history, cell):
        lost = history if _has_diverged(history) else None
        return CellResult(cell, None, failure, str(folder), diverged=lost, measure=measure)
    found = outcome(history, measure, grid.targets_of(cell), cell.config.rounds)
    return CellResult(cell, found, run_dir=str(folder), history=history, measure=measure)


def _unfinished(history: History, cell: Cell) -> str:
    """Return why a run has no outcome yet, nothing if it has one."""
    ending, asked = history.ending, cell.config.rounds
    if ending is None or (ending.kind == COMPLETED and history.config.rounds < asked):
        return f"its run is not over: {len(history.training)} of {asked} rounds are committed"
    return "" if ending.kind == COMPLETED else f"its run ended as {ending.kind}: {ending.reason}"


def _has_diverged(history: History) -> bool:
    """Whether a run failed because what it computed was not finite any more: no later round would have come
    to a target."""
    ending = history.ending
    return ending is not None and ending.kind == FAILED and any(word in ending.reason for word in _NOT_FINITE)
