"""One definition of each figure: whoever tells what a run has cost tells the recounted number."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from support import processes
from support.kinds_of_run import QUICK, Play, parked
from support.recount import recount
from support.told_figures import differences

AWAY_S = 1.5


@pytest.mark.parametrize("play", QUICK, ids=lambda play: play.__name__)
def test_every_place_tells_the_recounted_figures(tmp_path: Path, play: Play) -> None:
    with processes.flock(tmp_path) as made:
        play(made)
        assert recount(made.run_dir)["bytes"] > 0
        assert differences(made.run_dir) == []


def test_the_start_of_processes_is_in_no_seconds_of_a_resumed_run(tmp_path: Path) -> None:
    """The round that was parked gathers until a member is back; a budget of time counts none of it."""
    with processes.flock(tmp_path) as made:
        parked(made)
        server = made.server("--budget=time=1h")
        time.sleep(AWAY_S)  # which is what is measured
        clients = [made.client("c0,c1"), made.client("c2")]
        assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
        ((waited,),) = made.rows("SELECT sum(value) FROM round_costs WHERE name = 'gather_s' AND round > 1")
        assert waited >= AWAY_S * 0.9
        (ended,) = made.announced("run_ended")
        assert ended["budget"]["time"][0] == pytest.approx(recount(made.run_dir)["seconds"], rel=0.05)
