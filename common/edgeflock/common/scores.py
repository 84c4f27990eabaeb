"""Scores: how a model does on test samples, and how a group of models does. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

GLOBAL = "global"  # the model that targets and curves mean
GLOBAL_TRAIN = "global-train"  # the same, on what the clients train on
LOCAL, POOLED = "client_local", "client_pooled"

WISHES = {"off": (), "local": (LOCAL,), "both": (LOCAL, POOLED)}  # what an operator or a method asks for


@dataclass(frozen=True)
class ClientScore:
    """One client's own model on one set of test samples."""

    model: str  # LOCAL or POOLED
    samples: int
    hits: int
    loss: float  # mean over the samples

    @property
    def score(self) -> Score:
        return Score(self.hits / self.samples, self.loss, self.samples)


@dataclass(frozen=True)
class Score:
    """How one model does on one set of test samples."""

    accuracy: float
    loss: float
    samples: int


@dataclass(frozen=True)
class Summary:
    """Scores of the models of one name: the global one alone, or one model of every client."""

    accuracy: float  # mean over the members
    loss: float  # mean over the members
    samples: int  # of all members together
    members: int = 1
    deviation: float = 0.0  # standard deviation of the accuracy over the members, as of a whole population
    worst_tenth: float = 0.0  # mean accuracy of the worst tenth of the members, at least of one


def summarise(scores: Sequence[Score]) -> Summary:
    """Summarise a group of at least one member; members without test samples are not among them."""
    accuracies = sorted(score.accuracy for score in scores)
    worst = accuracies[: math.ceil(len(accuracies) / 10)]
    return Summary(
        accuracy=statistics.fmean(accuracies),
        loss=statistics.fmean(score.loss for score in scores),
        samples=sum(score.samples for score in scores),
        members=len(scores),
        deviation=statistics.pstdev(accuracies),
        worst_tenth=statistics.fmean(worst),
    )
