"""Marking: what a model's outputs on test samples add up to, and the score that follows for a run's task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from edgeflock.common.errors import UnknownName
from edgeflock.common.foreign import foreign
from edgeflock.common.scores import LOSS, ClientScore, Metric, Score, Summary, Sums, summarise
from edgeflock.common.tasks.kit.base import LearningTask

SAMPLES, WEIGHT = "samples", "weight"  # names in sums: `weight` where it is not the number of samples


class Testable(Protocol):
    """A model that knows its task; one may have a loss, or right answers, of its own."""

    @property
    def task(self) -> LearningTask: ...

    def loss(self, logits: Tensor, y: Tensor) -> Tensor: ...

    def sums(self, logits: Tensor, y: Tensor) -> Mapping[str, Tensor]: ...


class ScoreTally:
    """The sums over the batches of one test."""

    def __init__(self, net: Testable) -> None:
        self._net = net
        self._loss, self._weight = 0.0, 0
        self._sums: dict[str, NDArray[np.float64]] = {}
        self.samples = 0

    def add(self, outputs: Tensor, y: Tensor) -> None:
        """Count a batch."""
        weight = self._net.task.weight(y)
        if weight:
            self._loss += float(self._net.loss(outputs, y)) * weight
        for name, part in self._net.sums(outputs, y).items():
            numbers = part.detach().cpu().double().reshape(-1).numpy()
            self._sums[name] = self._sums[name] + numbers if name in self._sums else numbers
        self.samples += len(y)
        self._weight += weight

    @property
    def loss(self) -> float:
        """The mean; not a number comes of outputs beyond all numbers."""
        return self._loss / self._weight if self._weight else 0.0

    @property
    def sums(self) -> dict[str, tuple[float, ...]]:
        found = {name: tuple(part.tolist()) for name, part in self._sums.items()}
        return found if self._weight == self.samples else {**found, WEIGHT: (float(self._weight),)}

    @property
    def hits(self) -> int:
        """The right answers, of a task that has such."""
        return int(self._sums["hits"][0]) if "hits" in self._sums else 0


@dataclass(frozen=True)
class Marking:
    """By what a run's models are scored: its task, and the figure by which it is judged."""

    task: LearningTask
    figure: Metric
    lengths: Mapping[str, int] = field(default_factory=dict)  # of the sums; those of others are not known

    @property
    def measures(self) -> tuple[Metric, ...]:
        """The figure, then the task's other metrics, then the loss."""
        return tuple(dict.fromkeys((self.figure, *self.task.metrics, LOSS)))

    def score(self, samples: int, loss: float, sums: Sums) -> Score:
        """Return the score that follows from sums; a figure that is no number is the worst there is.

        No row can hold a loss that is not a number: it is beyond all numbers then.
        """
        loss = math.inf if math.isnan(loss) else loss
        with foreign(f"the metrics of task {self.task.name}"):
            values = {**self.task.values({**sums, SAMPLES: (float(samples),)}), LOSS.name: loss}
        value = values.get(self.figure.name, math.nan)
        others = {
            name: float(found)
            for name, found in values.items()
            if name not in (self.figure.name, LOSS.name) and math.isfinite(found)
        }
        return Score(self.figure.worst if math.isnan(value) else float(value), loss, samples, others, sums)

    def of_client(self, told: ClientScore) -> Score:
        """Return the score of what a client tells; raises ValueError if these are no sums of the task."""
        sums = told.sums or {"hits": (float(told.hits),)}
        for name, values in sums.items():
            wanted = 1 if name == WEIGHT else self.lengths.get(name, len(values))
            if len(values) != wanted or not all(map(math.isfinite, values)):
                raise ValueError(f"the sum {name!r} of {len(values)} numbers")
        try:
            return self.score(told.samples, told.loss, sums)
        except Exception as error:
            raise ValueError(f"sums of which nothing can be made ({error})") from error

    def together(self, scores: Sequence[Score]) -> Score:
        """Return the score of one model on the samples of several tests together: their sums, added up."""
        weights = [one.sums[WEIGHT][0] if WEIGHT in one.sums else float(one.samples) for one in scores]
        total = sum(one.loss * weight for one, weight in zip(scores, weights, strict=True))
        sums: dict[str, Sequence[float]] = {}
        for name in dict.fromkeys(name for one in scores for name in one.sums if name != WEIGHT):
            there = [one.sums[name] for one in scores if name in one.sums]
            sums[name] = np.sum(there, axis=0).tolist()
        if any(WEIGHT in one.sums for one in scores):
            sums[WEIGHT] = (sum(weights),)
        return self.score(sum(one.samples for one in scores), total / max(1.0, sum(weights)), sums)

    def pooled(self, scores: Sequence[Score]) -> Summary:
        """Summarise one model on the samples of several: its values follow from their sums together, the
        deviation and the worst tenth from the value on each one's samples."""
        whole, each = self.together(scores), self.summarise(scores)
        return replace(each, value=whole.value, loss=whole.loss, others=whole.others)

    def summarise(self, scores: Sequence[Score]) -> Summary:
        """Summarise several models, each with a score of its own."""
        return summarise(scores, self.figure)


def figure_of(metrics: Iterable[Metric], watch: str | None) -> Metric:
    """Return the metric of that name, the first for none. Raises UnknownName."""
    known = {metric.name: metric for metric in (*metrics, LOSS)}
    if not watch:
        return next(iter(known.values()))
    if watch not in known:
        raise UnknownName("metric", watch, known)
    return known[watch]
