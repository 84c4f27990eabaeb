"""Lines of a comparison: of every group the mean over its seeds, with their deviation as a band."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from edgeflock.common.scores import Summary
from edgeflock.lab.findings.figures import curve_by
from edgeflock.lab.findings.groups import Group
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.findings.smoothing import ema
from edgeflock.lab.grid.grid import Grid
from edgeflock.lab.grid.options import METHOD
from edgeflock.lab.history import History, Point
from edgeflock.lab.plots import theme
from edgeflock.lab.plots.curves import AXES, SHARE, UNBOUNDED, Against, Curve
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
    results: Sequence[CellResult],
    found: Sequence[Group],
    looks: Sequence[Stroke],
    what: str,
    axis: Against,
    model: str = "",
    smooth: float = 0.0,
) -> list[Curve]:
    """Return a metric of every group that has it, at the rounds that all its runs have evaluated.

    Of a model by its name, else of the one that counts; smoothed by run, before they are averaged.
    """
    lines = []
    for group, look in zip(found, looks, strict=True):
        mine = [r for r in results if r.outcome and r.cell.group == group.labels]
        each = together(mine, model)
        measures = mine[0].measures if mine else ()
        figure = measures[0].name if measures else ""
        runs = [[_pair(point, what, axis, figure) for point in run] for run in each]
        share = any(one.name == what and one.share for one in measures)
        lines += _line(group.name, look, _smoothed(runs, smooth), SHARE if share else UNBOUNDED)
    return lines


def _pair(point: Point, what: str, axis: Against, figure: str) -> Pair | None:
    x, y = axis.of(point), point.evaluation.of(what, figure)
    return (x, y) if x is not None and math.isfinite(y) else None


def together(results: Sequence[CellResult], model: str = "") -> list[list[Point]]:
    """Return each run's points of the rounds that all have evaluated: a mean of those that went on misleads.

    Of training only: a round that closes a run trains nothing.
    """
    runs: list[Mapping[int, Point]] = [
        {point.round: point for point in curve_by(result, model) if point.round <= _trained(result)}
        for result in results
    ]
    return [[run[round] for round in _common(runs)] for run in runs]


def _trained(result: CellResult) -> float:
    return (result.outcome.total["rounds"] or 0) if result.outcome else 0


def metric(
    results: Sequence[CellResult],
    found: Sequence[Group],
    looks: Sequence[Stroke],
    name: str,
    axis: Against = AXES[0],
    smooth: float = 0.0,
) -> list[Curve]:
    """Return what the methods say of their rounds, over those that all runs of a group tell of."""
    lines = []
    for group, look in zip(found, looks, strict=True):
        told = [
            _told(r.history, r.cell.config.rounds, name, axis)
            for r in results
            if r.history and r.cell.group == group.labels
        ]
        runs = [[run[round] for round in _common(told)] for run in told]
        lines += _line(group.name, look, _smoothed(runs, smooth), UNBOUNDED)
    return lines


def _told(history: History, rounds: int, name: str, axis: Against) -> dict[int, Pair | None]:
    nothing = Summary(math.nan, math.nan, 0)
    return {
        round.number: None if x is None else (x, round.metrics[name])
        for round in history.training
        if round.number <= rounds and math.isfinite(round.metrics.get(name, math.nan))
        for x in [axis.of(Point(round.number, nothing, round.spent))]
    }


def _smoothed(runs: Sequence[Sequence[Pair | None]], weight: float) -> list[list[Pair]]:
    """Return what the runs have at each common round; nothing where one of them does not know it."""
    rounds = [[pair for pair in mine if pair is not None] for mine in zip(*runs, strict=True)]
    rounds = [mine if len(mine) == len(runs) else [] for mine in rounds]
    if not weight:
        return rounds
    whole = [mine for mine in rounds if mine]
    each = (
        [(x, y) for (x, _), y in zip(run, ema([y for _, y in run], weight), strict=True)]
        for run in zip(*whole, strict=True)
    )
    return [list(mine) for mine in zip(*each, strict=True)]


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
