"""A comparison on its way: the cells of its grid, each a run with real processes, and what came of them."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from edgeflock.common.command.terminal import Terminal
from edgeflock.common.command.typed import typed
from edgeflock.common.command.units import counted
from edgeflock.common.errors import EdgeflockError, Locked, UsageError
from edgeflock.common.wire.listen import OFF
from edgeflock.lab import history
from edgeflock.lab.compare import time_left
from edgeflock.lab.compare.cells import EndedCell, Farm, Here, LivingCell, command_line
from edgeflock.lab.compare.figure_spec import FigureSpec
from edgeflock.lab.compare.screen import COLUMNS, tell
from edgeflock.lab.compare.ticker import Ticker, product
from edgeflock.lab.compare.time_left import Ahead, Took
from edgeflock.lab.findings.findings import findings
from edgeflock.lab.findings.outcome import lives
from edgeflock.lab.findings.results import gather
from edgeflock.lab.grid import grid_toml, identity
from edgeflock.lab.grid.grid import CELLS, Cell, Grid, run_dir
from edgeflock.lab.history import COMPLETED, History
from edgeflock.server.files.run_dir import RUN_TOML, require_place
from edgeflock.server.files.run_toml import from_toml

_ADDRESSES = ("listen", "control", "dashboard")


def spare(cells: Sequence[Cell]) -> int:
    """Return how many cells can run at a time with a core for each of their processes, at least one."""
    if shared_address(cells):
        return 1
    clients = [cell.lab.get("processes") or cell.config.clients for cell in cells if not cell.config.central]
    return max(1, len(os.sched_getaffinity(0)) // (1 + max(clients, default=0)))


def shared_address(cells: Sequence[Cell]) -> str:
    """Return the option, with its address, that several cells have and only one at a time can."""
    for name in _ADDRESSES:
        given = [cell.given[name] for cell in cells if cell.given.get(name) not in (None, OFF)]
        for address in given:
            if not f":{address}".endswith(":0") and given.count(address) > 1:
                return f"{name} {address}"
    return ""


@dataclass
class Comparison:
    """A grid on its way."""

    grid: Grid
    out: Path
    jobs: int
    figures: Sequence[FigureSpec] = ()  # beside the usual picture
    farm: Farm = field(default_factory=Here)
    took: list[Took] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # by the cell's folder
    done: int = 0

    def run(self, table: Mapping[str, Any]) -> None:
        """Run the cells that are not finished and keep the table they came of; what fails is noted."""
        runs, ahead = self.grid.runs, self._unfinished()
        if self.jobs > 1 and (shared := shared_address(ahead)):
            raise UsageError(f"{shared} is that of several cells: give --jobs 1, or port 0")
        self.farm.require(ahead, self.out)
        with held(self.out, "fl-lab compare"):
            grid_toml.keep(self.out, table, self.grid)
            click.echo(self._first_line(ahead))
            try:
                with closing(Ticker(Terminal(sys.stdout), len(runs))) as shown:
                    self._run(ahead, shown)
            except KeyboardInterrupt:  # said when the living line is gone
                words = f"{self.done} of {counted(len(runs), 'cell')} done, the same command goes on"
                click.echo(f"interrupted: {words}", err=True)
                raise

    def commands(self, table: Mapping[str, Any]) -> list[str]:
        """Return what runs the cells that are not finished, a line for each, and keep the table they came of.

        The lines work from any directory, wherever the same paths are.
        """
        ahead = self._unfinished()
        with held(self.out, "fl-lab compare"):
            grid_toml.keep(self.out, table, self.grid)
        name = typed("fl-lab")
        lab = str(Path(name).absolute()) if "/" in name else name
        return [shlex.join([lab, *command_line(self.out.absolute(), cell.anywhere())]) for cell in ahead]

    def _unfinished(self) -> list[Cell]:
        """Return the cells that are to be run, and note what the others took."""
        finished = {cell.folder: found for cell in self.grid.runs if (found := self._finished(cell))}
        self.took = [_took(cell, finished[cell.folder]) for cell in self.grid.runs if cell.folder in finished]
        self.done = len(finished)
        return [cell for cell in self.grid.runs if cell.folder not in finished]

    def tell(self, *, full: bool) -> int:
        """Show what was found, name what failed or has not been run, and return the exit code."""
        if not (self.out / CELLS).is_dir():
            raise UsageError(f"--out {str(self.out)!r} holds no runs of a comparison")
        found = findings(gather(self.grid, self.out, self.failures), self.grid)
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else COLUMNS
        tell(found, self.out, width=width, full=full, figures=self.figures)
        failed = [result for result in found.results if result.outcome is None]
        for result in failed:
            alone = shlex.join(self.farm.alone(result.cell, self.out))
            word = "failed" if result.cell.folder in self.failures else "no result"
            click.echo(f"{word}: {result.cell.name}: {result.failure}\n  alone: {alone}", err=True)
        return 1 if failed else 0

    def _run(self, cells: Sequence[Cell], shown: Ticker) -> None:
        left = {cell.folder: _ahead(cell) for cell in cells}

        def watch(living: Sequence[LivingCell]) -> None:
            left.update({one.cell.folder: _ahead(one.cell, one.share) for one in living})
            rounds = [f"{one.cell.name} {one.round}/{one.cell.config.rounds}" for one in living]
            shown.show(self.done, ", ".join(rounds), _brief(self._estimate(left, living)))

        with closing(self.farm.grow(cells, self.out, self.jobs, watch, shown.say)) as ends:
            for end in ends:
                del left[end.cell.folder]
                self.done += 1
                how = self._take(end)
                estimate = _brief(self._estimate(left))
                shown.say(f"{self.done}/{len(self.grid.runs)}  {end.cell.name}  {how}; {estimate}")

    def _take(self, end: EndedCell) -> str:
        """Note how a cell ended, and say it."""
        found = None if end.failure else self._finished(end.cell)
        if found is None:
            failure = end.failure or self._why_not(end.cell)
            self.failures[end.cell.folder] = failure
            return f"failed: {failure}"
        self.took.append(_took(end.cell, found, end.seconds))
        return f"done in {end.seconds:.0f} s"

    def _estimate(self, left: Mapping[str, Ahead], living: Sequence[LivingCell] = ()) -> str:
        running = [
            Took(one.cell.method, one.whole, _kind(one.cell)) for one in living if one.whole is not None
        ]
        took = self.took or running
        return time_left.words(took, list(left.values()), self.jobs)

    def _first_line(self, ahead: Sequence[Cell]) -> str:
        kept = f", {self.done} finished before" if self.done else ""
        estimate = self._estimate({cell.folder: _ahead(cell) for cell in ahead})
        runs = len(self.grid.runs)
        shared = f", {len(self.grid.cells) - runs} by a run of another" if runs < len(self.grid.cells) else ""
        cells = f"{product(self.grid.axes, len(self.grid.cells))}{shared}"
        return f"{cells} in {self.out}{kept}; {self.jobs} at a time\n{estimate}"

    def _finished(self, cell: Cell) -> History | None:
        """Return a cell's history if its run has ended as it should, and no more is asked of it."""
        from edgeflock.server.start.resolve import combine
        from edgeflock.server.start.startup import already_over  # brings torch

        folder = run_dir(self.out, cell)
        try:
            over = already_over(folder, combine({**cell.given, "run_dir": folder}))
            if over is None or over.kind != COMPLETED:
                return None
            found = history.read(folder)
            return None if identity.difference(found.config, cell.config) else found
        except EdgeflockError:
            return None  # its own run says what is wrong

    def _why_not(self, cell: Cell) -> str:
        """Return why a run that ended well is not the cell's."""
        folder = run_dir(self.out, cell)
        if other := identity.difference(from_toml(folder / RUN_TOML), cell.config):
            return f"{folder} holds a run with other options, {other}: remove it, and the cell is run anew"
        return "its run was stopped before its end"


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


@contextmanager
def held(out: Path, who: str) -> Iterator[None]:
    """Make the directory and hold it: two at a time would start the same cells."""
    require_place(out, "--out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / "lock").open("a")
    except OSError as error:
        raise UsageError(f"--out {str(out)!r} cannot be made: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Locked(f"--out {str(out)!r} is in use by another {who}") from None
        yield
