"""Where bytes, seconds and energy go, drawn: stacked by round, by client, and by run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgeflock.common.command.crowd import STEPS
from edgeflock.common.command.units import means, scale, spans
from edgeflock.lab.history import RoundHistory
from edgeflock.lab.plots.curves import SIZE
from edgeflock.lab.plots.names import elided
from edgeflock.lab.plots.stacks import Row, Stack, StackPart
from edgeflock.lab.plots.theme import figure
from edgeflock.server.journal.reader import Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BARS = 60  # more rounds are drawn as means of several
_NAMED = 40  # more clients are drawn without their names
_NAME_WIDTH = 34  # characters


def per_round(rounds: Sequence[RoundHistory], stack: Stack, rows: Sequence[Numbers]) -> Figure | None:
    """Return a stack of bars by round; None if nothing was spent."""
    if not (parts := stack.present(rows)):
        return None
    cuts = spans(len(rounds), _BARS)
    values = {part: means([part.of(row) for row in rows], cuts) for part in parts}
    unit = scale(stack.quantity, [sum(column) for column in zip(*values.values(), strict=True)])
    made, axes = _empty(SIZE[1], len(parts))
    edges = [rounds[low].number - 0.5 for low, _ in cuts] + [rounds[-1].number + 0.5]
    _pile(
        axes, {part: unit.of(heights) for part, heights in values.items()}, edges, grouped=len(rounds) > _BARS
    )
    axes.set_ylabel(unit.label(stack.of))
    axes.set_xlabel(f"round (means of {cuts[0][1]})" if cuts[0][1] > 1 else "round")
    axes.grid(axis="x", visible=False)
    axes.margins(x=0.01)
    _whole(axes, len(rounds))
    made.legend(loc="outside lower left", ncols=2)
    return made


def _pile(
    axes: Axes, values: Mapping[StackPart, list[float]], edges: Sequence[float], *, grouped: bool
) -> None:
    """Pile up the parts between the edges: a bar for each round, or one outline where there are many."""
    tops = [0.0] * (len(edges) - 1)
    for part, heights in values.items():
        look: Any = {"label": part.label, "color": part.colour, "linewidth": 0}
        bottoms, tops = tops, [top + height for top, height in zip(tops, heights, strict=True)]
        if grouped:
            axes.stairs(tops, edges, baseline=bottoms, fill=True, **look)
        else:
            axes.bar([edge + 0.5 for edge in edges[:-1]], heights, 0.84, bottoms, **look)


def lying(stack: Stack, rows: Sequence[Row], what: str) -> Figure | None:
    """Return one lying bar for each name, the first on top; many are drawn by size and without names."""
    if not (parts := stack.present([costs for _, costs in rows])):
        return None
    if not (named := len(rows) <= _NAMED):
        rows = sorted(rows, key=lambda row: -sum(part.of(row[1]) for part in parts))
    cuts = spans(len(rows), len(rows) if named else STEPS)
    made, axes = _empty(0.9 + 0.2 * len(rows) if named else SIZE[1], len(parts))
    unit = scale(stack.quantity, [sum(part.of(costs) for part in parts) for _, costs in rows])
    lefts = [0.0] * len(cuts)
    for part in parts:
        look: Any = {"label": part.label, "color": part.colour, "linewidth": 0}
        lengths = means(unit.of(part.of(costs) for _, costs in rows), cuts)
        ends = [left + length for left, length in zip(lefts, lengths, strict=True)]
        if named:
            axes.barh(range(len(rows)), lengths, 0.75, lefts, **look)
        else:
            axes.stairs(ends, baseline=lefts, orientation="horizontal", fill=True, **look)
        lefts = ends
    name_rows(axes, [name for name, _ in rows] if named else (), together(len(rows), f"{what}s, most on top"))
    axes.set_xlabel(unit.label("whole run"))
    made.legend(loc="outside lower left", ncols=2)
    return made


def together(count: int, what: str) -> str:
    """Return what so many rows are that have no names; neighbours of very many are drawn as one."""
    each = spans(count, STEPS)[0][1]
    return "\n".join([f"{count:,} {what}", *([f"(means of {each})"] if each > 1 else [])])


def name_rows(axes: Axes, names: Sequence[str], instead: str) -> None:
    """Name lying bars, the first on top; without names say what they are."""
    if names:
        axes.set_yticks(range(len(names)), elided(names, _NAME_WIDTH))
        axes.tick_params(axis="y", length=0, labelsize=8)
        axes.set_ylim(len(names) - 0.4, -0.6)
    else:
        axes.set(ylabel=instead, yticks=[])
        axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def _empty(height: float, parts: int) -> tuple[Figure, Axes]:
    made = figure(SIZE[0], height + 0.18 * -(-parts // 2))
    return made, made.subplots()


def _whole(axes: Axes, rounds: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=12 if rounds <= 12 else 7, integer=True, min_n_ticks=1))
