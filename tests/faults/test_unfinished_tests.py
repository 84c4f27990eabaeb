"""Tests of models that go on beside later rounds, while their server is killed: each score is there, once."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

from support.processes import Flock, flock

FLAGS = (
    "--method=pfedmo", "--clients=2", "--rounds=5", "--steps=2", "--seed=3", "--eval-every=2",
    "--eval-train=2", "--eval-clients=off",
)  # fmt: skip
MODEL = "--model=support.custom_models:held"
BESIDE = "representation,personal,global-train"


def scores(made: Flock) -> list[tuple[Any, ...]]:
    """What the journal holds of the tests, in rows and in what was said."""
    said = sorted((one["round"], one["model"], one["accuracy"]) for one in made.announced("evaluated"))
    assert said == made.rows("SELECT round, model, value FROM evaluations ORDER BY round, model")
    return made.rows("SELECT round, model, value, loss, members FROM evaluations ORDER BY round, model")


def test_a_test_that_a_kill_cuts_off_rounds_later_is_made_up_for(tmp_path: Path) -> None:
    """It is of round 2, and round 3 is committed: its state is read from the disk."""
    found = []
    for name in ("calm", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        gate = folder / "gate"
        gate.touch()
        flags = (*FLAGS, MODEL, f"--model-arg=gate={gate}")
        with flock(folder) as made, gate.open("rb") as file:
            if name == "killed":
                fcntl.flock(file, fcntl.LOCK_EX)
            server, client = made.server(*flags), made.client("c0,c1", MODEL)
            if name == "killed":
                server.wait_for("round_committed", round=3)
                server.kill()
                untested = made.rows("SELECT name FROM meta WHERE name LIKE 'untested%' ORDER BY name")
                assert untested == [("untested 2 global",), (f"untested 2 {BESIDE}",)]
                assert scores(made) == []
                fcntl.flock(file, fcntl.LOCK_UN)
                server = made.server()
            assert [server.ended(), client.ended()] == [0, 0]
            assert made.rows("SELECT name FROM meta WHERE name LIKE 'untested%'") == []
            found.append((made.sha256(), scores(made)))
    calm, killed = found
    assert killed == calm
    assert [row[:2] for row in calm[1] if row[0] == 2] == [
        (2, name) for name in sorted(("global", *BESIDE.split(",")))
    ]
    assert {row[0] for row in calm[1]} == {2, 4, 5}
