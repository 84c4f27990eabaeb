"""A run goes on from a copy of its directory that is older than what its clients have seen."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.operator import pause, resume
from support.processes import Flock, until

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
    resume(flock)  # it was copied while it was paused, and is so still
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
    assert flock.rows("SELECT count(*) FROM rounds WHERE committed = 1 AND round = 30") == [(1,)]


@pytest.mark.long
@pytest.mark.promise("R6")
def test_an_update_of_the_history_that_was_given_up_counts_in_no_other(flock: Flock, tmp_path: Path) -> None:
    """A device was away, with an update, while the others went through the same rounds again without it."""
    flags = (*FLAGS, "--codec=topk:0.1", "--min-updates=1")
    server = flock.server(*flags)
    here, away = flock.clients("c0", "c1")
    server.wait_for("round_committed", count=2)
    pause(flock)
    server.wait_for("run_paused")
    subprocess.run(["cp", "-a", flock.run_dir, tmp_path / "copy"], check=False)
    resume(flock)
    server.wait_for("round_committed", count=len(server.events("round_committed")) + 2)
    here.kill()
    meta = flock.folder / "clients" / "c1" / "clients" / "c1" / "outbox" / "meta"

    def held() -> dict[str, Any] | None:
        content = meta.read_bytes()
        found: dict[str, Any] = {"round": 0}
        if content.startswith(b"{"):
            found = json.loads(content.split(b"\n")[0])
        ((number,),) = flock.rows("SELECT max(round) FROM rounds")
        return found if found["round"] == number else None

    update = until(held, lambda: away.text[-2000:])
    server.kill()
    away.kill()
    shutil.rmtree(flock.run_dir)
    (tmp_path / "copy").rename(flock.run_dir)
    alone, here = flock.server("--deadline=1"), flock.client("c0")
    resume(flock)  # it was copied while it was paused, and is so still
    alone.wait_for("round_committed", round=update["round"] - 1)
    alone.kill()
    server, away = flock.server("--deadline=60"), flock.client("c1")
    assert [server.ended(), here.ended(), away.ended()] == [0, 0, 0]
    query = "SELECT hex(digest), verdict FROM outcomes WHERE seat = 1 AND round = "
    ((digest, verdict),) = flock.rows(f"{query}{update['round']}")
    assert (digest.lower() != update["digest"], verdict) == (True, "counted")
    assert away.events("state_lost")
