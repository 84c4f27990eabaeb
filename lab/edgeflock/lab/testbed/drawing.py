"""Pictures of a testbed: bars of minutes to the target by part, accuracy on the way there, and the sweep."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgeflock.common.command import extras
from edgeflock.lab.history import Point
from edgeflock.lab.plots import theme
from edgeflock.lab.plots.theme import FAINT, HUES, INK, NEUTRAL, figure
from edgeflock.lab.testbed.breakdown import DEVICE, SERVER, WAIT, SeedGroup, settings
from edgeflock.lab.testbed.checks import HeldCell
from edgeflock.lab.testbed.sweep import Spot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREEN, _PURPLE, _RED, _TEAL, _PINK, _BROWN = (light for light, _ in HUES)
COLOURS = {
    "train": _ORANGE,
    "fetch": _BLUE,
    "deliver": _GREEN,
    WAIT: NEUTRAL,
    "select": _BROWN,
    "fold": _PINK,
    "commit": _PURPLE,
    "tests": _TEAL,
}
assert set(COLOURS) == {*DEVICE, *SERVER, WAIT}
_PANEL = (4.0, 2.9)  # inches


def draw(
    out: Path, rows: Sequence[SeedGroup], cells: Sequence[HeldCell], sweeps: Mapping[str, Sequence[Spot]]
) -> str:
    """Write every picture as SVG and PNG; return why there is none, or nothing."""
    if not extras.installed("matplotlib"):
        return f"no pictures: they {extras.needs('matplotlib')}"
    makers: dict[str, Callable[[], Figure | None]] = {
        "minutes": lambda: minutes(rows),
        "accuracy": lambda: accuracy(cells),
        "sweep": lambda: sweep(sweeps),
    }
    with theme.styled():
        for name, make in makers.items():
            if (made := make()) is not None:
                (out / f"{name}.svg").write_text(theme.standing_alone(theme.svg(made)), "utf-8")
                theme.png(made, out / f"{name}.png")
    return ""


def minutes(rows: Sequence[SeedGroup]) -> Figure | None:
    """Return a group of bars for every setting: a bar for each method, piled up by part, minutes above it."""
    groups = {setting: [row for row in rows if row.setting == setting] for setting in settings(rows)}
    if not any(row.reached for row in rows):
        return None
    made = figure(max(_PANEL[0], 1.2 + 0.42 * (len(rows) + len(groups))), 3.6)
    axes, place, ticks = made.subplots(), 0.0, list[tuple[float, str]]()
    for setting, mine in groups.items():
        begin = place
        for row in mine:
            _bar(axes, place, row)
            ticks.append((place, row.method))
            place += 1
        middle = (begin + place - 1) / 2
        axes.text(
            middle, 1.0, setting, transform=axes.get_xaxis_transform(), ha="center", va="bottom", fontsize=9
        )
        place += 0.8
    axes.set_xticks([at for at, _ in ticks], [name for _, name in ticks], rotation=60, ha="right", fontsize=8)
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.12)
    axes.set_ylabel("minutes to the target")
    _legend(made, axes)
    return made


def _bar(axes: Axes, place: float, row: SeedGroup) -> None:
    if not row.reached:
        axes.text(place, 0, " not reached", rotation=90, ha="center", va="bottom", fontsize=7, color=FAINT)
        return
    bottom = 0.0
    for part, colour in COLOURS.items():
        height = statistics.fmean(cell.parts[part] for cell in row.reached) / 60
        axes.bar(place, height, 0.78, bottom, color=colour, linewidth=0, label=part)
        bottom += height
    found = [cell.seconds / 60 for cell in row.reached]
    deviation = statistics.stdev(found) if len(found) > 1 else None
    axes.errorbar([place], [bottom], yerr=deviation, fmt="none", ecolor=INK, capsize=2.5, elinewidth=1)
    above = f"{bottom:.{2 if bottom < 10 else 1 if bottom < 100 else 0}f}"
    axes.annotate(
        above, (place, bottom + (deviation or 0)), (0, 2), textcoords="offset points", ha="center", fontsize=7
    )


def _legend(made: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    known = dict(zip(labels, handles, strict=True))
    made.legend(known.values(), known.keys(), loc="outside lower center", ncols=4, fontsize=7)


_ACROSS: tuple[tuple[str, Callable[[Point], float]], ...] = (
    ("minutes", lambda point: point.spent.get("seconds", 0.0) / 60),
    ("MB up and down, payload", lambda point: point.spent.get("bytes", 0.0) / 1e6),
)


def accuracy(cells: Sequence[HeldCell]) -> Figure | None:
    """Return accuracy against minutes and megabytes: two panels for every setting, a line for each cell."""
    known = [cell for cell in cells if cell.history.models()]
    if not known:
        return None
    shown = list(dict.fromkeys(cell.breakdown.setting for cell in known))
    methods = list(dict.fromkeys(cell.breakdown.method for cell in known))
    made = figure(2 * _PANEL[0], len(shown) * _PANEL[1] + 0.2 * -(-len(methods) // 6))
    panels = made.subplots(len(shown), 2, sharey=True, squeeze=False)
    for setting, pair in zip(shown, panels, strict=True):
        for axes, (label, of) in zip(pair, _ACROSS, strict=True):
            for cell in (cell for cell in known if cell.breakdown.setting == setting):
                _line(axes, cell, methods, of)
            axes.set_xlabel(label)
        pair[0].set_ylabel(f"test {known[0].history.figure.name}")
        pair[0].set_title(setting)
    handles = {line.get_label(): line for axes in panels.flat for line in axes.get_lines()}
    made.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6)
    return made


def _line(axes: Axes, cell: HeldCell, methods: Sequence[str], of: Callable[[Point], float]) -> None:
    points = cell.history.curve(cell.measure)
    look = theme.stroke(methods.index(cell.breakdown.method))
    axes.plot(
        [of(point) for point in points],
        [point.evaluation.value for point in points],
        color=look.colour,
        linestyle=look.dash,
        linewidth=1.2,
        label=cell.breakdown.method,
    )


def sweep(found: Mapping[str, Sequence[Spot]]) -> Figure | None:
    """Return minutes against the link, and against the speed of the devices, a line for each method."""
    shown = {setting: spots for setting, spots in found.items() if spots and spots[0].minutes}
    if not shown:
        return None
    methods = list(dict.fromkeys(name for spots in shown.values() for name in spots[0].minutes))
    made = figure(2 * _PANEL[0], len(shown) * _PANEL[1] + 0.2 * -(-len(methods) // 6))
    panels = made.subplots(len(shown), 2, squeeze=False)
    for (setting, spots), (left, right) in zip(shown.items(), panels, strict=True):
        own = min(spots, key=lambda spot: abs(spot.speed - 1)).speed
        links = list(dict.fromkeys(spot.link for spot in spots))
        middle = links[max(0, len(links) - 2)]
        _swept(left, [(spot.link, spot) for spot in spots if spot.speed == own], methods)
        _swept(right, [(f"{spot.speed:g}", spot) for spot in spots if spot.link == middle], methods)
        left.set(ylabel="minutes to the target, reckoned", xlabel="link", title=setting)
        right.set(xlabel=f"devices so many times as fast, {middle}")
    handles = {line.get_label(): line for axes in panels.flat for line in axes.get_lines()}
    made.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6)
    return made


def _swept(axes: Axes, spots: Sequence[tuple[str, Spot]], methods: Sequence[str]) -> None:
    for name in spots[0][1].minutes:
        look = theme.stroke(methods.index(name))
        values = [spot.minutes[name] for _, spot in spots]
        axes.plot(
            range(len(spots)), values, color=look.colour, linestyle=look.dash, marker="o", ms=3, label=name
        )
    axes.set_xticks(range(len(spots)), [label for label, _ in spots], fontsize=8)
    axes.set_ylim(bottom=0)
