"""Any number of a run, or of a group of runs, by its name: what tables, rules and pictures ask for. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from edgeflock.common.errors import BadValue
from edgeflock.common.scores import LOSS
from edgeflock.lab.findings.bounded import Bounded, Middle, exactly, middle, more_than, ratios
from edgeflock.lab.findings.outcome import COSTS, curve_of, first_rounds, way
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.grid.options import SEED
from edgeflock.lab.history import Point

_TESTED = re.compile(r"(final|best)_([a-z]\w*)")
_LAST = re.compile(r"last_([1-9]\d*)_([a-z]\w*)")
_AT = re.compile(r"([a-z]\w*)_at_([1-9]\d*)")
_TOLD = re.compile(r"(last|mean|median)_([A-Za-z]\w*)")
NAMES = (
    f"{', '.join(COSTS)}, final_accuracy, best_accuracy, last_10_accuracy, accuracy_at_20, the same of "
    "loss and of a task's other metrics, "
    "or last_, mean_ or median_ before what a method says of its rounds (mean_tau)"
)


def check_name(name: str, label: str) -> str:
    """Return the name of a figure; raises BadValue with what there is."""
    if name not in COSTS and not any(form.fullmatch(name) for form in (_TESTED, _LAST, _AT, _TOLD)):
        raise BadValue(label, name, NAMES)
    return name


def figure(result: CellResult, name: str, target: float | None = None, model: str = "") -> Bounded | None:
    """Return a figure of a run by its name, None if it is not known.

    A cost is that up to the target, or of the whole run without one; of a run that missed the target it is
    more than what that had. `model` is the one that was tested; empty: the one that counts.
    """
    if name in COSTS:
        return _cost(result, name, target, model)
    curve = curve_by(result, model)
    trained = [point for point in curve if point.round <= _trained(result)]
    if form := _TESTED.fullmatch(name):
        return _tested(result, curve, form[1], form[2])
    if form := _LAST.fullmatch(name):
        first = _trained(result) - int(form[1])
        return _mean([_score(result, point, form[2]) for point in trained if point.round > first])
    if form := _AT.fullmatch(name):
        return _mean([_score(result, point, form[1]) for point in trained if point.round == int(form[2])])
    if form := _TOLD.fullmatch(name):
        return _told(_said(result, form[2]), form[1])
    return None


def by_seed(
    results: Sequence[CellResult],
    labels: Mapping[str, str],
    name: str,
    target: float | None = None,
    model: str = "",
) -> dict[str, Bounded]:
    """Return a figure of all runs that have these labels, by their seed; those that do not know it are not
    among them."""
    mine = [result for result in results if labels.items() <= result.cell.labels.items()]
    found = {result.cell.labels.get(SEED, ""): figure(result, name, target, model) for result in mine}
    return {seed: value for seed, value in found.items() if value is not None}


def group_figure(
    results: Sequence[CellResult],
    labels: Mapping[str, str],
    name: str,
    target: float | None = None,
    model: str = "",
) -> Middle | None:
    """Return the median of a figure over the seeds of a group; None if no run of it knows it."""
    return middle(list(by_seed(results, labels, name, target, model).values()))


def group_ratio(
    results: Sequence[CellResult],
    labels: Mapping[str, str],
    base: Mapping[str, str],
    name: str,
    target: float | None = None,
    model: str = "",
) -> Middle | None:
    """Return the median ratio of a figure of one group to that of another, in pairs of the same seed."""
    mine, other = (by_seed(results, whose, name, target, model) for whose in (labels, base))
    return ratios(mine, other)


def _trained(result: CellResult) -> int:
    """Return the last round of training that counts."""
    if result.outcome is not None:
        return int(result.outcome.total["rounds"] or 0)
    lost = result.diverged
    return max((round.number for round in lost.training), default=0) if lost else 0


def curve_by(result: CellResult, model: str = "") -> tuple[Point, ...]:
    """Return the evaluations of a run's model; empty: of the one that counts."""
    if result.outcome is not None and model in ("", result.measure):
        return result.outcome.curve
    history = result.history or result.diverged
    if history is None:
        return ()
    return curve_of(history, model or result.measure, result.cell.config.rounds)


def _cost(result: CellResult, name: str, target: float | None, model: str) -> Bounded | None:
    if result.outcome is None:
        return _lost(result, name, target, model)
    whole = result.outcome.total.get(name)
    if target is None:
        return None if whole is None else exactly(whole)
    if model in ("", result.measure) and target in result.outcome.reached:
        costs, tested = result.outcome.reached[target], result.outcome.final is not None
    else:
        curve = curve_by(result, model)
        costs, tested = way(curve, target, _trained(result), result.measures[0]), bool(curve)
    found = whole if costs is None else costs.get(name)
    if found is None or not tested:
        return None
    return more_than(found) if costs is None else exactly(found)


def _lost(result: CellResult, name: str, target: float | None, model: str) -> Bounded | None:
    """Return what a run that has diverged tells of a cost up to a target: it would never have come there."""
    if result.diverged is None or target is None:
        return None
    if (costs := way(curve_by(result, model), target, _trained(result), result.measures[0])) is not None:
        found = costs.get(name)
        return None if found is None else exactly(found)
    limit = {**result.diverged.total, "rounds": float(result.cell.config.rounds)}
    return more_than(limit[name]) if name in limit else None


def _score(result: CellResult, point: Point, what: str) -> float:
    return point.evaluation.of(what, result.measures[0].name)


def _tested(result: CellResult, curve: Sequence[Point], which: str, what: str) -> Bounded | None:
    found = [_score(result, point, what) for point in curve]
    if which == "final":
        return _mean(found[-1:])
    known = [value for value in found if math.isfinite(value)]
    metric = next((one for one in result.measures if one.name == what), LOSS)
    best = metric.best(known)
    return None if best is None else exactly(best)


def _said(result: CellResult, metric: str) -> list[float]:
    """Return what the method says of every round of training that counts."""
    history = result.history or result.diverged
    rounds = first_rounds(history, result.cell.config.rounds) if history is not None else []
    return [round.metrics[metric] for round in rounds if not round.last and metric in round.metrics]


def _told(said: Sequence[float], how: str) -> Bounded | None:
    """Return the last, the mean or the median of what was said in the rounds; a median is not moved by the
    first rounds of a search, nor by a last one that was cut short."""
    if how == "median" and said and all(map(math.isfinite, said)):
        return exactly(median(said))
    return _mean(said[-1:] if how == "last" else said)


def _mean(values: Sequence[float]) -> Bounded | None:
    return exactly(fmean(values)) if values and all(map(math.isfinite, values)) else None
