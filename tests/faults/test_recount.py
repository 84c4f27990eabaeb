"""One definition of each figure, in every kind of run that there can be (docs/costs.md)."""

from __future__ import annotations

import pytest

from support.kinds_of_run import SLOW, Play, client_killed_between_training_and_verdict, server_killed
from support.processes import Flock
from support.recount import recount
from support.told_figures import differences


@pytest.mark.parametrize("play", SLOW, ids=lambda play: play.__name__)
def test_every_place_tells_the_recounted_figures(flock: Flock, play: Play) -> None:
    play(flock)
    assert recount(flock.run_dir)["bytes"] > 0
    assert differences(flock.run_dir) == []
    if play is client_killed_between_training_and_verdict:  # it goes on from what it had stated
        emptied = "SELECT count(*) FROM costs WHERE steps = 0 OR train_s = 0 OR energy_j = 0 OR flops = 0"
        assert flock.rows(emptied) == [(0,)]
    marked = flock.rows("SELECT count(*) FROM costs WHERE at_least")
    assert (marked > [(0,)]) is (play is server_killed)  # its bytes are these, or more
