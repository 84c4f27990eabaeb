"""fl-lab report: a page and plots of one run, or of several laid over each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeflock.common.command import extras
from edgeflock.common.command.units import counted
from edgeflock.common.errors import MissingData, UsageError
from edgeflock.lab import history
from edgeflock.lab.grid.grid import CELLS
from edgeflock.lab.plots.theme import LARGEST
from edgeflock.lab.report import browser
from edgeflock.server.files.run_dir import JOURNAL

if TYPE_CHECKING:
    from edgeflock.lab.grid.grid import Grid
    from edgeflock.lab.plots.album import Album

PAGE = "index.html"
PLOTS = "plots"
_BEGUN = (JOURNAL, "run.toml")  # without these there is nothing to tell


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the report goes.  [default: RUN/report; ./report for several]",
)
@click.option(
    "--data-root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where data sets lie, for the confusion matrix.  [default: where the run had them]",
)
@click.option("--open", "opened", is_flag=True, help="Open the page in the browser.")
def report(run: tuple[Path, ...], out: Path | None, data_root: Path | None, opened: bool) -> None:
    """Write a report of the run directories RUN: index.html, and plots/ as PNG and SVG.

    The page needs no network and no other file. Several runs are laid over each other.
    The report of a comparison's directory is the comparison: means over seeds, a line for a method.
    A run that is not over is told of as far as it is.
    """
    extras.require("a report", "jinja2", "matplotlib")
    given = _once(run)
    folder = out or (given[0] / "report" if len(given) == 1 else Path("report"))
    grid = _grid(given[0]) if len(given) == 1 else None
    if grid is None:
        count = _laid_over(given, folder, data_root)
    else:
        count = _compared(grid, given[0], folder, data_root)
    click.echo(f"{folder / PAGE}\n{counted(count, 'plot')} in {folder / PLOTS}, as PNG and SVG")
    address = (folder / PAGE).absolute().as_uri()
    click.echo(browser.show(address) if opened else f"next: open {address}, or give --open")


def _once(paths: Iterable[Path]) -> list[Path]:
    """Return the paths one per place that they lead to."""
    return list({path.resolve(): path for path in paths}.values())


def _runs(given: Path) -> list[Path]:
    """Return that run directory, or those of a comparison that have begun."""
    cells = given / CELLS
    if not cells.is_dir():
        return [given]
    begun = sorted(path for path in cells.iterdir() if all((path / name).is_file() for name in _BEGUN))
    if not begun:
        raise MissingData(f"{given} is a comparison of which no run has begun")
    return begun


def _grid(given: Path) -> Grid | None:
    """Return what a comparison was asked, None for a run, or if an earlier edgeflock has not kept it."""
    if not (given / CELLS).is_dir():
        return None
    from edgeflock.lab.grid.grid_toml import recall

    return recall(given)


def _laid_over(given: Sequence[Path], folder: Path, data_root: Path | None) -> int:
    """Write the page of runs laid over each other; return how many plots it has."""
    runs = _once(path for place in given for path in _runs(place))
    if len(runs) > LARGEST:
        raise UsageError(f"{len(runs)} runs are given, allowed are at most {LARGEST} in one report")
    found = [history.read(path, bundles=True) for path in runs]
    from edgeflock.lab.report.page import render
    from edgeflock.lab.report.subject import subjects

    return _write(folder, lambda album: render(subjects(found, data_root), album))


def _compared(grid: Grid, out: Path, folder: Path, data_root: Path | None) -> int:
    """Write the page of a comparison; return how many plots it has."""
    _runs(out)  # refuses one that has not begun
    from edgeflock.lab.report.comparison_page import render

    return _write(folder, lambda album: render(grid, out, album, data_root))


def _write(folder: Path, render: Callable[[Album], str]) -> int:
    from edgeflock.lab.plots.album import Album

    album = Album(folder / PLOTS)
    try:
        album.begin()
        (folder / PAGE).write_text(render(album), "utf-8")
    except OSError as error:
        raise UsageError(f"--out {str(folder)!r} cannot be written: {error.strerror or error}") from None
    return album.count
