"""Scores: how a model does on test samples, and how a group of models does. Pure."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

GLOBAL = "global"  # the model that targets and curves mean
GLOBAL_TRAIN = "global-train"  # the same, on what the clients train on
LOCAL, POOLED = "client_local", "client_pooled"
DEVICES = "devices"  # the global model as the devices receive it, on their own test samples

WISHES = {"off": (), "local": (LOCAL,), "both": (LOCAL, POOLED)}  # what an operator or a method asks for

Sums = Mapping[str, Sequence[float]]  # what adds up over batches, devices and rounds, by name


_SHORT = {"auc", "iou", "mae", "rmse"}  # names that are letters of others


def headed(text: str) -> str:
    """Return a heading with a capital, of some metrics with more; a symbol stays as it is."""
    first, space, rest = text.partition(" ")
    if first in _SHORT:
        return first.upper() + space + rest
    return text[:1].upper() + text[1:] if text[:1].isascii() else text


@dataclass(frozen=True)
class Metric:
    """A number that says how good a model is: its name, which way is better, and whether it is a share."""

    name: str
    higher: bool = True  # more is better
    share: bool = True  # it lies between 0 and 1

    @property
    def worst(self) -> float:
        """What a model has whose number cannot be told."""
        if not self.higher:
            return math.inf
        return 0.0 if self.share else -math.inf

    def better(self, one: float, other: float) -> bool:
        """Whether one value is better than another."""
        return one > other if self.higher else one < other

    def best(self, values: Sequence[float]) -> float | None:
        """Return the best of some values, None of none."""
        return (max if self.higher else min)(values, default=None)


ACCURACY = Metric("accuracy")
LOSS = Metric("loss", higher=False, share=False)


def figure_told(fields: Mapping[str, Any]) -> Metric:
    """Return by what an evaluation's event judges its model."""
    name = fields.get("figure")
    return ACCURACY if name is None else Metric(str(name), bool(fields.get("higher", True)), share=False)


def measures_to_text(measures: Iterable[Metric]) -> str:
    """Return by what models are judged, as a journal keeps it."""
    return json.dumps([[one.name, one.higher, one.share] for one in measures])


def measures_from_text(text: str | None) -> tuple[Metric, ...]:
    """Return what `measures_to_text` made; of a run of before there were others, accuracy and loss."""
    return tuple(Metric(*one) for one in json.loads(text)) if text else (ACCURACY, LOSS)


@dataclass(frozen=True)
class ClientScore:
    """One model on one client's test samples, as the client tells it."""

    model: str  # LOCAL or POOLED
    samples: int
    hits: int  # of a task with right answers, or else 0
    loss: float  # mean over what the task counts, the samples of most
    sums: Sums = field(default_factory=dict)  # of the task's metrics; none from a client of before them

    def stored(self) -> dict[str, object]:
        """Return its fields, sums only if there are any: as an edgeflock of before wrote them."""
        fields = vars(self)
        return fields if self.sums else {name: value for name, value in fields.items() if name != "sums"}


@dataclass(frozen=True)
class Score:
    """How one model does on one set of test samples."""

    value: float  # of the run's figure
    loss: float
    samples: int
    others: Mapping[str, float] = field(default_factory=dict)  # the task's other metrics
    sums: Sums = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """Scores of the models of one name: the global one alone, or one model of every client."""

    value: float  # of the run's figure, mean over the members
    loss: float  # mean over the members
    samples: int  # of all members together
    members: int = 1
    deviation: float = 0.0  # standard deviation of the value over the members, as of a whole population
    worst_tenth: float = 0.0  # mean value of the worst tenth of the members, at least of one
    others: Mapping[str, float] = field(default_factory=dict)  # the task's other metrics, means likewise

    def of(self, what: str, figure: str = ACCURACY.name) -> float:
        """Return a metric by its name, where `figure` is that of the value; NaN: it is not known."""
        named = {**self.others, LOSS.name: self.loss, figure: self.value}
        return named.get(what, math.nan)


def summarise(scores: Sequence[Score], figure: Metric = ACCURACY) -> Summary:
    """Summarise a group of at least one member; members without test samples are not among them."""
    values = sorted((score.value for score in scores), reverse=not figure.higher)
    worst = values[: math.ceil(len(values) / 10)]
    return Summary(
        value=statistics.fmean(values),
        loss=statistics.fmean(score.loss for score in scores),
        samples=sum(score.samples for score in scores),
        members=len(scores),
        deviation=_deviation(values),
        worst_tenth=statistics.fmean(worst),
        others=_means(scores),
    )


def _deviation(values: Sequence[float]) -> float:
    finite = len(values) > 1 and all(map(math.isfinite, values))
    return statistics.pstdev(values) if finite else 0.0


def _means(scores: Sequence[Score]) -> dict[str, float]:
    """Return the mean of every other metric over the members that have it."""
    names = dict.fromkeys(name for score in scores for name in score.others)
    return {
        name: statistics.fmean(score.others[name] for score in scores if name in score.others)
        for name in names
    }
