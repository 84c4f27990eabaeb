"""Lines of a comparison: of every group the mean over its seeds, with their deviation as a band."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from edgeflock.lab.findings.groups import Group
from edgeflock.lab.findings.outcome import RunOutcome
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.grid.grid import Grid
from edgeflock.lab.grid.options import METHOD
from edgeflock.lab.history import History, Point
from edgeflock.lab.plots import theme
from edgeflock.lab.plots.curves import SHARE, UNBOUNDED, Against, Curve
from edgeflock.lab.plots.theme import Stroke

Pair = tuple[float, float]  # x and y


def strokes(found: Sequence[Group], grid: Grid) -> list[Stroke]:
    """Return the look of every group: its method's colour and shape, dashes for the other axes.

    Where there are more of either than can be told apart, groups are told apart by their number alone.
    """
    methods = grid.axes.get(METHOD, ("",))
    settings = list(dict.fromkeys(_setting(group) for group in found))
    if len(methods) > len(theme.HUES) or len(settings) > len(theme.DASHES):
        return [theme.stroke(number) for number in range(len(found))]
    return [
        theme.marked(methods.index(group.labels.get(METHOD, methods[0])), settings.index(_setting(group)))
        for group in found
    ]


def _setting(group: Group) -> tuple[tuple[str, str], ...]:
    return tuple((axis, label) for axis, label in group.labels.items() if axis != METHOD)


def evaluations(
    results: Sequence[CellResult], found: Sequence[Group], looks: Sequence[Stroke], what: str, axis: Against
) -> list[Curve]:
    """Return accuracy or loss of every group that has it, at the rounds that all its runs have evaluated."""
    lines = []
    for group, look in zip(found, looks, strict=True):
        outcomes = [r.outcome for r in results if r.outcome and r.cell.group == group.labels]
        pairs = [_pairs(points, what, axis) for points in together(outcomes)]
        lines += _line(group.name, look, pairs, SHARE if what == "accuracy" else UNBOUNDED)
    return lines


def _pairs(points: Sequence[Point], what: str, axis: Against) -> list[Pair]:
    """Return what the runs have at a round; nothing if one of them does not know it."""
    found = [
        (x, y)
        for point in points
        if (x := axis.of(point)) is not None and math.isfinite(y := getattr(point.evaluation, what))
    ]
    return found if len(found) == len(points) else []


def together(outcomes: Sequence[RunOutcome]) -> list[list[Point]]:
    """Return the points of the rounds that every run has evaluated: a mean of those that went on misleads.

    Of training only: a round that closes a run trains nothing.
    """
    runs: list[Mapping[int, Point]] = [
        {point.round: point for point in run.curve if point.round <= (run.total["rounds"] or 0)}
        for run in outcomes
    ]
    return [[run[round] for run in runs] for round in _common(runs)]


def metric(
    results: Sequence[CellResult], found: Sequence[Group], looks: Sequence[Stroke], name: str
) -> list[Curve]:
    """Return what the methods say of their rounds, over those that all runs of a group tell of."""
    lines = []
    for group, look in zip(found, looks, strict=True):
        runs = [
            _told(r.history, r.cell.config.rounds, name)
            for r in results
            if r.history and r.cell.group == group.labels
        ]
        pairs = [[(float(round), run[round]) for run in runs] for round in _common(runs)]
        lines += _line(group.name, look, pairs, UNBOUNDED)
    return lines


def _told(history: History, rounds: int, name: str) -> dict[int, float]:
    return {
        round.number: round.metrics[name]
        for round in history.training
        if round.number <= rounds and math.isfinite(round.metrics.get(name, math.nan))
    }


def _common(runs: Sequence[Iterable[int]]) -> list[int]:
    return sorted(set[int].intersection(*map(set, runs))) if runs else []


def _line(
    name: str, look: Stroke, pairs: Sequence[Sequence[Pair]], within: tuple[float, float]
) -> list[Curve]:
    """Return the line of a group, none if there is no point of it."""
    if not (known := [mine for mine in pairs if mine]):
        return []
    mean: Callable[[Iterable[float]], float] = statistics.fmean
    several = min(map(len, known)) > 1
    return [
        Curve(
            name,
            look,
            [mean(x for x, _ in mine) for mine in known],
            [mean(y for _, y in mine) for mine in known],
            [statistics.stdev(y for _, y in mine) for mine in known] if several else (),
            within,
        )
    ]
