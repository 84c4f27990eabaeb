"""Whether a run's last model is one to be glad of: decided from its tests alone. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_FAR = 0.05  # of accuracy, below the best one: more than what rounds differ by
_GROWN, _AT_LEAST = 1.5, 0.1  # of the lowest loss: times as high, and so much higher
_ENOUGH = 3  # tests before it is said that nothing was learned
_FALLEN, _BAD = 0.9, 0.55  # of the first loss; an accuracy that two classes have by chance


@dataclass(frozen=True)
class ModelTest:
    """One test of the global model."""

    round: int
    accuracy: float
    loss: float


@dataclass(frozen=True)
class Caution:
    """What is wrong with the last model, in words, and the best one if that is another."""

    words: str
    best: ModelTest | None


def caution(tests: Sequence[ModelTest]) -> Caution | None:
    """Return what somebody should hear before using the last model; None if there is nothing to say."""
    if not tests:
        return None
    last, best = tests[-1], max(tests, key=lambda test: test.accuracy)
    words = _far(last, best) or _grown(tests) or _nothing(tests)
    return Caution(words, best if best.accuracy > last.accuracy else None) if words else None


def _far(last: ModelTest, best: ModelTest) -> str:
    if best.accuracy - last.accuracy <= _FAR:
        return ""
    return (
        f"the last model has accuracy {last.accuracy:.4f}, far below the best one, "
        f"{best.accuracy:.4f} in round {best.round}"
    )


def _grown(tests: Sequence[ModelTest]) -> str:
    last = tests[-1]
    if not math.isfinite(last.loss):
        return "the loss of the last model is not finite"
    lowest = min((test for test in tests if math.isfinite(test.loss)), key=lambda test: test.loss)
    if last.loss <= _GROWN * lowest.loss or last.loss - lowest.loss <= _AT_LEAST:
        return ""
    return f"the loss has grown from {lowest.loss:.4f} in round {lowest.round} to {last.loss:.4f}"


def _nothing(tests: Sequence[ModelTest]) -> str:
    """So are runs at chance level: not much better than after the first test, and bad."""
    first, last = tests[0], tests[-1]
    better = last.loss < _FALLEN * first.loss or last.accuracy > first.accuracy + _FAR
    if better or len(tests) < _ENOUGH or last.accuracy > _BAD:
        return ""
    was = f"after {first.accuracy:.4f} and {first.loss:.4f} in round {first.round}"
    return f"hardly anything was learned: accuracy {last.accuracy:.4f}, loss {last.loss:.4f}, {was}"
