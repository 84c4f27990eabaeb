"""One definition of each figure: whoever tells what a run has cost tells the recounted number."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import processes
from support.kinds_of_run import QUICK, Play
from support.recount import recount
from support.told_figures import differences


@pytest.mark.parametrize("play", QUICK, ids=lambda play: play.__name__)
def test_every_place_tells_the_recounted_figures(tmp_path: Path, play: Play) -> None:
    with processes.flock(tmp_path) as made:
        play(made)
        assert recount(made.run_dir)["bytes"] > 0
        assert differences(made.run_dir) == []
