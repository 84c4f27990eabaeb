"""What a report says of runs that its commands may not repeat to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeflock.lab.history import read
from edgeflock.lab.report.caution import caution
from edgeflock.server.journal.events import write_event
from support.told_run import insert, told_run, writing


def test_a_run_in_which_all_took_part_is_repeated(tmp_path: Path) -> None:
    assert caution(read(told_run(tmp_path / "run"))) == ""


@pytest.mark.parametrize("resource", ["time", "bytes", "cpu", "energy"])
def test_a_budget_that_no_two_runs_use_up_alike_is_warned_of(tmp_path: Path, resource: str) -> None:
    run_dir = told_run(tmp_path / "run", rounds=3)
    end(run_dir, f"the budget of {resource} is used up: 2.1 of 2")
    told = caution(read(run_dir))
    assert told.startswith(f"Its budget of {resource} ended it after 3 rounds")
    assert "--rounds=3 in place of the budgets" in told


def test_a_budget_of_bytes_that_ends_it_between_two_rounds_is_none(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    end(run_dir, "the budget of bytes leaves no room for another round: 9 MB of 10 MB, and one took 3 MB")
    assert caution(read(run_dir)) == ""


def end(run_dir: Path, reason: str) -> None:
    with writing(run_dir) as journal:
        journal.execute("UPDATE meta SET value = ? WHERE name = 'ended_reason'", (reason,))


def test_a_method_that_steers_by_its_budgets_is_warned_of(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run", budget={"bytes": "1GB"})
    with writing(run_dir) as journal:
        insert(journal, "round_costs", {"epoch": 0, "round": 1, "name": "tau", "value": 3.0})
    assert caution(read(run_dir)).startswith("Its method steers by what is left of the budgets")


@pytest.mark.parametrize("verdict", ["late", "refused_by_client", "quarantined"])
def test_who_did_not_count_is_up_to_the_moment(tmp_path: Path, verdict: str) -> None:
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        journal.execute("UPDATE outcomes SET verdict = ? WHERE round > 1 AND seat = 0", (verdict,))
    assert caution(read(run_dir)) == (
        f"In 2 rounds somebody did not count ({verdict}): who does is up to the moment."
    )


def test_a_cohort_of_those_who_are_online_is_another_one_next_time(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run", participation="online", cohort=1)
    assert caution(read(run_dir)) == "Its cohorts were drawn from who was online."


@pytest.mark.parametrize("said", [{"threads": 2}, {"compute": "cuda:0"}])
def test_the_same_bits_need_a_cpu_and_one_thread(tmp_path: Path, said: dict[str, Any]) -> None:
    run_dir = told_run(tmp_path / "run")
    alike = {"client": "b", "threads": 1, "compute": "cpu"}
    with writing(run_dir) as journal:
        write_event(journal, "client_joined", alike, 2.0)
    assert caution(read(run_dir)) == ""
    with writing(run_dir) as journal:
        write_event(journal, "client_joined", {**alike, **said}, 3.0)
    assert caution(read(run_dir)).startswith("Not every client trained on a CPU with one thread")
