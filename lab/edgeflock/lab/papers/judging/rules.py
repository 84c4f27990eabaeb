"""The rules by which a claim is judged on our numbers: what each asks of a file, and its word. Pure.

REPRODUCED: beyond the interval, and in the size that is claimed. ORDER_ONLY: of a ratio or a gain the
direction beyond the interval, but not the size; of an order, a bound or a trend the means or medians, but not
the interval; of one seed, which has no interval, never more than this. NOT_REPRODUCED: all else. The size is
the paper's from half to twice its effect (of a ratio by its logarithm), or if the interval holds its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from edgeflock.lab.papers.judging.apart import Apart, apart, level_of, mean_of, worth
from edgeflock.lab.papers.judging.sheet import BySeed

_SIZE = 2.0  # an effect is of the same size up to this factor


class Word(StrEnum):
    """A verdict, the best first."""

    REPRODUCED = "reproduced"
    ORDER_ONLY = "order only"
    NOT_REPRODUCED = "not reproduced"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Ruling:
    """The word of a rule, and what it stands on."""

    word: Word
    ground: str


@dataclass(frozen=True)
class Evidence:
    """What a rule is given: the numbers of its rows by name, what kind of number it is, its own settings."""

    rows: Mapping[str, BySeed]
    cost: bool
    less: bool  # less is better
    asked: Mapping[str, Any] = field(default_factory=dict)

    def best(self, names: Sequence[str]) -> list[str]:
        """Return those that have numbers, the best first."""
        return worth({name: self.rows[name] for name in names}, cost=self.cost, less=self.less)

    def against(self, first: str, second: str) -> Apart | None:
        return apart(self.rows[first], self.rows[second], cost=self.cost)


@dataclass(frozen=True)
class ClaimRule:
    """One rule: the keys that a claim must and may have for it, and how it judges."""

    names: tuple[str, ...]  # keys whose values are rows: one, or a list
    needs: tuple[str, ...]
    takes: tuple[str, ...]
    judge: Callable[[Evidence], Ruling]


def no_numbers(name: str) -> Ruling:
    return Ruling(Word.NOT_TRIED, f"no numbers of {name}")


# ---------------------------------------------------------------------------------- two rows and a size


def _ratio(found: Evidence) -> Ruling:
    mine = apart(found.rows[found.asked["of"]], found.rows[found.asked["to"]], cost=True)
    if mine is None:
        return no_numbers(f"{found.asked['of']} and {found.asked['to']} together")
    if "paper" not in found.asked:
        ruling = _within(mine, found.asked)
        return Ruling(ruling.word, f"{found.asked['of']} to {found.asked['to']} {ruling.ground}")
    paper = float(found.asked["paper"])
    ground = f"{found.asked['of']} to {found.asked['to']} {mine}, in the paper {paper:g}"
    return Ruling(_sized(mine, paper, _is_as_large_ratio(mine, paper)), ground)


def _is_as_large_ratio(mine: Apart, paper: float) -> bool:
    if paper == 1:
        return mine.value.low >= 1 / math.sqrt(_SIZE) and mine.value.high <= math.sqrt(_SIZE)
    ends = sorted(math.pow(paper, power) for power in (1 / _SIZE, _SIZE))
    return ends[0] <= mine.value.low <= ends[1]


def _gain(found: Evidence) -> Ruling:
    of, over = found.asked["of"], found.asked["over"]
    if isinstance(over, list):  # over the best of them
        over = next(iter(found.best(over)), over[0])
    mine = apart(found.rows[of], found.rows[over], cost=False)
    if mine is None:
        return no_numbers(f"{of} and {over} together")
    if "paper" in found.asked:
        paper = float(found.asked["paper"])
        ends = sorted((paper / _SIZE, paper * _SIZE))
        as_large = ends[0] <= mine.value.low <= ends[1]
        return Ruling(_sized(mine, paper, as_large), f"{of} over {over} {mine}, in the paper {paper:+g}")
    ruling = _within(mine, found.asked)
    return Ruling(ruling.word, f"{of} over {over} {ruling.ground}")


def _sized(mine: Apart, paper: float, as_large: bool) -> Word:
    """Return the word for an effect that has a direction and a size."""
    side = (paper > mine.nothing) - (paper < mine.nothing)
    if side == 0:  # that there is none
        return Word.REPRODUCED if mine.holds(paper) and as_large else Word.NOT_REPRODUCED
    if mine.side != side:
        return Word.NOT_REPRODUCED
    if mine.sure != side:
        return Word.ORDER_ONLY if not mine.interval else Word.NOT_REPRODUCED
    return Word.REPRODUCED if as_large or mine.holds(paper) else Word.ORDER_ONLY


def _bound(found: Evidence) -> Ruling:
    name = found.asked["of"]
    mine = level_of(found.rows[name], cost=found.cost)
    if mine is None:
        return no_numbers(name)
    ruling = _within(mine, found.asked)
    return Ruling(ruling.word, f"{name} {ruling.ground}")


def _value(found: Evidence) -> Ruling:
    """The value itself is the paper's, up to a margin."""
    name, paper, margin = found.asked["of"], float(found.asked["paper"]), float(found.asked["margin"])
    mine = level_of(found.rows[name], cost=found.cost)
    if mine is None:
        return no_numbers(name)
    near = mine.value.exact and abs(mine.value.low - paper) <= margin
    ground = f"{name} {mine}, in the paper {paper:g}, claimed within {margin:g}"
    return Ruling(_held(near, mine), ground)


