"""One definition of each figure, in every kind of run that there can be (docs/costs.md)."""

from __future__ import annotations

import pytest

from support.kinds_of_run import SLOW, Play
from support.processes import Flock
from support.recount import recount
from support.told_figures import differences


@pytest.mark.parametrize("play", SLOW, ids=lambda play: play.__name__)
def test_every_place_tells_the_recounted_figures(flock: Flock, play: Play) -> None:
    play(flock)
    assert recount(flock.run_dir)["bytes"] > 0
    assert differences(flock.run_dir) == []
