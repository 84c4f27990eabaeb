"""fl-lab runs over real servers: listed while they live, followed, and told what to do."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.commands import run
from support.processes import Flock, Program, flock, until

LONG = ("--method=centralized", "--rounds=100000", "--eval-every=0")


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Flock]]:
    """Two runs that go on, below one folder."""
    for name in "ab":
        (tmp_path / name).mkdir()
    with flock(tmp_path / "a") as first, flock(tmp_path / "b") as second:
        servers = [made.begin_server(*LONG) for made in (first, second)]
        for server in servers:
            server.wait_for("round_committed")
        yield [first, second]


def listed(*words: object) -> list[dict[str, Any]]:
    done = run("fl-lab", "runs", "--json", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(map(json.loads, done.stdout.splitlines()), key=lambda one: str(one["run"]))


def followed(lab: Program, run_dir: Path, state: str) -> str:
    """Wait until the follower has told that a run is in a state."""

    def look() -> str | None:
        lines = [line for line in lab.text.splitlines() if line.startswith(f"{run_dir} ")]
        return next((line for line in lines if line.split()[1] == state), None)

    return until(look, lambda: lab.text)


def test_runs_are_listed_followed_and_stopped(two: list[Flock], tmp_path: Path) -> None:
    first = two[0]
    assert [(one["state"], one["served"]) for one in listed(tmp_path)] == [("running", True)] * 2
    lab = first.start("fl-lab", "runs", str(tmp_path), "--follow")
    followed(lab, first.run_dir, "running")
    done = run("fl-lab", "runs", "pause", first.run_dir)
    assert done.stdout == f"{first.run_dir}: paused: no new round is opened until resume\n"
    followed(lab, first.run_dir, "paused")
    assert [one["state"] for one in listed(tmp_path)] == ["paused", "running"]
    done = run("fl-lab", "runs", "stop", tmp_path, "--reason=enough of both")
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 2)
    for made in two:
        assert made.programs[0].ended() == 0
        followed(lab, made.run_dir, "stopped")
    assert [(one["state"], one["served"], one["address"]) for one in listed(tmp_path)] == [
        ("stopped", False, "")
    ] * 2
    lab.signal(signal.SIGINT)
    lab.ended()
    assert first.rows("SELECT value FROM meta WHERE name = 'ended_reason'") == [("enough of both",)]


def test_a_server_that_was_killed_leaves_an_interrupted_run(two: list[Flock], tmp_path: Path) -> None:
    two[0].programs[0].kill()
    assert [one["state"] for one in listed(tmp_path)] == ["interrupted", "running"]
    assert [one["run"] for one in listed("--alive", tmp_path)] == [str(two[1].run_dir)]
    done = run("fl-lab", "runs", "stop", *(made.run_dir for made in two))
    assert done.returncode == 1
    assert done.stderr == (
        f"fl-lab: error: the server of {two[0].run_dir} is not running: "
        f"fl-server --run-dir {two[0].run_dir} goes on with the run\n"
    )
    assert two[1].programs[0].ended() == 0  # the other one was told all the same
