"""fl-lab compare: a grid of runs, each with real processes, and tables of what each method costs."""

from __future__ import annotations

import fcntl
import math
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from edgeflock.common import signals
from edgeflock.common.errors import EdgeflockError, Locked, UsageError
from edgeflock.common.options import read_toml
from edgeflock.lab import asked as kept
from edgeflock.lab import farm, findings, history, time_left
from edgeflock.lab.farm import Ended, Living
from edgeflock.lab.grid import Cell, Grid, make_grid, read_baseline, read_measure, read_targets
from edgeflock.lab.history import History
from edgeflock.lab.outcome import lives
from edgeflock.lab.quantity import counted
from edgeflock.lab.screen import COLUMNS
from edgeflock.lab.ticker import Ticker, ticker
from edgeflock.lab.time_left import Ahead, Took

_OPTIONS = {
    "--out": (Path, "DIR", "Where runs and tables lie.  [default: runs/compare-GRID]"),
    "--jobs": (click.IntRange(min=1), "N", "Cells at a time.  [default: what has a core for every process]"),
    "--target": (float, "X", "An accuracy to reach, repeatable.  [default: the grid's]"),
    "--baseline": (str, "NAME", "The method, or AXIS=VALUE, to compare with.  [default: the grid's]"),
    "--measure": (
        str,
        "MODEL",
        "Whose accuracy counts: global, client_local ...  [default: the grid's, else global]",
    ),
    "--data-root": (Path, "DIR", "Folder with data sets in their official formats.  [default: the grid's]"),
}


def _compare(
    grid: Path,
    out: Path | None,
    jobs: int | None,
    target: tuple[float, ...],
    baseline: str | None,
    measure: str | None,
    data_root: Path | None,
    full: bool,
) -> int:
    """Run every cell of a grid and put what came of them side by side.

    Started again it keeps the cells that have finished and goes on with the others.
    """
    table, out = read_toml(grid), out or Path("runs") / f"compare-{grid.stem}"
    if sys.stdout.isatty():
        click.echo(f"{grid.name}: {size(table)}")
    asked = make_grid(table, str(grid))
    asked = replace(
        asked,
        targets=read_targets(target, "--target") if target else asked.targets,
        baseline=asked.baseline if baseline is None else read_baseline(baseline, asked.axes, "--baseline"),
        measure=asked.measure if measure is None else read_measure(measure, "--measure"),
        cells=tuple(cell if data_root is None else cell.with_data(data_root) for cell in asked.cells),
    )
    signals.on_leaving(signals.interrupt)
    made = Comparison(asked, out, jobs or spare(asked.cells))
    made.run(_placed(table, data_root))
    return made.tell(full=full)


def _placed(table: Mapping[str, Any], data_root: Path | None) -> Mapping[str, Any]:
    """Return a grid's table with its data sets where they are."""
    if data_root is None:
        return table
    return {**table, "run": {**table.get("run", {}), "data_root": str(data_root.absolute())}}


def size(table: Mapping[str, Any]) -> str:
    """Return how many cells a grid's table asks for, before any of it is checked."""
    axes = table.get("grid", {})
    lists = {axis: values for axis, values in axes.items() if isinstance(values, list)} if axes else {}
    return _product(lists)


def _product(axes: Mapping[str, Sequence[Any]]) -> str:
    """Return `6 cells (3 methods x 2 seeds)`."""
    cells = counted(math.prod(map(len, axes.values())), "cell")
    return f"{cells} ({' x '.join(counted(len(values), axis) for axis, values in axes.items()) or 'no axes'})"


