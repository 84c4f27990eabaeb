"""Clouds of points, one panel beside the other: samples by their class, where a map has put them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeflock.lab.plots.theme import HUES, SHAPES, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL = (2.6, 2.75)  # inches
_LEGEND = 0.32
_COLUMNS = 4  # panels beside each other
_RASTER = 4000  # points: more are one picture inside the SVG
_DOT = 5.0  # points squared
_ENTRY = 0.62  # inches of a class in the legend


@dataclass(frozen=True)
class Cloud:
    """One panel: points with the class of each."""

    title: str
    x: Sequence[float]
    y: Sequence[float]
    classes: Sequence[int]


def clouds(panels: Sequence[Cloud], names: Sequence[str]) -> Figure:
    """Return the panels with one legend of the classes; axes have no scale, for a map has none."""
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    width = max(_PANEL[0] * columns, 3.2)
    in_a_row = max(1, int(width / _ENTRY))
    legend = _LEGEND * -(-len(names) // in_a_row)
    made = figure(width, _PANEL[1] * rows + legend)
    plots = made.subplots(rows, columns, squeeze=False)
    rastered = sum(len(panel.x) for panel in panels) > _RASTER
    for place, axes in enumerate(plots.flat):
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
        axes.set_visible(place < len(panels))
        if place < len(panels):
            panel = panels[place]
            axes.set_title(panel.title)
            for label, name in enumerate(names):
                mine = [point for point, one in enumerate(panel.classes) if one == label]
                x, y = ([along[point] for point in mine] for along in (panel.x, panel.y))
                axes.scatter(
                    x, y, s=_DOT, linewidths=0,
                    color=HUES[label % len(HUES)][0], marker=list(SHAPES)[label // len(HUES) % len(SHAPES)],
                    label=name, rasterized=rastered,
                )  # fmt: skip
    handles, labels = plots.flat[0].get_legend_handles_labels()
    made.legend(
        handles, labels, loc="outside lower center", ncols=in_a_row, markerscale=2, handletextpad=0.1,
        columnspacing=0.9,
    )  # fmt: skip
    return made
