"""Summaries of a group of models."""

from __future__ import annotations

import pytest

from edgeflock.common.scores import Score, summarise


def test_one_model_is_its_own_summary() -> None:
    found = summarise([Score(0.5, 1.25, 10)])
    assert (found.value, found.loss, found.samples, found.members) == (0.5, 1.25, 10, 1)
    assert (found.deviation, found.worst_tenth) == (0.0, 0.5)


def test_the_worst_tenth_is_rounded_up_to_whole_members() -> None:
    scores = [Score(accuracy / 100, 1.0, 1) for accuracy in range(11)]
    assert summarise(scores).worst_tenth == pytest.approx((0.00 + 0.01) / 2)


def test_members_count_alike_whatever_their_samples() -> None:
    found = summarise([Score(1.0, 0.0, 1), Score(0.0, 2.0, 999)])
    assert (found.value, found.loss, found.samples, found.deviation) == (0.5, 1.0, 1000, 0.5)
