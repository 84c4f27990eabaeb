"""Many faults at once, drawn from a seed: the run ends by itself, in the undisturbed run's bits and counts.

`NEMESIS=300..499 make faults TEST_ARGS='-k nemesis'` plays other seeds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.nemesis.__main__ import APART, numbers
from support.nemesis.schedule import schedule
from support.strace import needs_strace

QUICK = (2604, 8859)
SEEDS = numbers(os.environ.get("NEMESIS", "100..139"))

Play = Callable[[int], None]


@pytest.fixture(scope="session")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Plays the schedule of a seed; the undisturbed runs are kept for the next one."""
    if shutil.which("unshare") is None or subprocess.run([*APART, "true"], check=False).returncode:
        pytest.skip("no mounts and network of its own can be had here")
    calm, kept = tmp_path_factory.mktemp("calm"), tmp_path_factory.mktemp("kept", numbered=True)

    def one(seed: int) -> None:
        words = [
            sys.executable,
            "-m",
            "support.nemesis",
            f"--seeds={seed}",
            f"--calm={calm}",
            f"--kept={kept}",
        ]
        environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environ)
        assert done.returncode == 0, f"{schedule(seed)}\n{done.stdout}{done.stderr[-3000:]}"

    return one


@needs_strace
@pytest.mark.promise("R1", "R4", "R5", "R6")
@pytest.mark.parametrize("seed", QUICK)
def test_a_run_survives_several_faults_at_once(play: Play, seed: int) -> None:
    play(seed)


@needs_strace
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.promise("R1", "R4", "R5", "R6", "R12", "R13")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_survives_whatever_comes_together(play: Play, seed: int) -> None:
    play(seed)
