"""The rate of a round: it decays, but never so far that what methods divide by it overflows."""

from __future__ import annotations

from pathlib import Path

from edgeflock.methods.kit.base import Plan
from edgeflock.server.learning.learner import LEAST_LR, Terms
from support.tiny_run import layouts, learner


def test_a_rate_that_decays_has_a_floor_unless_it_began_below_it(tmp_path: Path) -> None:
    for first, at_last in ((0.1, LEAST_LR), (1e-14, 1e-14)):
        made = learner(layouts(4))
        made._terms = Terms(Plan(lr=first), lr_decay=0.98)
        made._plan = made._terms.plan
        rates = [made.round(number, (0,), {}).lr for number in (1, 2, 44_000, 10**9)]
        assert rates == [first, max(first * 0.98, at_last), at_last, at_last]
