"""The picture of a grid: accuracy over rounds, bytes and seconds, a line for every group, as SVG and PNG."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgeflock.common import extras
from edgeflock.common.units import scale
from edgeflock.lab.comparison import Group, Result
from edgeflock.lab.grid import Grid
from edgeflock.lab.history import GLOBAL, Point
from edgeflock.lab.outcome import Outcome
from edgeflock.lab.report import theme
from edgeflock.lab.report.curves import AXES, STEPS, Against, Line
from edgeflock.lab.report.names import elided

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL = (3.3, 2.8)  # inches
_BELOW = 0.1  # at least so much accuracy is shown below the lowest target
_LEGEND_ROW = 0.2
_LEGEND_WIDTH = 100  # characters of all names in a row of the legend
_LONGEST = 48  # characters of a name


def draw(results: Sequence[Result], found: Sequence[Group], grid: Grid, path: Path) -> str:
    """Write the picture as path.svg and path.png; return why there is none, or nothing."""
    lines = {axis.name: group_lines(results, found, axis) for axis in AXES}
    shown = [axis for axis in AXES if lines[axis.name]]
    if not shown:
        return "no picture: no model was evaluated"
    if len(found) > theme.LARGEST:
        return f"no picture: at most {theme.LARGEST} lines can be told apart, here are {len(found)}"
    if not extras.installed("matplotlib"):
        return f"no picture: it {extras.needs('matplotlib')}"
    with theme.styled():
        made = _figure([(axis, lines[axis.name]) for axis in shown], grid)
        path.with_suffix(".svg").write_text(theme.standing_alone(theme.svg(made)), "utf-8")
        theme.png(made, path.with_suffix(".png"))
    return ""


def group_lines(results: Sequence[Result], found: Sequence[Group], axis: Against) -> list[Line]:
    """Return the mean over seeds of every group that has one, with its deviation as a band."""
    lines = []
    for number, group in enumerate(found):
        outcomes = [r.outcome for r in results if r.outcome and r.cell.group == group.labels]
        known = [(xs, same) for same in together(outcomes) if (xs := _known(axis, same))]
        accuracies = [[point.evaluation.accuracy for point in same] for _, same in known]
        if known:
            lines.append(
                Line(
                    group.name,
                    theme.stroke(number),
                    [statistics.fmean(xs) for xs, _ in known],
                    [statistics.fmean(values) for values in accuracies],
                    [statistics.stdev(v) for v in accuracies] if len(outcomes) > 1 else (),
                )
            )
    return lines


def _known(axis: Against, points: Sequence[Point]) -> list[float]:
    """Return where the points lie; nothing if that is not known of one of them."""
    places = [place for point in points if (place := axis.of(point)) is not None]
    return places if len(places) == len(points) else []


def together(outcomes: Sequence[Outcome]) -> list[list[Point]]:
    """Return the points of the rounds that every run has evaluated: a mean of those that went on misleads.

    Of training only: a round that closes a run trains nothing.
    """
    runs: list[Mapping[int, Point]] = [
        {point.round: point for point in run.curve if point.round <= (run.total["rounds"] or 0)}
        for run in outcomes
    ]
    common = set[int].intersection(*(set(run) for run in runs)) if runs else set[int]()
    return [[run[round] for run in runs] for round in sorted(common)]


def _figure(panels: Sequence[tuple[Against, Sequence[Line]]], grid: Grid) -> Figure:
    labels = [line.label for line in panels[0][1]]  # of the rounds, which every line has
    names = dict(zip(labels, elided(labels, _LONGEST), strict=True))
    columns = max(1, min(len(names), _LEGEND_WIDTH // (max(map(len, names.values())) + 6)))
    rows = -(-len(names) // columns)
    width, height = _PANEL
    made = theme.figure(width * len(panels), height + rows * _LEGEND_ROW + 0.1)
    plots = made.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for plot, (axis, lines) in zip(plots, panels, strict=True):
        _panel(plot, axis, lines, names)
        _mark(plot, grid.targets)
    plots[0].set_ylim(bottom=_bottom(plots[0].get_ylim(), grid.targets))  # of all: they share it
    plots[0].set_ylabel("test accuracy" if grid.measure == GLOBAL else f"accuracy, {grid.measure}")
    made.legend(*plots[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns)
    return made


def _panel(plot: Axes, axis: Against, lines: Sequence[Line], names: Mapping[str, str]) -> None:
    from matplotlib.ticker import MaxNLocator

    unit = scale(axis.quantity, [x for line in lines for x in line.x]) if axis.quantity else None
    for line in lines:
        x, look = unit.of(line.x) if unit else list(line.x), line.stroke
        plot.plot(x, line.y, color=look.colour, linestyle=look.dash, label=names[line.label])
        if line.spread:
            pairs = list(zip(line.y, line.spread, strict=True))
            low, high = [y - s for y, s in pairs], [y + s for y, s in pairs]
            plot.fill_between(x, low, high, color=look.colour, alpha=0.12, linewidth=0)
    plot.set_xlabel(unit.label(axis.title) if unit else axis.title)
    plot.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS, integer=not axis.quantity))


def _mark(plot: Axes, targets: Sequence[float]) -> None:
    for target in targets:
        plot.axhline(target, color=theme.NEUTRAL, linestyle=(0, (2, 2)), linewidth=1, zorder=1)
        plot.text(
            1.01, target, f"{target:g}",
            transform=plot.get_yaxis_transform(), va="center", fontsize=7, color=theme.FAINT,
        )  # fmt: skip


def _bottom(limits: tuple[float, float], targets: Sequence[float]) -> float:
    """Return where the picture begins: the way up from nothing would leave no room for what targets tell."""
    low, high = limits
    return max(low, targets[0] - max(_BELOW, 2 * (high - targets[0]))) if targets else low
