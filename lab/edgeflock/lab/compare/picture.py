"""Pictures of lines: how good models are over rounds and costs, or what is asked, a line for every group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgeflock.common.command import extras
from edgeflock.common.scores import LOSS
from edgeflock.lab.compare import bands
from edgeflock.lab.compare.figure_spec import LINES, FigureSpec
from edgeflock.lab.findings.findings import Findings
from edgeflock.lab.grid.grid import Grid
from edgeflock.lab.history import GLOBAL
from edgeflock.lab.plots import theme
from edgeflock.lab.plots.curves import (
    AXES,
    EVERY,
    LOSSES,
    METRICS,
    MODELS,
    Against,
    Curve,
    Frame,
    accuracy_frame,
    loss_frame,
    panel,
)
from edgeflock.lab.plots.names import elided

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL = (3.3, 2.8)  # inches
_LEGEND_ROW = 0.2
_LEGEND_WIDTH = 100  # characters of all names in a row of the legend
_LONGEST = 48  # characters of a name


_COSTS = tuple(axis.cost for axis in AXES)
_LOSSES = ("loss", *LOSSES)


def usual(grid: Grid) -> FigureSpec:
    """Return the picture that every comparison has."""
    return FigureSpec(LINES, grid.figure.name, x=_COSTS)


def draw(found: Findings, path: Path, asked: FigureSpec | None = None) -> str:
    """Write the picture as path.svg and path.png; return why there is none, or nothing."""
    asked = asked or usual(found.grid)
    if not _panels(found, asked):
        return f"no picture: {_nothing(found, asked)}"
    if len(found.groups) > theme.LARGEST:
        return f"no picture: at most {theme.LARGEST} lines can be told apart, here are {len(found.groups)}"
    if not extras.installed("matplotlib"):
        return f"no picture: it {extras.needs('matplotlib')}"
    with theme.styled():
        if (made := make(found, asked)) is not None:
            theme.save(made, path)
    return ""


def make(found: Findings, asked: FigureSpec) -> Figure | None:
    """Return the picture, None if there is nothing to draw; call it inside `styled`."""
    panels = _panels(found, asked)
    return _figure(panels, found, asked) if 0 < len(found.groups) <= theme.LARGEST and panels else None


def _panels(found: Findings, asked: FigureSpec) -> list[tuple[Against, list[Curve]]]:
    return [(axis, lines) for axis in axes_of(asked) if (lines := _lines(found, asked, axis))]


def is_tested(found: Findings, y: str) -> bool:
    """Whether it is a metric of the runs' task, and not what methods say of their rounds."""
    known = {one.name for result in found.results for one in result.measures}
    return y in {*known, found.grid.figure.name, LOSS.name}


def _nothing(found: Findings, asked: FigureSpec) -> str:
    what = "no model" if not asked.model else f"no model {asked.model!r}"
    return f"{what} was evaluated" if is_tested(found, asked.y) else f"no method says anything of {asked.y!r}"


def axes_of(asked: FigureSpec) -> list[Against]:
    """Return what stands below its panels."""
    return [axis for cost in asked.x for axis in EVERY if axis.cost == cost]


def _lines(found: Findings, asked: FigureSpec, axis: Against) -> list[Curve]:
    looks = bands.strokes(found.groups, found.grid)
    if is_tested(found, asked.y):
        return bands.evaluations(found.results, found.groups, looks, asked.y, axis, asked.model, asked.smooth)
    return bands.metric(found.results, found.groups, looks, asked.y, axis, asked.smooth)


def _frame(lines: Sequence[Curve], grid: Grid, asked: FigureSpec) -> Frame:
    if asked.y == grid.figure.name and grid.figure.higher:
        return accuracy_frame(lines, () if asked.model else grid.targets)
    return loss_frame(lines) if asked.y in _LOSSES else Frame()


def y_label(found: Findings, asked: FigureSpec) -> str:
    """Return what stands beside the y axis of a test or a metric of methods."""
    y, measure = asked.y, asked.model or found.grid.measure
    if not is_tested(found, y):
        return METRICS.get(y, (y.replace("_", " "), ""))[0]
    return f"test {y}" if measure == GLOBAL else f"{y}, {MODELS.get(measure, measure)}"


def _figure(panels: Sequence[tuple[Against, Sequence[Curve]]], found: Findings, asked: FigureSpec) -> Figure:
    every = dict.fromkeys(line.label for _, lines in panels for line in lines)
    names = dict(zip(every, elided(list(every), _LONGEST), strict=True))
    frame = _frame(max((lines for _, lines in panels), key=len), found.grid, asked)
    columns = max(1, min(len(names), _LEGEND_WIDTH // (max(map(len, names.values())) + 6)))
    rows = -(-len(names) // columns)
    width, height = _PANEL
    made = theme.figure(width * len(panels), height + rows * _LEGEND_ROW + 0.1)
    plots = made.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for plot, (axis, lines) in zip(plots, panels, strict=True):
        panel(plot, lines, [names[line.label] for line in lines], axis.title, axis.quantity, frame)
    label = y_label(found, asked)
    plots[0].set_ylabel(f"{label}, smoothed" if asked.smooth else label)
    handles = {
        label: handle
        for plot in plots
        for handle, label in zip(*plot.get_legend_handles_labels(), strict=True)
    }
    made.legend(handles.values(), handles, loc="outside lower center", ncols=columns, handlelength=3)
    return made
