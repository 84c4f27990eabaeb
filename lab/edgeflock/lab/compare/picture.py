"""The picture of a grid: accuracy over rounds, bytes and seconds, a line for every group, as SVG and PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgeflock.common.command import extras
from edgeflock.lab.compare import bands
from edgeflock.lab.findings.findings import Findings
from edgeflock.lab.grid.grid import Grid
from edgeflock.lab.history import GLOBAL
from edgeflock.lab.plots import theme
from edgeflock.lab.plots.curves import AXES, Against, Curve, accuracy_frame, panel
from edgeflock.lab.plots.names import elided

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL = (3.3, 2.8)  # inches
_LEGEND_ROW = 0.2
_LEGEND_WIDTH = 100  # characters of all names in a row of the legend
_LONGEST = 48  # characters of a name


def draw(found: Findings, path: Path) -> str:
    """Write the picture as path.svg and path.png; return why there is none, or nothing."""
    looks = bands.strokes(found.groups, found.grid)
    lines = {
        axis.name: bands.evaluations(found.results, found.groups, looks, "accuracy", axis) for axis in AXES
    }
    shown = [axis for axis in AXES if lines[axis.name]]
    if not shown:
        return "no picture: no model was evaluated"
    if len(found.groups) > theme.LARGEST:
        return f"no picture: at most {theme.LARGEST} lines can be told apart, here are {len(found.groups)}"
    if not extras.installed("matplotlib"):
        return f"no picture: it {extras.needs('matplotlib')}"
    with theme.styled():
        made = _figure([(axis, lines[axis.name]) for axis in shown], found.grid)
        path.with_suffix(".svg").write_text(theme.standing_alone(theme.svg(made)), "utf-8")
        theme.png(made, path.with_suffix(".png"))
    return ""


def _figure(panels: Sequence[tuple[Against, Sequence[Curve]]], grid: Grid) -> Figure:
    labels = [line.label for line in panels[0][1]]  # of the rounds, which every line has
    names = dict(zip(labels, elided(labels, _LONGEST), strict=True))
    frame = accuracy_frame(panels[0][1], grid.targets)
    columns = max(1, min(len(names), _LEGEND_WIDTH // (max(map(len, names.values())) + 6)))
    rows = -(-len(names) // columns)
    width, height = _PANEL
    made = theme.figure(width * len(panels), height + rows * _LEGEND_ROW + 0.1)
    plots = made.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for plot, (axis, lines) in zip(plots, panels, strict=True):
        panel(plot, lines, [names[line.label] for line in lines], axis.title, axis.quantity, frame)
    plots[0].set_ylabel("test accuracy" if grid.measure == GLOBAL else f"accuracy, {grid.measure}")
    made.legend(
        *plots[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns, handlelength=3
    )
    return made