def _held(holds: bool, mine: Apart) -> Word:
    """Return the word for what holds or does not, of one seed never the best."""
    if not holds:
        return Word.NOT_REPRODUCED
    return Word.REPRODUCED if mine.interval else Word.ORDER_ONLY


def _within(mine: Apart, asked: Mapping[str, Any]) -> Ruling:
    """Judge a level or a difference by the least and the most that it may be."""
    least, most = float(asked.get("least", -math.inf)), float(asked.get("most", math.inf))
    parts = [
        f"{words} {limit:g}"
        for words, limit in (("at least", least), ("at most", most))
        if math.isfinite(limit)
    ]
    ground = f"{mine}, claimed {' and '.join(parts)}"
    if mine.interval and least <= mine.low and mine.high <= most:
        return Ruling(Word.REPRODUCED, ground)
    inside = least <= mine.value.low and mine.value.high <= most
    return Ruling(Word.ORDER_ONLY if inside else Word.NOT_REPRODUCED, ground)


# ------------------------------------------------------------------------------------------ several rows


def _order(found: Evidence) -> Ruling:
    """The rows, or groups of rows, from the best to the worst: each is held against the next."""
    groups = [entry if isinstance(entry, list) else [entry] for entry in found.asked["rows"]]
    means = [mean_of([found.rows[name] for name in group]) for group in groups]
    names = ["/".join(group) for group in groups]
    steps = []
    for place in range(len(groups) - 1):
        step = apart(means[place], means[place + 1], cost=found.cost)
        if step is None:
            return no_numbers(f"{names[place]} and {names[place + 1]} together")
        steps.append((f"{names[place]} against {names[place + 1]} {step}", step))
    alike = float(found.asked.get("alike", 0.0))
    return _steps([(text, _step(step, found.less, alike)) for text, step in steps])


def _best(found: Evidence) -> Ruling:
    mine = found.asked["of"]
    others = [name for name in found.asked["over"] if name != mine]
    steps = []
    for other in others:
        step = found.against(mine, other)
        if step is None:
            return no_numbers(f"{mine} and {other} together")
        steps.append(
            (f"against {other} {step}", _step(step, found.less, float(found.asked.get("alike", 0.0))))
        )
    return _steps(steps)


def _step(step: Apart, less: bool, alike: float) -> int:
    """Return 2 for as claimed beyond the interval, or alike within what the claim calls so; 1 for as claimed
    in the mean; 0 for the other way."""
    better = -1 if less else 1
    if step.sure == better:
        return 2
    if alike and step.interval and max(step.nothing - step.low, step.high - step.nothing) <= alike:
        return 2
    return 1 if step.side == better or (alike and step.sure == 0) else 0


def _steps(steps: Sequence[tuple[str, int]]) -> Ruling:
    least = min(rank for _, rank in steps)
    words = (Word.NOT_REPRODUCED, Word.ORDER_ONLY, Word.REPRODUCED)
    shown = [text for text, rank in steps if rank == least] if least < 2 else [text for text, _ in steps]
    told = "; ".join(shown[:4]) + (f"; {len(shown) - 4} more" if len(shown) > 4 else "")
    lead = ("the other way: ", "in the means alone: ", "")[least]
    return Ruling(words[least], lead + told)


