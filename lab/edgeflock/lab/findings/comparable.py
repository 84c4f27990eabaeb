"""How far the runs of a grid can be compared, in sentences: what differs that nobody asked for. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from edgeflock.common.command.units import amount, counted
from edgeflock.common.scores import ACCURACY
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.grid.grid import Grid
from edgeflock.lab.history import GLOBAL

_BY_METHOD = ("lr", "lr_decay", "momentum", "weight_decay", "batch_size", "epochs", "budget")
_SEEN = 0.005  # a share that is not printed as nothing
_NAMED = 5  # names that a sentence has room for


def ended(results: Sequence[CellResult]) -> list[str]:
    """Say what ended runs before their last round: a budget, a target, the method itself."""
    early: dict[tuple[str, str], list[int]] = {}
    for result in results:
        history, outcome = result.history, result.outcome
        if history is None or outcome is None or history.ending is None:
            continue
        rounds = int(outcome.total["rounds"] or 0)
        if rounds < result.cell.config.rounds:
            why = history.ending.reason.partition(":")[0]
            early.setdefault((result.cell.method, why), []).append(rounds)
    return [
        f"{name} ended before its last round in {counted(len(found), 'run')}, "
        f"after {_span(found, 'round')}: {why}."
        for (name, why), found in early.items()
    ]


def diverged(results: Sequence[CellResult]) -> list[str]:
    """Say of which runs the numbers are not finite any more, and which models could not be tested."""
    lost = [result.cell.name for result in results if result.diverged or _is_lost(result)]
    failed = {result.cell.name: result.history.failed_tests for result in results if result.history}
    untested = [f"{name} ({counted(tests, 'test')})" for name, tests in failed.items() if tests]
    return [
        *([f"Diverged, their loss or score is not finite any more: {_named(lost)}."] if lost else []),
        *([f"Tests of models failed in {_named(untested)}."] if untested else []),
    ]


def _is_lost(result: CellResult) -> bool:
    """Whether the last score of a run that has ended well is no number, of the model that counts."""
    if result.outcome is None or not result.outcome.curve:
        return False
    last = result.outcome.curve[-1].evaluation
    return not (math.isfinite(last.loss) and math.isfinite(last.value))


def lives(results: Sequence[CellResult]) -> list[str]:
    """Say which runs were cut and gone on with."""
    cut = [
        f"{result.cell.name} ({len(result.outcome.lives)} lives of its server)"
        for result in results
        if result.outcome and len(result.outcome.lives) > 1
    ]
    return [f"Cut and gone on with: {_named(cut)}."] if cut else []


def defaults(results: Sequence[CellResult], grid: Grid) -> list[str]:
    """Say in what runs differ because the methods' own defaults do."""
    parts = []
    for option in (option for option in _BY_METHOD if option not in grid.axes):
        found: dict[str, list[str]] = {}
        for cell in (result.cell for result in results if option not in result.cell.given):
            names = found.setdefault(_text(getattr(cell.config, option)), [])
            names.extend([cell.method] if cell.method not in names else [])
        if len(found) > 1:
            words = " and ".join(f"{value} ({_named(names)})" for value, names in found.items())
            parts.append(f"{option} {words}")
    return [f"By the methods' own defaults, for the grid does not say: {'; '.join(parts)}."] if parts else []


def tests(results: Sequence[CellResult]) -> list[str]:
    """Say whose seconds are those of tests in part, and what clients' tests of their own models took."""
    shares: dict[str, list[float]] = {}
    exams: dict[str, list[float]] = {}
    for result in results:
        if result.outcome:
            shares.setdefault(result.cell.method, []).append(result.outcome.tests)
            took = result.history.total.get("exam_s", 0.0) if result.history else 0.0
            exams.setdefault(result.cell.method, []).append(took)
    found = [
        f"{fmean(share):.0%} of the seconds of {name} went into testing its models, while no round was open."
        for name, share in shares.items()
        if fmean(share) >= _SEEN
    ]
    each = _each({name: amount("seconds", fmean(took)) for name, took in exams.items() if any(took)})
    return [*found, *([f"Clients tested their own models, in no cost: {each} a run."] if each else [])]


