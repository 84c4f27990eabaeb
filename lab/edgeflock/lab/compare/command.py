"""fl-lab compare, as it is asked for: how large a grid is, is said before what it works with is there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeflock.common.command import signals
from edgeflock.common.command.options import Option, public, read_toml
from edgeflock.common.errors import UsageError
from edgeflock.lab.compare import where
from edgeflock.lab.compare.ticker import product
from edgeflock.server.config import ServerConfig

if TYPE_CHECKING:
    from edgeflock.lab.compare.figure_spec import FigureSpec
    from edgeflock.lab.grid.grid import Grid

_OPTIONS = {
    "--out": (Path, "DIR", "Where runs and tables lie.  [default: runs/COMMAND-GRID]"),
    "--target": (float, "X", "A value to reach, repeatable.  [default: the grid's]"),
    "--baseline": (str, "NAME", "The method, or AXIS=VALUE, to compare with.  [default: the grid's]"),
    "--measure": (
        str,
        "MODEL",
        "Which model counts: global, client_local ...  [default: the grid's, else global]",
    ),
    "--last": (click.IntRange(min=1), "K", "A column more: the mean of the last K rounds."),
    "--at": (click.IntRange(min=1), "ROUND", "A column more: the test of that round, repeatable."),
    "--figure": (
        str,
        "WORDS",
        "A picture more, repeatable: 'boxes', 'times over=partition', 'swept over=lr', "
        "'lines x=iterations y=loss smooth=0.9' ...",
    ),
    "--data-root": (Path, "DIR", "Folder with data sets in their official formats.  [default: the grid's]"),
    "--track": (str, "NAMES", "Give every run to mlflow, wandb or tensorboard, as fl-lab run --track does."),
}
_SEVERAL = ("--target", "--at", "--figure")
FULL = {"--full": "Print every table, not one screen of them."}
_FLAGS = {
    "--commands": "Run nothing: print a line for each cell that is not finished, for a queue to run.",
    "--tell": "Run nothing: the tables and pictures of what lies in DIR.",
    **FULL,
}


def _compare(
    grid: Path, out: Path | None, jobs: int | None, commands: bool, tell: bool, full: bool, **asked: Any
) -> int:
    """Run every cell of a grid and put what came of them side by side.

    Started again it keeps the cells that have finished and goes on with the others.
    """
    elsewhere = {str(one.name): asked.pop(str(one.name)) for one in where.parameters()}
    if (commands or tell) and elsewhere["on"]:
        raise UsageError("--on ray runs cells, --commands and --tell run none: give one of them")
    if commands and tell:
        raise UsageError("--commands prints what is to be run, --tell what came of it: give one of them")
    out = out or Path("runs") / f"compare-{grid.stem}"
    table, made, figures = read(grid, said=not commands, **asked)
    from edgeflock.lab.compare.cells import Here
    from edgeflock.lab.compare.comparison import Comparison, spare

    with where.place(**elsewhere) as away:
        signals.on_leaving(signals.interrupt)  # Ray has its own when it is joined
        at_a_time = jobs or (away.room(made.runs) if away else spare(made.cells))
        comparison = Comparison(made, out, at_a_time, figures, away or Here())
        if commands:
            return _print(comparison.commands(table))
        if not tell:
            comparison.run(table)
    return comparison.tell(full=full)


def read(
    grid: Path,
    *,
    target: tuple[float, ...],
    baseline: str | None,
    measure: str | None,
    last: int | None,
    at: tuple[int, ...],
    figure: tuple[str, ...],
    data_root: Path | None,
    track: str | None,
    said: bool = True,
) -> tuple[Mapping[str, Any], Grid, Sequence[FigureSpec]]:
    """Return a grid's table with what was asked for beside it, the grid that this is, and the pictures."""
    table = read_toml(grid)
    if said and sys.stdout.isatty() and (words := size(table)):
        click.echo(f"{grid.name}: {words}")
    from edgeflock.lab.compare.figure_spec import read_figures, table_of
    from edgeflock.lab.grid.grid import figure_of, make_grid, read_baseline, read_measure, read_targets
    from edgeflock.lab.grid.grid_toml import with_asked

    table = with_asked(
        table,
        target=list(read_targets(target, "--target", figure_of(table))) if target else None,
        measure=None if measure is None else read_measure(measure, "--measure"),
    )
    if track:
        table["run"] = {**table.get("run", {}), "track": list(_trackers().read(track, "--track"))}
    table |= {"last": last} if last else {}
    table |= {"at": list(at)} if at else {}
    if figure:
        before = table.get("figure", [])
        table["figure"] = [*before, *(new for new in map(table_of, figure) if new not in before)]
    asked = make_grid(table, str(grid))
    figures = read_figures(
        asked.figures, asked.axes, f"{grid} and --figure" if figure else str(grid), asked.figure.name
    )
    asked = replace(
        asked,
        baseline=asked.baseline if baseline is None else read_baseline(baseline, asked.axes, "--baseline"),
        cells=tuple(cell if data_root is None else cell.with_data(data_root) for cell in asked.cells),
    )
    return _placed(table, data_root), asked, figures


def _print(lines: Sequence[str]) -> int:
    for line in lines:
        click.echo(line)
    return 0


def _trackers() -> Option:
    return next(entry for entry in public(ServerConfig) if entry.name == "track")


def _placed(table: Mapping[str, Any], data_root: Path | None) -> Mapping[str, Any]:
    """Return a grid's table with its data sets where they are."""
    if data_root is None:
        return table
    return {**table, "run": {**table.get("run", {}), "data_root": str(data_root.absolute())}}


def size(table: Mapping[str, Any]) -> str:
    """Return how many cells a grid's table asks for, before any of it is checked.

    Nothing where an axis is not for all methods: which those are is not known yet.
    """
    axes = table["grid"] if isinstance(table.get("grid"), dict) else {}
    lists = {axis: values for axis, values in axes.items() if isinstance(values, list)}
    cases = {"case": table["case"]} if isinstance(table.get("case"), list) else {}
    return "" if any("." in axis for axis in axes) or len(lists) < len(axes) else product({**cases, **lists})


def build(
    name: str, run: Callable[..., int], own: Sequence[click.Parameter], flags: Mapping[str, str]
) -> click.Command:
    """Return a command over a grid: its own options, those of every comparison, and flags."""
    parameters: list[click.Parameter] = [
        click.Argument(["grid"], type=click.Path(path_type=Path), metavar="GRID.toml"),
        *own,
    ]
    for option, (kind, metavar, words) in _OPTIONS.items():
        taken = click.Path(path_type=Path) if kind is Path else kind
        parameters.append(
            click.Option([option], type=taken, metavar=metavar, help=words, multiple=option in _SEVERAL)
        )
    parameters += [click.Option([option], is_flag=True, help=words) for option, words in flags.items()]
    return click.Command(name, params=parameters, callback=run, help=run.__doc__)


_JOBS = click.Option(
    ["--jobs"],
    type=click.IntRange(min=1),
    metavar="N",
    help="Cells at a time.  [default: what has a core for every process]",
)
compare = build("compare", _compare, [_JOBS, *where.parameters()], _FLAGS)