def spare(cells: Sequence[Cell]) -> int:
    """Return how many cells can run at a time with a core for each of their processes, at least one."""
    clients = [cell.lab.get("processes") or cell.config.clients for cell in cells if not cell.config.central]
    return max(1, len(os.sched_getaffinity(0)) // (1 + max(clients, default=0)))


@dataclass
class Comparison:
    """A grid on its way."""

    grid: Grid
    out: Path
    jobs: int
    took: list[Took] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # by the cell's folder
    done: int = 0

    def run(self, table: Mapping[str, Any]) -> None:
        """Run the cells that are not finished and keep the table they came of; what fails is noted."""
        finished = {cell.folder: found for cell in self.grid.cells if (found := self._finished(cell))}
        self.took = [
            _took(cell, finished[cell.folder]) for cell in self.grid.cells if cell.folder in finished
        ]
        self.done = len(finished)
        ahead = [cell for cell in self.grid.cells if cell.folder not in finished]
        _require_data(ahead)
        with _held(self.out):
            kept.keep(self.out, table, self.grid)
            click.echo(self._first_line(ahead))
            try:
                with closing(ticker(len(self.grid.cells), sys.stdout.isatty())) as shown:
                    self._run(ahead, shown)
            except KeyboardInterrupt:  # said when the living line is gone
                words = (
                    f"{self.done} of {counted(len(self.grid.cells), 'cell')} done, the same command goes on"
                )
                click.echo(f"interrupted: {words}", err=True)
                raise

    def tell(self, *, full: bool) -> int:
        """Show what was found, name what failed, and return the exit code."""
        results = findings.gather(self.grid, self.out, self.failures)
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else COLUMNS
        findings.tell(results, self.grid, self.out, width=width, full=full)
        failed = [result for result in results if result.outcome is None]
        for result in failed:
            alone = shlex.join(["fl-lab", *farm.command_line(self.out, result.cell)])
            click.echo(f"failed: {result.cell.name}: {result.failure}\n  alone: {alone}", err=True)
        return 1 if failed else 0

    def _run(self, cells: Sequence[Cell], shown: Ticker) -> None:
        left = {cell.folder: _ahead(cell) for cell in cells}

        def watch(living: Sequence[Living]) -> None:
            left.update({one.cell.folder: _ahead(one.cell, one.share) for one in living})
            rounds = [f"{one.cell.name} {one.round}/{one.cell.config.rounds}" for one in living]
            shown.show(self.done, ", ".join(rounds), _brief(self._estimate(left, living)))

        with closing(farm.grow(cells, self.out, self.jobs, watch)) as ends:
            for end in ends:
                del left[end.cell.folder]
                self.done += 1
                how = self._take(end)
                estimate = _brief(self._estimate(left))
                shown.say(f"{self.done}/{len(self.grid.cells)}  {end.cell.name}  {how}; {estimate}")

    def _take(self, end: Ended) -> str:
        """Note how a cell ended, and say it."""
        found = None if end.failure else self._finished(end.cell)
        if found is None:
            failure = end.failure or "its run was stopped before its end"
            self.failures[end.cell.folder] = failure
            return f"failed: {failure}"
        self.took.append(_took(end.cell, found, end.seconds))
        return f"done in {end.seconds:.0f} s"

    def _estimate(self, left: Mapping[str, Ahead], living: Sequence[Living] = ()) -> str:
        running = [
            Took(one.cell.method, one.whole, _kind(one.cell)) for one in living if one.whole is not None
        ]
        took = self.took or running
        return time_left.words(took, list(left.values()), self.jobs)

    def _first_line(self, ahead: Sequence[Cell]) -> str:
        kept = f", {self.done} finished before" if self.done else ""
        estimate = self._estimate({cell.folder: _ahead(cell) for cell in ahead})
        return f"{_product(self.grid.axes)} in {self.out}{kept}; {self.jobs} at a time\n{estimate}"

    def _finished(self, cell: Cell) -> History | None:
        """Return a cell's history if its run has ended as it should, and no more is asked of it."""
        from edgeflock.server.decisions import EndingKind
        from edgeflock.server.resolve import combine
        from edgeflock.server.startup import already_over  # brings torch

        folder = farm.run_dir(self.out, cell)
        try:
            over = already_over(folder, combine({**cell.given, "run_dir": folder}))
            return history.read(folder) if over is not None and over.kind is EndingKind.COMPLETED else None
        except EdgeflockError:
            return None  # its own run says what is wrong


def _brief(estimate: str) -> str:
    """Return an estimate without what it stands on: a terminal is 80 columns wide."""
    return estimate.partition(" (")[0]


def _took(cell: Cell, found: History, seconds: float = 0.0) -> Took:
    return time_left.took(cell.method, _kind(cell), lives(found.events), seconds)


def _ahead(cell: Cell, share: float = 1.0) -> Ahead:
    return Ahead(cell.method, share, _kind(cell))


def _kind(cell: Cell) -> str:
    """Return what cells have in common that differ in their seed alone."""
    return " ".join(cell.group.values())


def _require_data(cells: Sequence[Cell]) -> None:
    """Refuse a grid whose data are not there, before the first cell is started."""
    from edgeflock.common import datasets

    for name, root in {(cell.config.dataset, cell.config.data_root) for cell in cells}:
        if name is not None:
            datasets.load(name, root)


@contextmanager
def _held(out: Path) -> Iterator[None]:
    """Make the directory and hold it: two at a time would start the same cells."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / "lock").open("a")
    except OSError as error:
        raise UsageError(f"--out {str(out)!r} cannot be made: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Locked(f"--out {str(out)!r} is in use by another fl-lab compare") from None
        yield


def _build() -> click.Command:
    parameters: list[click.Parameter] = [
        click.Argument(["grid"], type=click.Path(path_type=Path), metavar="GRID.toml")
    ]
    for name, (kind, metavar, words) in _OPTIONS.items():
        taken = click.Path(path_type=Path) if kind is Path else kind
        parameters.append(
            click.Option([name], type=taken, metavar=metavar, help=words, multiple=name == "--target")
        )
    parameters.append(
        click.Option(["--full"], is_flag=True, help="Print every table, not one screen of them.")
    )
    return click.Command("compare", params=parameters, callback=_compare, help=_compare.__doc__)


compare = _build()
