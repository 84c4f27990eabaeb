"""What comes of a swept option: a line for each method with whiskers; a level for those without it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeflock.lab.plots.curves import SIZE
from edgeflock.lab.plots.names import elided
from edgeflock.lab.plots.theme import PAPER, Stroke, figure
from edgeflock.lab.plots.whiskers import Estimate, whisker

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEGEND_WIDTH, _LEGEND_ROW = 52, 0.17
_DECADES = 1.5  # an option that spans more is drawn on a logarithmic axis
_LEAST_LOG = 3  # values of it
_PALE = 0.12


@dataclass(frozen=True)
class Swept:
    """One line: what came of each value of the option, or `level`, of who does not have it."""

    name: str
    look: Stroke
    found: Sequence[Estimate | None] = ()
    level: Estimate | None = None


def swept(lines: Sequence[Swept], labels: Sequence[str], x: str, y: str) -> Figure:
    """Return the lines over the values of an option, by their size where these are numbers."""
    made = figure(SIZE[0], SIZE[1] + _LEGEND_ROW * len(lines) + 0.1)
    axes = made.subplots()
    places = _places(axes, labels)
    for line, name in zip(lines, elided([line.name for line in lines], _LEGEND_WIDTH), strict=True):
        if line.level is not None:
            axes.axhline(line.level.value, color=line.look.colour, linestyle=line.look.dash, label=name)
            axes.axhspan(line.level.low, line.level.top, color=line.look.colour, alpha=_PALE, linewidth=0)
        else:
            _line(axes, places, line, name)
    axes.set(xlabel=x, ylabel=y)
    made.legend(loc="outside lower left", ncols=1, handlelength=3)
    return made


def _line(axes: Axes, places: Sequence[float], line: Swept, name: str) -> None:
    known = [(place, found) for place, found in zip(places, line.found, strict=True) if found is not None]
    look = line.look
    axes.plot(
        [place for place, _ in known], [found.value for _, found in known], color=look.colour,
        linestyle=look.dash, marker=look.shape or "o", markersize=5, label=name,
    )  # fmt: skip
    for place, found in known:
        if found.more:  # hollow: it is more than that
            axes.plot([place], [found.value], marker=look.shape or "o", markersize=5, color=look.colour,
                      markerfacecolor=PAPER, zorder=5)  # fmt: skip
        else:
            whisker(axes, place, found, look.colour, lying=False)


def _places(axes: Axes, labels: Sequence[str]) -> Sequence[float]:
    """Return where the values stand: numbers by their size, `dirichlet:0.3` too, others side by side."""
    numbers = [number(label) for label in labels]
    known = [value for value in numbers if value is not None]
    if len(known) < len(labels) or len(set(known)) < len(known):
        axes.set_xticks(range(len(labels)), list(labels))
        axes.set_xlim(-0.5, len(labels) - 0.5)
        return list(range(len(labels)))
    if len(known) >= _LEAST_LOG and min(known) > 0 and math.log10(max(known) / min(known)) > _DECADES:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(known, [f"{value:g}" for value in known])
    return known


def number(label: str) -> float | None:
    """Return the number that a value is, or ends with; None if there is none."""
    try:
        value = float(label.rpartition(":")[2])
    except ValueError:
        return None
    return value if math.isfinite(value) else None
