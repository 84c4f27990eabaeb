"""The pictures that a grid asks for beside the usual one: lines, swept options, boxes, bars of times."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgeflock.common.command import extras
from edgeflock.lab.compare import bands, bars, picture
from edgeflock.lab.compare.bars import of_mean, of_median
from edgeflock.lab.compare.figure_spec import BOXES, LINES, SWEPT, FigureSpec
from edgeflock.lab.findings.blocks import HEADINGS, met
from edgeflock.lab.findings.bounded import Bounded, middle
from edgeflock.lab.findings.figures import by_seed
from edgeflock.lab.findings.findings import Findings
from edgeflock.lab.findings.groups import Group
from edgeflock.lab.findings.outcome import COSTS
from edgeflock.lab.findings.paired import spread
from edgeflock.lab.grid.cases import CASE
from edgeflock.lab.plots import boxes, sweep, theme, times
from edgeflock.lab.plots.theme import Stroke
from edgeflock.lab.plots.whiskers import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure
_COSTS = {
    **HEADINGS,
    "iterations": "local steps",
    "simulated_s": "simulated time",
    "seconds": "time of the server",
    "flops": "operations of the clients",
    "all_flops": "operations",
}


def draw(found: Findings, asked: FigureSpec, path: Path) -> str:
    """Write a picture as path.svg and path.png; return why there is none, or nothing."""
    if asked.kind == LINES:
        return picture.draw(found, path, asked)
    if not extras.installed("matplotlib"):
        return f"no picture: it {extras.needs('matplotlib')}"
    with theme.styled():
        if (made := make(found, asked)) is None:
            return f"no picture: no run knows its {asked.y}"
        theme.save(made, path)
    return ""


def make(found: Findings, asked: FigureSpec) -> Figure | None:
    """Return a picture, None if there is nothing to draw; call it inside `styled`."""
    if asked.kind == LINES:
        return picture.make(found, asked)
    return _boxes(found, asked) if asked.kind == BOXES else _over(found, asked)


def title(found: Findings, asked: FigureSpec) -> str:
    """Return what stands above a picture."""
    if asked.kind == LINES:
        x = ", ".join(axis.name for axis in picture.axes_of(asked))
        return f"{picture.y_label(found, asked)} against {x}"
    over = f" over {asked.over}" if asked.over else ""
    return f"{_called(asked, found)}{over}"


def caption(asked: FigureSpec) -> str:
    """Return what a picture does not say by itself."""
    if asked.kind == BOXES:
        missed = " Seeds that missed the target are in no box." if asked.y in COSTS else ""
        return f"Box: the middle half of the seeds; line: median; dots: every seed.{missed}"
    if asked.kind == LINES:
        smoothed = f" Smoothed, by run: an exponential moving average of weight {asked.smooth:g}."
        return f"Mean over seeds, band: one deviation.{smoothed if asked.smooth else ''}"
    if asked.y in COSTS:
        return "Median with its interval; pale and with an arrow: more than that, because runs missed it."
    return "Mean over seeds, whiskers: one deviation."


def write(found: Findings, asked: Sequence[FigureSpec], folder: Path) -> list[str]:
    """Write all pictures to a folder; return what keeps some from being there, in sentences."""
    if asked:
        folder.mkdir(exist_ok=True)
    lacking = {spec.stem: draw(found, spec, folder / spec.stem) for spec in asked}
    return [f"{stem}: {why}" for stem, why in lacking.items() if why]


def _boxes(found: Findings, asked: FigureSpec) -> Figure | None:
    looks = bands.strokes(found.groups, found.grid)
    order = sorted(
        zip(found.groups, looks, strict=True),
        key=lambda entry: _labels(found, asked).index(entry[0].labels.get(asked.over, "")),
    )
    rows = [_row(group.name, look, _known(found, asked, group.labels)) for group, look in order]
    return boxes.boxes(rows, _called(asked, found))


def _row(name: str, look: Stroke, known: Mapping[str, Bounded]) -> boxes.Row:
    """Return a box of the values that are known; its name says how many are more than anybody knows."""
    values = _values(known)
    missed = len(known) - len(values)
    return f"{name}, {missed} of {len(known)} missed it" if missed else name, look, values


def _labels(found: Findings, asked: FigureSpec) -> Sequence[str]:
    """Return the values of the axis that groups, and nothing for who does not have it."""
    return (*found.grid.axes.get(asked.over, ()), "")


def _over(found: Findings, asked: FigureSpec) -> Figure | None:
    """Draw who differs in nothing but an axis as one line, or as bars of one colour."""
    alike: dict[tuple[tuple[str, str], ...], list[Group]] = {}
    for group in found.groups:
        rest = {axis: label for axis, label in group.labels.items() if axis != asked.over}
        alike.setdefault(tuple(rest.items()), []).append(group)
    names = [replace(several[0], labels=dict(rest)) for rest, several in alike.items()]
    looks = bands.strokes(names, found.grid)
    labels = [label for label in _labels(found, asked) if label]
    each = [
        [_estimate(found, asked, {**group.labels, asked.over: label}) for label in labels] for group in names
    ]
    if asked.kind == SWEPT:
        return _swept(found, asked, labels, list(zip(names, looks, each, strict=True)))
    if not asked.over:
        labels, each = [""], [[_estimate(found, asked, group.labels)] for group in names]
    known = [one for several in each for one in several if one is not None]
    made = [times.Bars(*entry) for entry in zip((group.name for group in names), looks, each, strict=True)]
    shown = labels if asked.over in ("", CASE) else [f"{asked.over}={label}" for label in labels]
    unit = bars.unit_of(asked.y, known)
    return times.times(shown, made, _called(asked, found), unit) if known else None


def _swept(
    found: Findings,
    asked: FigureSpec,
    labels: Sequence[str],
    lines: Sequence[tuple[Group, Stroke, Sequence[Estimate | None]]],
) -> Figure | None:
    shown = []
    for group, look, several in lines:
        if any(several):
            shown.append(sweep.Swept(group.name, look, several))
        elif (level := _estimate(found, asked, group.labels)) is not None:
            more = f", more than {level.value:g}" if level.more else ""
            shown.append(sweep.Swept(f"{group.name}{more}", look, level=level))
    known = [one for line in shown for one in (*line.found, line.level) if one is not None]
    if not known:
        return None
    unit = bars.unit_of(asked.y, known)
    scaled = [
        replace(
            line,
            found=[None if one is None else one.over(unit.divisor) for one in line.found],
            level=None if line.level is None else line.level.over(unit.divisor),
        )
        for line in shown
    ]
    return sweep.swept(scaled, labels, asked.over, unit.label(_called(asked, found)))


def _known(found: Findings, asked: FigureSpec, labels: Mapping[str, str]) -> dict[str, Bounded]:
    """Return a figure of a group by seed; nothing if there is no such group."""
    group = next((group for group in found.groups if group.labels == labels), None)
    if group is None:
        return {}
    return by_seed(found.results, labels, asked.y, _target(found, asked, group), asked.model)


def _values(known: Mapping[str, Bounded]) -> list[float]:
    return [one.value for one in known.values() if one.value is not None]


def _estimate(found: Findings, asked: FigureSpec, labels: Mapping[str, str]) -> Estimate | None:
    """Return a figure of a group as it is drawn: a cost as the median, all else as the mean."""
    known = _known(found, asked, labels)
    return of_median(middle(list(known.values()))) if asked.y in COSTS else of_mean(spread(_values(known)))


def _target(found: Findings, asked: FigureSpec, group: Group) -> float | None:
    """Return the target of a cost: the group's highest that any run has reached, where none is given."""
    if asked.y not in COSTS or asked.target is not None:
        return asked.target if asked.y in COSTS else None
    reached = [target for target in group.targets if target in met(found.groups, found.grid)]
    return next(iter(sorted(reached or group.targets, reverse=found.grid.figure.higher)), None)


def _called(asked: FigureSpec, found: Findings) -> str:
    """Return a figure's name for people."""
    if asked.y in COSTS:
        targets = {_target(found, asked, group) for group in found.groups}
        (only, *more) = targets or {None}
        way = (
            "to the target"
            if more
            else "of the whole run"
            if only is None
            else f"to {found.grid.figure.name} {only:g}"
        )
        return f"{_COSTS[asked.y]} {way}"
    words = re.sub(r"^last_(\d+)_(\w+)$", r"\2, mean of the last \1 rounds", asked.y)
    words = re.sub(r"_at_(\d+)$", r" at round \1", words).replace("_", " ")
    return f"{words}, {asked.model}" if asked.model else words
