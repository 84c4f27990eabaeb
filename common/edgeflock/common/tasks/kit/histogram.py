"""Histograms that add up: the area under the curve of hits and false alarms, and quantiles. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

CHANCES = 512  # bins of logits, from -16 to 16: what lies beyond is as sure as it gets
_WIDEST = 16.0
_DECADES, _EACH = (-9, 6), 64  # of errors, and bins of each: a quantile is known to 4 %
ERRORS = (_DECADES[1] - _DECADES[0]) * _EACH


def of_chances(logits: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many of the negative and of the positive ones lie in each bin of their logits."""
    places = ((logits.double() + _WIDEST) * (CHANCES / (2 * _WIDEST))).nan_to_num().long()
    places = places.clamp(0, CHANCES - 1)
    return _counted(places[~positive], CHANCES), _counted(places[positive], CHANCES)


def auc(negative: Sequence[float], positive: Sequence[float]) -> float | None:
    """Return the chance that a positive one lies above a negative one, half of it for those of one bin."""
    below, hits = np.asarray(negative, float), np.asarray(positive, float)
    pairs = below.sum() * hits.sum()
    if not pairs:
        return None
    passed = np.cumsum(below) - below
    return float((hits * (passed + below / 2)).sum() / pairs)


def of_errors(errors: Tensor) -> Tensor:
    """Return how many errors lie in each bin: of equal width in the logarithm."""
    powers = errors.double().clamp_min(10.0 ** _DECADES[0]).log10().nan_to_num(nan=_DECADES[1])
    places = ((powers - _DECADES[0]) * _EACH).long().clamp(0, ERRORS - 1)
    return _counted(places, ERRORS)


def quantile(counts: Sequence[float], share: float) -> float | None:
    """Return the error that so many of all do not exceed, from a histogram of errors."""
    below = np.cumsum(np.asarray(counts, float))
    if not len(below) or not below[-1]:
        return None
    wanted = share * below[-1]
    place = int(np.searchsorted(below, wanted))
    before = below[place - 1] if place else 0.0
    part = (wanted - before) / (below[place] - before) if below[place] > before else 0.0
    return math.pow(10.0, _DECADES[0] + (place + part) / _EACH)


def _counted(places: Tensor, bins: int) -> Tensor:
    return torch.bincount(places.flatten(), minlength=bins).double()
