"""Boxes: the quartiles of what the seeds of a group came to, its ends, and every seed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles
from typing import TYPE_CHECKING

from edgeflock.lab.plots.costs import name_rows
from edgeflock.lab.plots.curves import SIZE
from edgeflock.lab.plots.theme import FAINT, INK, Stroke, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = tuple[str, Stroke, Sequence[float]]  # name, look, values

_HIGH = 0.5  # of a row
_PALE = 0.35


def boxes(rows: Sequence[Row], label: str) -> Figure | None:
    """Return a lying box for every row that has values; None if none has any. Call it inside `styled`."""
    if not any(values for _, _, values in rows):
        return None
    made = figure(SIZE[0], 0.8 + 0.28 * len(rows))
    axes = made.subplots()
    for place, (_, look, values) in enumerate(rows):
        if values:
            _box(axes, place, look, sorted(values))
        else:
            beside = axes.get_yaxis_transform()
            axes.text(0.02, place, "not known", va="center", fontsize=8, color=FAINT, transform=beside)
    name_rows(axes, [name for name, _, _ in rows], "")
    axes.set_xlabel(label)
    return made


def _box(axes: Axes, place: int, look: Stroke, values: Sequence[float]) -> None:
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    axes.plot([values[0], values[-1]], [place, place], color=look.colour, linewidth=1.2, zorder=2)
    axes.barh(place, high - low, _HIGH, low, color=look.colour, alpha=_PALE, linewidth=0)
    axes.plot(
        [median(values)] * 2, [place - _HIGH / 2, place + _HIGH / 2], color=look.colour, linewidth=2, zorder=3
    )
    axes.plot(
        values, [place] * len(values), linestyle="", marker=look.shape or "o", markersize=3.5,
        markeredgewidth=0.6, markeredgecolor=INK, color=look.colour, zorder=4,
    )  # fmt: skip
