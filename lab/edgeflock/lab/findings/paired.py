"""Mean and deviation over seeds, and the paired difference to a baseline with its t interval. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.95  # of the interval


@dataclass(frozen=True)
class Spread:
    """Values of several seeds."""

    mean: float
    deviation: float | None  # of the sample (n - 1); None: there is one value
    count: int


@dataclass(frozen=True)
class Difference:
    """What is left of a value after that of the baseline with the same seed is taken away."""

    mean: float
    error: float | None  # standard error of the mean; None: there is one pair
    low: float | None  # the t interval of LEVEL
    high: float | None
    count: int


def spread(values: Sequence[float]) -> Spread | None:
    """Return mean and deviation; None without a value."""
    if not values:
        return None
    return Spread(
        statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values)
    )


def difference(mine: Mapping[str, float], baseline: Mapping[str, float]) -> Difference | None:
    """Return the mean difference over the seeds that both have; None if there is none."""
    found = spread([mine[seed] - baseline[seed] for seed in mine if seed in baseline])
    if found is None:
        return None
    if found.deviation is None:
        return Difference(found.mean, None, None, None, 1)
    error = found.deviation / math.sqrt(found.count)
    reach = error * t_quantile((1 + LEVEL) / 2, found.count - 1)
    return Difference(found.mean, error, found.mean - reach, found.mean + reach, found.count)


def t_quantile(share: float, degrees: int) -> float:
    """Return what Student's t with so many degrees of freedom is below with that chance, above a half."""
    low, high = 0.0, 1.0
    while _within(high, degrees) < 2 * share - 1:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < 2 * share - 1 else (low, middle)
    return (low + high) / 2


def _within(t: float, degrees: int) -> float:
    """Return the chance of |T| < t: Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term, total = (math.cos(angle), 0.0) if odd else (1.0, 0.0)
    for step in range(odd + 2, degrees + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (step - 1) / step
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
