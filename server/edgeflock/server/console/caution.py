"""Whether a run's last model is one to be glad of: decided from its tests alone. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgeflock.common.scores import ACCURACY, Metric

_FAR = 0.05  # of a share, below the best one: more than what rounds differ by
_FAR_RATIO = 1.25  # of another figure, above the best one where less is better
_GROWN, _AT_LEAST = 1.5, 0.1  # of the lowest loss: times as high, and so much higher
_ENOUGH = 3  # tests before it is said that nothing was learned
_FALLEN, _BAD = 0.9, 0.55  # of the first loss; an accuracy that two classes have by chance


@dataclass(frozen=True)
class ModelTest:
    """One test of the global model."""

    round: int
    value: float  # of the run's figure
    loss: float


@dataclass(frozen=True)
class Caution:
    """What is wrong with the last model, in words, and the best one if that is another."""

    words: str
    best: ModelTest | None
    remedy: str = "a smaller --lr may help"


UNTESTED = Caution(
    "no model was tested, for neither the server nor a device has test samples",
    None,
    "fl-client --hold-out 0.2 keeps a share of a device's own for that",
)


def caution(tests: Sequence[ModelTest], figure: Metric = ACCURACY) -> Caution | None:
    """Return what somebody should hear before using the last model; None if there is nothing to say."""
    if not tests:
        return None
    last, best = tests[-1], tests[0]
    for test in tests:
        best = test if figure.better(test.value, best.value) else best
    words = _far(last, best, figure) or _grown(tests) or _nothing(tests, figure)
    return Caution(words, best if figure.better(best.value, last.value) else None) if words else None


def _far(last: ModelTest, best: ModelTest, figure: Metric) -> str:
    near = best.value - last.value <= _FAR if figure.share else not _worse(last.value, best.value, figure)
    if near:
        return ""
    return (
        f"the last model has {figure.name} {last.value:.4f}, far {'below' if figure.higher else 'above'} "
        f"the best one, {best.value:.4f} in round {best.round}"
    )


def _worse(last: float, best: float, figure: Metric) -> bool:
    """Whether a figure that is no share is far from the best: of one that may be anything nobody can say."""
    return not figure.higher and best > 0 and last > _FAR_RATIO * best


def _grown(tests: Sequence[ModelTest]) -> str:
    last = tests[-1]
    if not math.isfinite(last.loss):
        return "the loss of the last model is not finite"
    lowest = min((test for test in tests if math.isfinite(test.loss)), key=lambda test: test.loss)
    if last.loss <= _GROWN * lowest.loss or last.loss - lowest.loss <= _AT_LEAST:
        return ""
    return f"the loss has grown from {lowest.loss:.4f} in round {lowest.round} to {last.loss:.4f}"


def _nothing(tests: Sequence[ModelTest], figure: Metric) -> str:
    """So are runs at chance level: not much better than after the first test, and bad."""
    first, last = tests[0], tests[-1]
    if len(tests) < _ENOUGH or figure != ACCURACY:  # what is bad of another nobody can say
        return ""
    if last.loss < _FALLEN * first.loss or last.value > first.value + _FAR or last.value > _BAD:
        return ""
    was = f"after {first.value:.4f} and {first.loss:.4f} in round {first.round}"
    return f"hardly anything was learned: accuracy {last.value:.4f}, loss {last.loss:.4f}, {was}"
