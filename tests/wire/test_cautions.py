"""A word of caution is heard where people and programs look: in the log, and in the run's events."""

from __future__ import annotations

from pathlib import Path

from support.processes import flock


def test_what_is_said_at_a_start_stands_in_the_log_and_in_the_run_s_events(tmp_path: Path) -> None:
    with flock(tmp_path) as made:
        options = ("--clients=1", "--rounds=1", "--model=linear", "--partition=random-classes:9")
        server = made.server("--method=mimelite", *options)
        held = server.wait_for("classes_held")
        assert (held["held"], held["classes"]) == (9, 10)
        said = server.wait_for("caution")["reason"]
        assert said.startswith("mimelite: lr 0.05 is beyond what it bears on skewed data")
        assert made.client("c0").ended() == 0
        assert server.ended() == 0
        assert [event["reason"] for event in made.announced("caution")] == [said]
        (covered,) = made.announced("classes_held")
        assert (
            covered["reason"] == f"9 of 10 classes are held by somebody, nobody holds {covered['missing'][0]}"
        )
