"""The page of a comparison: verdict and tables on top, lines with bands over seeds, a colour for a method."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edgeflock.common.errors import EdgeflockError
from edgeflock.common.scores import headed
from edgeflock.lab.compare import bands, bars, figures
from edgeflock.lab.compare.figure_spec import read_figures
from edgeflock.lab.findings.blocks import HEADINGS, Block, met
from edgeflock.lab.findings.findings import Findings, findings
from edgeflock.lab.findings.groups import Group
from edgeflock.lab.findings.results import CellResult, gather
from edgeflock.lab.grid import grid_toml
from edgeflock.lab.grid.grid import Grid, run_dir
from edgeflock.lab.history import GLOBAL
from edgeflock.lab.plots import curves, matrices
from edgeflock.lab.plots.album import Album, Plot
from edgeflock.lab.plots.theme import NEUTRAL, Stroke
from edgeflock.lab.report import plots
from edgeflock.lab.report.headline import of_all_cells, of_comparison
from edgeflock.lab.report.labels import distribution
from edgeflock.lab.report.page import fill
from edgeflock.lab.report.tables import Table

_DRAWN = 4  # partitions that are drawn, at most
_BAND = "Lines are means over seeds, at the rounds that all of them have; bands are one standard deviation."
_MEDIAN = "Median with its interval; pale and with an arrow: more than that, because runs missed it."
_ALONE = "One seed each: there is no band."


@dataclass(frozen=True)
class Titled:
    """A table of the page, with the looks of its rows."""

    title: str
    table: Table
    strokes: Sequence[Stroke]


def render(grid: Grid, out: Path, album: Album, data_root: Path | None) -> str:
    """Draw the plots and return the page of the comparison in that directory."""
    found = findings(gather(grid, out, {}), grid)
    results, groups = found.results, found.groups
    looks = bands.strokes(groups, grid)
    marks = _marks(results, groups, looks)
    return fill(
        "comparison.html.j2",
        title=of_comparison(groups, grid),
        sentence=of_all_cells(grid, results),
        verdicts=[str(one) for one in found.verdicts],
        missing=[*_missing(results), *_strangers(grid, out)],
        tables=[_titled(block, marks) for block in found.over_seeds()],
        notes=found.notes(),
        names=[group.name for group in groups],
        strokes=looks,
        band=_BAND if found.several else _ALONE,
        judged=plots.judged([grid.figure]),
        curves=_curves(album, results, groups, looks, grid),
        costs=_costs(album, groups, looks, grid),
        figures=_figures(album, found),
        methods=_methods(album, results, groups, looks),
        data=_data(album, results, data_root),
        every=[_titled(block, marks) for block in found.every_run()],
        command=f"fl-lab compare grid.toml --out {shlex.quote(str(out))}",
        toml=(out / grid_toml.FILE).read_text("utf-8"),
    )


def _marks(
    results: Sequence[CellResult], found: Sequence[Group], looks: Sequence[Stroke]
) -> Mapping[str, Stroke]:
    """Return the look of every row that a table may have, by its name."""
    by_labels = {tuple(group.labels.items()): look for group, look in zip(found, looks, strict=True)}
    rows = {group.name: look for group, look in zip(found, looks, strict=True)}
    return rows | {result.cell.name: by_labels[tuple(result.cell.group.items())] for result in results}


def _titled(block: Block, marks: Mapping[str, Stroke]) -> Titled:
    return Titled(block.title, Table(block.columns, block.rows), [marks[row[0]] for row in block.rows])


def _missing(results: Sequence[CellResult]) -> list[str]:
    return [
        f"{result.cell.name} has no result: {result.failure}." for result in results if result.outcome is None
    ]


def _strangers(grid: Grid, out: Path) -> Iterator[str]:
    """Say it if runs lie there that the grid does not ask for."""
    asked_for = {run_dir(out, cell) for cell in grid.cells}
    others = sorted({path for path in next(iter(asked_for)).parent.iterdir() if path.is_dir()} - asked_for)
    if others:
        yield (
            f"Not on this page: {', '.join(path.name for path in others)}, which the grid does not ask for; "
            "fl-lab report shows them by their directories."
        )


# ---------------------------------------------------------------------------------------------- plots


def _curves(
    album: Album, results: Sequence[CellResult], found: Sequence[Group], looks: Sequence[Stroke], grid: Grid
) -> list[Plot]:
    drawn = []
    measured = "" if grid.measure == GLOBAL else f", {grid.measure}"
    for what in dict.fromkeys((grid.figure.name, "loss")):
        for axis in curves.AXES:
            lines = bands.evaluations(results, found, looks, what, axis)
            rising = what != "loss" and grid.figure.higher
            frame = curves.accuracy_frame(lines, grid.targets) if rising else curves.loss_frame(lines)
            draw = partial(
                curves.draw, lines, axis.title, f"test {what}{measured}", axis.quantity, frame=frame
            )
            title = f"{headed(what).replace('_', ' ')} against {axis.name}"
            caption = " ".join(curves.remarks(lines, frame))
            drawn.append(
                plots.of_lines(album, f"{what}-{axis.name}", title, caption, draw, lines, len(found))
            )
    return plots.drawn(drawn)


def _methods(
    album: Album, results: Sequence[CellResult], found: Sequence[Group], looks: Sequence[Stroke]
) -> list[Plot]:
    drawn = []
    for name in curves.metrics([result.history for result in results if result.history]):
        lines = bands.metric(results, found, looks, name)
        title, meaning = curves.METRICS.get(name, (name.replace("_", " "), ""))
        frame = curves.loss_frame(lines) if name in curves.LOSSES else curves.Frame()
        draw = partial(curves.draw, lines, "round", title, "", frame=frame)
        caption = " ".join([meaning, *curves.remarks(lines, frame)]).strip()
        stem = f"method-{name}"
        drawn.append(plots.of_lines(album, stem, headed(title), caption, draw, lines, len(found)))
    return plots.drawn(drawn)


def _figures(album: Album, found: Findings) -> list[Plot]:
    """Return the pictures that the grid asks for."""
    asked = read_figures(found.grid.figures, found.grid.axes, grid_toml.FILE, found.grid.figure.name)
    return plots.drawn(
        album.add(
            spec.stem,
            headed(figures.title(found, spec)),
            figures.caption(spec),
            partial(figures.make, found, spec),
        )
        for spec in asked
    )


def _costs(album: Album, found: Sequence[Group], looks: Sequence[Stroke], grid: Grid) -> list[Plot]:
    """Return what it took to the highest target that any run reached, else in all."""
    target = next(reversed(met(found, grid)), None)
    way = "of the whole run" if target is None else f"to {grid.figure.name} {target:g}"
    why = "" if target is None else _MEDIAN
    drawn = [
        album.add(
            f"cost-{name}",
            f"{headed(heading)} {way}",
            why,
            partial(bars.by_group, found, looks, (target, name), heading),
        )
        for name, heading in HEADINGS.items()
        if target is not None or name != "rounds"
    ]
    return plots.drawn(drawn)


def _data(album: Album, results: Sequence[CellResult], data_root: Path | None) -> list[Plot]:
    """Return who holds which labels, once for every way in which the data were cut with the first seed."""
    drawn: dict[tuple[object, ...], Plot | None] = {}
    for result in results:
        if result.history is None:
            continue
        config = result.history.config
        cut = (config.dataset, config.partition, config.clients, config.samples_per_client)
        if cut in drawn or len(drawn) >= _DRAWN:
            continue
        try:
            table = distribution(result.history, data_root)
        except EdgeflockError:
            continue  # a report of the run alone says why
        names = [client.name for client in result.history.clients]
        named = names if len(names) == len(table) else [str(number) for number in range(len(table))]
        draw = partial(matrices.labels, table, named, NEUTRAL)
        title = f"{config.dataset or 'own data'}, {config.partition}, seed {config.seed}"
        why = "Area of a dot, or depth of a shade: samples of that class."
        drawn[cut] = album.add(f"labels-{len(drawn) + 1}", title, why, draw)
    return plots.drawn(drawn.values())
