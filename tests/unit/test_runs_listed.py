"""fl-lab runs: which runs lie below a folder and where each is, read from their directories alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeflock.common.errors import EdgeflockError
from edgeflock.lab.operate.inventory import Inventory, below, entry
from edgeflock.lab.operate.runs import runs
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.journal.events import write_event
from support.told_run import insert, told_run, write_round, writing


def listed(*words: object) -> list[list[str]]:
    done = CliRunner().invoke(runs, [*map(str, words)])
    assert done.exit_code == 0, done.output
    return [line.split() for line in done.output.splitlines()]


def test_every_run_below_a_folder_is_a_line_and_the_newest_is_the_last(tmp_path: Path) -> None:
    told_run(tmp_path / "grid" / "runs" / "b")
    told_run(tmp_path / "a", rounds=5, ended=False)
    (tmp_path / "a" / "clients" / "c0").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    heads, *rows = listed(tmp_path)
    assert heads == ["run", "state", "round", "best", "method", "written", "server"]
    assert [row[:6] for row in rows] == [
        [str(tmp_path / "grid/runs/b"), "completed", "3/3", "accuracy", "0.3000", "fedavg"],
        [str(tmp_path / "a"), "interrupted", "5/5", "accuracy", "0.5000", "fedavg"],
    ]
    assert [row[-1] for row in rows] == ["-", "-"]


def test_a_run_is_found_once_by_itself_or_below_several_folders(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "runs" / "a")
    assert below([run_dir]) == below([tmp_path, run_dir, run_dir.parent]) == [run_dir]


def test_json_tells_all_that_is_known(tmp_path: Path) -> None:
    told_run(tmp_path / "a")
    done = CliRunner().invoke(runs, ["--json", str(tmp_path)])
    (found,) = map(json.loads, done.output.splitlines())
    told = {"state": "completed", "round": 3, "rounds": 3, "metric": "accuracy", "best": 0.3, "served": False}
    assert told.items() <= found.items()


def test_no_run_and_no_folder_are_sentences(tmp_path: Path) -> None:
    done = CliRunner().invoke(runs, [str(tmp_path)])
    assert (done.exit_code, done.output) == (0, f"no run lies below {tmp_path}\n")
    with pytest.raises(EdgeflockError, match="is not a folder: give one below which runs lie"):
        below([tmp_path / "nowhere"])


def test_a_run_that_cannot_be_read_is_listed_as_such(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "a")
    (run_dir / "journal.sqlite").write_bytes(b"no journal" * 1000)
    assert entry(run_dir).state == "unreadable"


@pytest.mark.parametrize(
    ("meta", "events", "state"),
    [
        ({}, [], "gathering"),
        ({}, ["round_opened"], "running"),
        ({}, ["round_opened", "run_paused", "client_joined", "refused"], "paused"),
        ({}, ["run_paused", "run_resumed"], "running"),
        ({"paused": "1"}, ["round_opened"], "paused"),
        ({"stop": "enough"}, ["round_opened"], "stopping"),
    ],
)
def test_the_state_of_a_living_run_is_what_its_journal_said_last(
    tmp_path: Path, meta: dict[str, str], events: list[str], state: str
) -> None:
    run_dir = told_run(tmp_path / "a", rounds=1, ended=False)
    with writing(run_dir) as journal:
        insert(journal, "meta", *({"name": name, "value": value} for name, value in meta.items()))
        for name in events:
            write_event(journal, name, {"round": 2})
    with rundir.locked(run_dir):
        found = entry(run_dir)
    assert (found.served, found.state) == (True, state)


def test_a_run_that_was_parked_before_its_first_round_gathers_in_its_next_life(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "a", rounds=1, ended=False)
    with writing(run_dir) as journal:
        write_event(journal, "run_parked", {"round": 0})
    with rundir.locked(run_dir):
        assert entry(run_dir).state == "gathering"


def test_a_run_that_nobody_moved_is_not_read_again(tmp_path: Path) -> None:
    first, second = told_run(tmp_path / "a"), told_run(tmp_path / "b", ended=False)
    shelf = Inventory([tmp_path])
    before = {one.run: one for one in shelf.look()}
    with writing(second) as journal:
        write_round(journal, 0, 4, 2)
    after = {one.run: one for one in shelf.look()}
    assert after[str(first)] is before[str(first)]
    assert (before[str(second)].round, after[str(second)].round) == (3, 4)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["stop"], "stop needs a run directory, or a folder below which runs go on"),
        (["stop", "{}"], "{} holds no run whose server is alive"),
        (["stop", "{}/a"], "{}/a is over (completed: all 3 rounds are done): stop needs a run that goes on"),
    ],
)
def test_what_cannot_be_told_is_a_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    told_run(tmp_path / "a")
    done = CliRunner().invoke(runs, [word.format(tmp_path) for word in words])
    assert str(done.exception) == sentence.format(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pause", "--reason", "enough"], "--reason goes with stop"),
        (["--reason", "enough"], "--reason goes with stop"),
        (["stop", "--json"], "--follow, --alive and --json are of the list, and stop lists nothing"),
    ],
)
def test_what_does_not_go_with_an_action_is_refused(tmp_path: Path, words: list[str], said: str) -> None:
    with pytest.raises(EdgeflockError) as refused:
        runs.main([*words, str(tmp_path)], standalone_mode=False)
    assert (str(refused.value), refused.value.exit_code) == (said, 2)
