"""Whether something grows: by the slope of what was measured, once all was warm."""

from __future__ import annotations

import statistics
from collections.abc import Iterable


def grown(samples: Iterable[tuple[float, float]], begin: float, end: float) -> float:
    """Return how much more there was at the end than at the beginning, of samples (count, amount).

    By the slope between, not by two samples: Python's and the C library's allocators let go of pages and
    take them again, 1 MiB up and down.
    """
    warm = [(count, amount) for count, amount in samples if count >= begin]
    fit = statistics.linear_regression([count for count, _ in warm], [amount for _, amount in warm])
    return fit.slope * (end - begin)
