"""A run goes on from a copy of its directory that is older than what its clients have seen."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.operator import pause, resume
from support.processes import Flock

FLAGS = ("--clients=2", "--seed=4", "--deadline=60", "--rounds=30")


@pytest.mark.promise("R3")
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_clients_that_are_ahead_of_a_backup_go_back_with_it(
    flock: Flock, tmp_path: Path, method: str
) -> None:
    """Without a state of their own (FedAvg), and with one that has to go back (SCAFFOLD)."""
    server = flock.server(*FLAGS, f"--method={method}")
    clients = [flock.client("c0"), flock.client("c1", "--give-up-after=60")]
    server.wait_for("round_committed", count=3)
    pause(flock)
    server.wait_for("run_paused")
    subprocess.run(["cp", "-a", flock.run_dir, tmp_path / "copy"], check=False)  # an old round may be going
    resume(flock)
    paused = len(server.events("round_committed"))
    server.wait_for("round_committed", count=paused + 5)
    server.kill()
    shutil.rmtree(flock.run_dir)
    (tmp_path / "copy").rename(flock.run_dir)
    server = flock.server()
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
    assert flock.rows("SELECT count(*) FROM rounds WHERE committed = 1 AND round = 30") == [(1,)]
