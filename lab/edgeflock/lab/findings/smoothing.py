"""Smoothing of a curve: the exponential moving average that papers draw. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def ema(values: Sequence[float], weight: float) -> list[float]:
    """Return the exponential moving average: of each value what came before has that weight, from 0 below 1.

    What came before the first value is nothing, and is divided out: the first stays what it is.
    """
    found, mean, share = [], 0.0, 0.0
    for value in values:
        mean, share = weight * mean + (1 - weight) * value, weight * share + (1 - weight)
        found.append(mean / share)
    return found
