"""A tally: what a model's outputs on test samples add up to, and the score that follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from edgeflock.common.scores import LOSS, Metric, Score, Sums
from edgeflock.common.tasks.kit.base import LearningTask

SAMPLES, WEIGHT = "samples", "weight"  # names in sums: `weight` where it is not the number of samples


class Testable(Protocol):
    """A model that knows its task; one may have a loss, or right answers, of its own."""

    task: LearningTask

    def loss(self, outputs: Tensor, y: Tensor, /) -> Tensor: ...

    def sums(self, outputs: Tensor, y: Tensor, /) -> Mapping[str, Tensor]: ...


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
        found = {name: tuple(map(float, part)) for name, part in self._sums.items()}
        return found if self._weight == self.samples else {**found, WEIGHT: (float(self._weight),)}


def score(task: LearningTask, figure: Metric, samples: int, loss: float, sums: Sums) -> Score:
    """Return the score that follows from sums; a figure that is no number is the worst there is.

    No row can hold a loss that is not a number: it is beyond all numbers then.
    """
    loss = math.inf if math.isnan(loss) else loss
    values = {**task.values({**sums, SAMPLES: (float(samples),)}), LOSS.name: loss}
    value = values.get(figure.name, math.nan)
    others = {
        name: found
        for name, found in values.items()
        if name not in (figure.name, LOSS.name) and math.isfinite(found)
    }
    return Score(figure.worst if math.isnan(value) else value, loss, samples, others, sums)


def together(task: LearningTask, figure: Metric, scores: Sequence[Score]) -> Score:
    """Return the score of one model on the samples of several tests together: their sums, added up."""
    weights = [one.sums[WEIGHT][0] if WEIGHT in one.sums else float(one.samples) for one in scores]
    loss = sum(one.loss * weight for one, weight in zip(scores, weights, strict=True)) / max(
        1.0, sum(weights)
    )
    names = dict.fromkeys(name for one in scores for name in one.sums)
    sums = {
        name: tuple(np.sum([one.sums[name] for one in scores if name in one.sums], axis=0).tolist())
        for name in names
        if name != WEIGHT
    }
    samples = sum(one.samples for one in scores)
    if any(WEIGHT in one.sums for one in scores):
        sums[WEIGHT] = (sum(weights),)
    return score(task, figure, samples, loss, sums)