def _peak(found: Evidence) -> Ruling:
    """Of the rows of a sweep the best one is among those that the claim names."""
    inside, every = found.asked["at"], found.asked["rows"]
    ranked = found.best(every)
    if not any(name in inside for name in ranked):
        return no_numbers(", ".join(inside))
    top = ranked[0]
    if top not in inside:
        return Ruling(Word.NOT_REPRODUCED, f"the best is {top}")
    outside = [(name, found.against(top, name)) for name in ranked if name not in inside]
    sure = all(step is not None and _step(step, found.less, 0.0) == 2 for _, step in outside)
    told = "; ".join(f"against {name} {step}" for name, step in outside[:4])
    return Ruling(Word.REPRODUCED if sure else Word.ORDER_ONLY, f"the best is {top}; {told}")


def _spread(found: Evidence) -> Ruling:
    """The worst of the rows takes so many times what the best does."""
    ranked = found.best(found.asked["rows"])
    step = found.against(ranked[-1], ranked[0]) if len(ranked) > 1 else None
    if step is None:
        return no_numbers(", ".join(found.asked["rows"]))
    ruling = _within(step, found.asked)
    return Ruling(ruling.word, f"{ranked[-1]} to {ranked[0]} {ruling.ground}")


def _near(found: Evidence) -> Ruling:
    """A row is as good as the best of others that are chosen by looking, up to a margin."""
    mine, others, margin = found.asked["of"], found.asked["best_of"], float(found.asked["margin"])
    ranked = found.best(others)
    step = found.against(mine, ranked[0]) if ranked else None
    if step is None:
        return no_numbers(mine)
    sign = -1 if found.less else 1
    short, worst = (
        sign * (step.nothing - step.value.low),
        max(sign * (step.nothing - end) for end in (step.low, step.high)),
    )
    ground = f"against {ranked[0]}, the best of {len(ranked)}: {step}, claimed within {margin:g}"
    if step.interval and worst <= margin:
        return Ruling(Word.REPRODUCED, ground)
    return Ruling(Word.ORDER_ONLY if short <= margin else Word.NOT_REPRODUCED, ground)


def _trend(found: Evidence) -> Ruling:
    """From the first of the rows to the last a number falls, rises or stays."""
    names, goes = found.asked["rows"], found.asked["goes"]
    step = found.against(names[-1], names[0])
    if step is None:
        return no_numbers(f"{names[0]} and {names[-1]} together")
    ground = f"from {names[0]} to {names[-1]} {step}"
    if goes == "stays":
        margin = float(found.asked.get("margin", 0.0))
        within = max(abs(end - step.nothing) for end in (step.low, step.high)) <= margin
        return Ruling(_held(within, step), f"{ground}, claimed within {margin:g}")
    way = -1 if goes == "falls" else 1
    if step.sure == way:
        return Ruling(Word.REPRODUCED, ground)
    return Ruling(Word.ORDER_ONLY if step.side == way else Word.NOT_REPRODUCED, ground)


RULES: Mapping[str, ClaimRule] = {
    "ratio": ClaimRule(("of", "to"), ("of", "to"), ("paper", "least", "most"), _ratio),
    "gain": ClaimRule(("of", "over"), ("of", "over"), ("paper", "least", "most"), _gain),
    "bound": ClaimRule(("of",), ("of",), ("least", "most"), _bound),
    "value": ClaimRule(("of",), ("of", "paper", "margin"), (), _value),
    "order": ClaimRule(("rows",), ("rows",), ("alike",), _order),
    "best": ClaimRule(("of", "over"), ("of",), ("over", "alike"), _best),
    "peak": ClaimRule(("rows", "at"), ("rows", "at"), (), _peak),
    "spread": ClaimRule(("rows",), ("rows",), ("least", "most"), _spread),
    "near": ClaimRule(("of", "best_of"), ("of", "best_of", "margin"), (), _near),
    "trend": ClaimRule(("rows",), ("rows", "goes"), ("margin",), _trend),
}