def measures(results: Sequence[CellResult]) -> list[str]:
    """Say whose figures stand beside each other, where methods are measured by different models, or by
    different metrics."""
    whose: dict[str, list[str]] = {}
    for result in results:
        names = whose.setdefault(result.measure, [])
        names.extend([result.cell.method] if result.cell.method not in names else [])
    judged = list(dict.fromkeys(result.measures[0].name for result in results if result.outcome))
    if len(judged) > 1:
        return [f"Models are judged by {' and by '.join(judged)}, which do not stand beside each other."]
    if len(whose) < 2:
        return []
    return [
        f"{_plural(results)} are those of "
        f"{', '.join(f'{m!r} ({_named(names)})' for m, names in whose.items())}."
    ]


def _plural(results: Sequence[CellResult]) -> str:
    """Return what is compared, as the beginning of a sentence."""
    name = next((result.measures[0].name for result in results if result.outcome), ACCURACY.name)
    return "Accuracies" if name == ACCURACY.name else f"Values of {name}"


def members(results: Sequence[CellResult]) -> list[str]:
    """Say of how many models accuracies are means, and which final one is that of an older round."""
    final: dict[str, dict[str, set[int]]] = {}
    before: dict[str, dict[str, set[int]]] = {}
    old = []
    for result in results:
        if not result.outcome or not result.outcome.curve:
            continue
        *others, last = result.outcome.curve
        by_method = final.setdefault(result.measure, {}), before.setdefault(result.measure, {})
        by_method[0].setdefault(result.cell.method, set()).add(last.evaluation.members)
        by_method[1].setdefault(result.cell.method, set()).update(p.evaluation.members for p in others)
        if last.round < (trained := int(result.outcome.total["rounds"] or 0)):
            old.append(f"{result.cell.name} (round {last.round} of {trained})")
    means = [
        words
        for measure in final
        if measure != GLOBAL
        for words in _means(final[measure], before[measure], measure, _plural(results).lower())
    ]
    return [*means, *([f"Final {_plural(results).lower()} of an older round: {_named(old)}."] if old else [])]


def _means(
    final: Mapping[str, set[int]], before: Mapping[str, set[int]], measure: str, what: str
) -> list[str]:
    each = _each({name: _span(list(counts), "model") for name, counts in final.items() if counts != {1}})
    others = {
        name: _span(list(counts)) for name, counts in before.items() if counts and counts != final[name]
    }
    rest = f"; those of earlier rounds, the best one too, over {_each(others)}" if others else ""
    return [f"Final {what} of {measure!r} are means over {each}{rest}."] if each else []


def _each(words: Mapping[str, str]) -> str:
    """Return what several methods have, each thing once, with those that have it."""
    whose: dict[str, list[str]] = {}
    for name, word in words.items():
        whose.setdefault(word, []).append(name)
    return ", ".join(f"{word} ({_named(names)})" for word, names in whose.items())


def cautions(results: Sequence[CellResult]) -> list[str]:
    """Say what was said when the runs started, once."""
    said = [
        str(event.fields.get("reason"))
        for result in results
        if result.history
        for event in result.history.events
        if event.name in ("caution", "operations_not_counted")
    ]
    return [f"Caution, {words}." for words in dict.fromkeys(said)]


def held(results: Sequence[CellResult]) -> list[str]:
    """Say how many classes somebody held, where some were left out or might have been."""
    found: dict[tuple[str, int], list[int]] = {}
    for result in results:
        for event in result.history.events if result.history else ():
            if event.name == "classes_held":
                which = result.cell.config.partition, int(event.fields["classes"])
                found.setdefault(which, []).append(int(event.fields["held"]))
    return [
        f"With {partition} {_span(counts)} of {classes} classes were held by somebody."
        for (partition, classes), counts in found.items()
    ]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={entry}" for name, entry in value.items()) or "none"
    return "none" if value is None else f"{value:g}"


def _span(counts: Sequence[int], what: str = "") -> str:
    low, high = min(counts), max(counts)
    words = counted(high, what) if what else f"{high:,}"
    return words if low == high else f"{low:,} to {words}"


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMED])} and {more} more"
