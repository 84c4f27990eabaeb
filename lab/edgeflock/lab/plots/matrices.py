"""Tables drawn as fields of colour, confusion of classes and labels of clients; bars of one number each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeflock.common.command.crowd import STEPS
from edgeflock.common.command.units import means, spans
from edgeflock.lab.plots.costs import name_rows, together
from edgeflock.lab.plots.curves import SIZE
from edgeflock.lab.plots.names import elided
from edgeflock.lab.plots.theme import HUES, INK, NEUTRAL, PAPER, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Table = Sequence[Sequence[int]]

BLUE = HUES[0][0]
_COUNTED = 12  # up to so many classes are shown with numbers
_BUBBLES = 40  # up to so many clients are drawn as bubbles
_DOTS = 600  # up to so many of them
_NAMED = 16  # up to so many clients are named below the field
_RASTER = 2000  # more fields are one picture inside the SVG
_TICKS = 20


def confusion(table: Table) -> Figure:
    """Return true classes against predicted ones; colours are shares of the true class."""
    classes = len(table)
    made = figure(SIZE[0], SIZE[0] * 0.92)
    axes = made.subplots()
    shares = [[count / max(1, sum(row)) for count in row] for row in table]
    _field(axes, shares)
    if classes <= _COUNTED:
        for true, row in enumerate(table):
            for predicted, count in enumerate(row):
                strong = shares[true][predicted] > 0.55
                ink = PAPER if strong else INK if count else NEUTRAL
                text = f"{count}" if count else "·"
                axes.text(predicted, true, text, ha="center", va="center", fontsize=7.5, color=ink)
    axes.set(xlabel="predicted class", ylabel="true class", xlim=(-0.5, classes - 0.5))
    axes.set_ylim(classes - 0.5, -0.5)
    axes.set_aspect("equal")
    _whole(axes, classes, classes)
    return made


def labels(table: Table, names: Sequence[str], colour: str = BLUE) -> Figure:
    """Return classes against clients: bubbles as large as the number of samples, or shades where many."""
    clients, classes = len(table), len(table[0])
    made = figure(SIZE[0], 1.0 + min(4.6, max(1.6, 0.23 * classes)))
    axes = made.subplots()
    held(axes, table, colour)
    shown = elided(names, 14)
    if clients <= _NAMED:
        steep = any(len(name) > 3 for name in shown)
        axes.set_xticks(range(clients), shown, rotation=90 if steep else 0, fontsize=8 if steep else 9)
    return made


def held(axes: Axes, table: Table, colour: str = BLUE) -> None:
    """Draw classes against clients."""
    clients, classes = len(table), len(table[0])
    most = max(1, *(count for row in table for count in row))
    if are_bubbles(table):
        _bubbles(axes, table, most, colour)
    else:  # by the root, so that few samples are seen beside many
        _field(axes, [[math.sqrt(row[label] / most) for row in table] for label in range(classes)], colour)
    axes.set(ylabel="class", xlim=(-0.7, clients - 0.3), ylim=(-0.7, classes - 0.3))
    _whole(axes, clients, classes)
    axes.set_xlabel(f"client (most of one class: {most:,} samples)")


def are_bubbles(table: Table) -> bool:
    """Whether there are few enough of them to be drawn as dots."""
    return len(table) <= _BUBBLES and len(table) * len(table[0]) <= _DOTS


def _bubbles(axes: Axes, table: Table, most: int, colour: str) -> None:
    clients, classes = len(table), len(table[0])
    room = min(250 / clients, 130 / max(4, classes) * 1.6, 17.0)  # points between two of them
    found = [
        (client, label, count) for client, row in enumerate(table) for label, count in enumerate(row) if count
    ]
    areas = [max(1.0, room**2 * count / most) for _, _, count in found]
    axes.scatter(
        [client for client, _, _ in found],
        [label for _, label, _ in found],
        s=areas,
        color=colour,
        linewidths=0,
    )


def _field(axes: Axes, shares: Sequence[Sequence[float]], colour: str = BLUE) -> None:
    """Draw cells of one hue whose opacity is the share, so that they fit a light and a dark page."""
    import numpy as np
    from matplotlib.colors import to_rgb

    values = np.asarray(shares, float)
    colours = np.empty((*values.shape, 4))
    colours[..., :3], colours[..., 3] = to_rgb(colour), values
    rows, columns = values.shape
    if values.size > _RASTER:
        finer = columns > _RASTER  # than the picture: neighbours are mixed, not left out
        axes.imshow(colours, aspect="auto", interpolation="antialiased" if finer else "nearest")
    else:
        x, y = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
        axes.pcolormesh(x, y, colours, linewidth=0)
    axes.grid(visible=False)


def bars(values: Sequence[tuple[str, float]], what: str) -> Figure:
    """Return one lying bar for each name and a line at their mean; many are drawn by size, without names."""
    named = len(values) <= _BUBBLES
    made = figure(SIZE[0], 0.8 + 0.2 * len(values) if named else SIZE[1])
    axes = made.subplots()
    if named:
        axes.barh(range(len(values)), [value for _, value in values], 0.75, color=BLUE, linewidth=0)
    else:
        steps = sorted((value for _, value in values), reverse=True)
        steps = means(steps, spans(len(steps), STEPS))
        axes.stairs(steps, orientation="horizontal", fill=True, color=BLUE, linewidth=0)
    numbers = [value for _, value in values]
    middle = sum(numbers) / len(numbers)
    axes.axvline(middle, color=INK, linewidth=1, linestyle=(0, (3, 2)))
    name_rows(
        axes, [name for name, _ in values] if named else (), together(len(values), "clients, largest on top")
    )
    axes.set_xlabel(f"{what}; dashed: mean, {middle:.4f}")
    if min(numbers) >= 0:
        axes.set_xlim(0, 1.04 * max(numbers) or 1)
    return made


def _whole(axes: Axes, columns: int, rows: int) -> None:
    from matplotlib.ticker import MaxNLocator

    for axis, count in ((axes.xaxis, columns), (axes.yaxis, rows)):
        if count <= _TICKS:
            axis.set_ticks(range(count))
        else:
            axis.set_major_locator(MaxNLocator(nbins=12, integer=True))
