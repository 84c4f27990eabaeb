"""The history of a run: totals, what had been spent when, epochs, ledgers of other versions, damage."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgeflock.common.errors import BadData, EdgeflockError, MissingData
from edgeflock.lab.history import client_rows, read
from edgeflock.server.journal.events import write_event
from support.told_run import insert, told_run, write_round, writing


def test_a_round_has_its_costs_its_seconds_and_what_the_run_had_spent_by_then(tmp_path: Path) -> None:
    history = read(told_run(tmp_path / "run"))
    first, second, _ = history.rounds
    assert (first.bytes, first.seconds, first.costs["train_s"]) == (3800, 5.0, 4.0)
    assert (first.spent["bytes"], second.spent["bytes"]) == (3800, 7600)
    assert (second.spent["seconds"], second.spent["cpu_s"]) == (10.0, 6.0)
    assert first.verdicts == {"counted": 2}
    assert (history.run_id, history.config.method) == ("told", "fedavg")


def told_operations(run_dir: Path, server: Sequence[int]) -> list[float | None]:
    """Let clients state 100 operations in every round, the last of which is given up, and the server 10 in
    some; return the sums of both."""
    with writing(told_run(run_dir)) as journal:
        key = {"epoch": 0, "round": 4}
        insert(journal, "rounds", {**key, "cohort": "[0, 1]"})
        insert(journal, "costs", {**key, "seat": 0}, {**key, "seat": 1})
        journal.execute("UPDATE costs SET flops = 50")
        for round in server:
            told = {"epoch": 0, "round": round, "name": "server_flops", "value": 10.0}
            insert(journal, "round_costs", told)
    history = read(run_dir)
    return [round.spent.get("all_flops") for round in (*history.rounds, *history.others)]


def test_operations_of_all_are_those_of_rounds_that_were_given_up_too(tmp_path: Path) -> None:
    assert told_operations(tmp_path / "whole", (1, 2, 3)) == [110, 220, 330, 430]
    assert told_operations(tmp_path / "in part", (2, 3)) == [None] * 4  # an earlier edgeflock began the run
    assert told_operations(tmp_path / "none", ()) == [None] * 4


def test_metrics_are_what_the_method_says_and_nothing_that_was_measured(tmp_path: Path) -> None:
    history = read(told_run(tmp_path / "run"))
    assert [round.metrics for round in history.rounds] == [{"loss": 2.0 / number} for number in (1, 2, 3)]


def test_a_clients_costs_are_sums_and_its_peaks_the_largest(tmp_path: Path) -> None:
    _, client = read(told_run(tmp_path / "run")).clients
    assert (client.name, client.samples, client.verdicts) == ("b", 100, {"counted": 3})
    assert (client.costs["bytes_down"], client.costs["wait_s"]) == (3000, 3.75)
    assert client.costs["peak_rss_bytes"] == 4000
    assert client.device == {"machine": "aarch64", "cores": 4}


def test_a_curve_says_what_every_accuracy_had_cost(tmp_path: Path) -> None:
    history = read(told_run(tmp_path / "run"))
    assert [(p.round, p.evaluation.value, p.spent["bytes"]) for p in history.curve()] == [
        (1, 0.1, 3800),
        (2, 0.2, 7600),
        (3, 0.3, 11400),
    ]
    point = history.reached(0.15)
    assert point is not None
    assert (point.round, history.reached(0.31)) == (2, None)


def test_a_run_that_goes_on_has_no_ending_and_its_open_round_stands_apart(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run", ended=False)
    with writing(run_dir) as journal:
        insert(journal, "rounds", {"epoch": 0, "round": 4, "cohort": "[0, 1]"})
    history = read(run_dir)
    assert history.ending is None
    assert [round.number for round in history.rounds] == [1, 2, 3]
    assert [(round.number, round.cohort) for round in history.others] == [(4, (0, 1))]


def test_rounds_of_an_epoch_that_was_gone_back_on_do_not_stand_but_have_cost(tmp_path: Path) -> None:
    """Rounds 2 and 3 were lost; epoch 1 goes on from round 1, tests it again and holds round 2 anew."""
    run_dir = told_run(tmp_path / "run", ended=False)
    with writing(run_dir) as journal:
        journal.execute("UPDATE meta SET value = '1' WHERE name = 'epoch'")
        insert(journal, "rounds", {"epoch": 1, "round": 1, "cohort": "[]", "committed": 1})
        score = {"model": "global", "value": 0.15, "loss": 1.0, "samples": 50}
        insert(journal, "evaluations", {"epoch": 1, "round": 1, **score})
        write_round(journal, 1, 2, 2)
    history = read(run_dir)
    assert [(round.epoch, round.number) for round in history.rounds] == [(0, 1), (1, 2)]
    assert [(round.epoch, round.number) for round in history.others] == [(0, 2), (0, 3)]
    assert [point.evaluation.value for point in history.curve()] == [0.15, 0.2]
    assert history.rounds[-1].spent["bytes"] == 4 * 3800


def test_the_closing_round_is_no_round_of_training(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        write_round(journal, 0, 4, 2)
        journal.execute("UPDATE rounds SET last = 'enough' WHERE round = 4")
    history = read(run_dir)
    assert [round.number for round in history.training] == [1, 2, 3]
    assert history.rounds[-1].last == "enough"


def test_energy_is_that_of_clients_and_server_where_anybody_told(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        journal.execute("UPDATE costs SET energy_j = 2.5 WHERE round = 2")
        for number in (2, 3):
            insert(journal, "round_costs", {"epoch": 0, "round": number, "name": "energy_j", "value": 1.5})
    history = read(run_dir)
    assert [round.energy_j for round in history.rounds] == [None, 6.5, 1.5]
    assert [round.joules.get("server_j") for round in history.rounds] == [None, 1.5, 1.5]
    assert history.rounds[-1].spent["energy_j"] == 8.0
    assert history.clients[0].costs["energy_j"] == 2.5


def test_time_before_a_round_that_was_never_opened_is_the_run_s_too(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    before = read(run_dir)
    with writing(run_dir) as journal:
        insert(journal, "round_costs", {"epoch": 0, "round": 4, "name": "select_s", "value": 2.5})
    history = read(run_dir)
    assert (history.rounds, [round.number for round in history.others]) == (before.rounds, [4])
    assert history.others[0].spent["seconds"] == before.rounds[-1].spent["seconds"] + 2.5
    with writing(run_dir) as journal:
        journal.execute("DELETE FROM rounds")
        journal.execute("DELETE FROM costs")
        journal.execute("DELETE FROM round_costs WHERE round < 4")
    assert [round.spent["seconds"] for round in read(run_dir).others] == [2.5]


def test_a_table_that_this_version_has_must_not_be_missing(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        journal.execute("DROP TABLE costs")
    with pytest.raises(BadData, match=r"journal.sqlite cannot be read as a journal: it has no table costs$"):
        read(run_dir)


def test_what_clients_say_of_their_classes_and_the_server_of_itself_is_known(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        write_event(journal, "client_ready", {"client": "b", "samples": 9, "classes": [4, 5]}, 2.0)
        write_event(journal, "run_started", {"software": "0.1.0", "torch": "2.9"}, 2.0)
    history = read(run_dir)
    assert [client.classes for client in history.clients] == [(), (4, 5)]
    assert history.server["torch"] == "2.9"


def test_rows_for_exports_have_the_clients_names(tmp_path: Path) -> None:
    rows = list(client_rows(told_run(tmp_path / "run")))
    assert [(row["client"], row["round"]) for row in rows[:3]] == [("a", 1), ("b", 1), ("a", 2)]
    assert (rows[0]["train_s"], rows[0]["verdict"], rows[0]["flops"]) == (2.0, "counted", None)


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"is not a run directory: it has no journal\.sqlite"):
        read(tmp_path)
    (told_run(tmp_path / "run") / "run.toml").unlink()
    with pytest.raises(MissingData, match=r"has no run\.toml"):
        read(tmp_path / "run")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"hello", "file is not a database"),
        (b"", "is not the journal of a run: it has no tables"),
    ],
)
def test_a_file_that_is_no_journal_is_refused_with_a_sentence(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    run_dir = told_run(tmp_path / "run")
    for path in run_dir.glob("journal.sqlite*"):
        path.unlink()
    (run_dir / "journal.sqlite").write_bytes(content)
    with pytest.raises(BadData, match=reason):
        read(run_dir)


def test_a_damaged_journal_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = told_run(tmp_path / "run", rounds=200) / "journal.sqlite"
    content = bytearray(path.read_bytes())
    content[8192:] = bytes(255 - byte for byte in content[8192:])
    path.write_bytes(content)
    with pytest.raises(
        EdgeflockError, match=f"^{re.escape(str(path))} cannot be read as a journal: "
    ) as caught:
        read(tmp_path / "run")
    assert caught.value.exit_code == 2


def change_behind_its_back(run_dir: Path, statement: str) -> None:
    """Change a row as a failing disk would: no trigger seals it again."""
    with contextlib.closing(sqlite3.connect(run_dir / "journal.sqlite")) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE seats SET seat = 77 WHERE seat = 1", "a row of seats is not what was written"),
        ("UPDATE meta SET value = 'no' WHERE name = 'ended_kind'", "a row of meta is not what was written"),
        ("UPDATE costs SET train_s = 9e999 WHERE seat = 1", "train_s in it is no number"),
    ],
)
def test_a_row_that_nobody_wrote_is_refused(tmp_path: Path, statement: str, words: str) -> None:
    run_dir = told_run(tmp_path / "run")
    change_behind_its_back(run_dir, statement)
    with pytest.raises(BadData, match=words):
        read(run_dir)


def test_a_journal_of_a_later_version_is_refused(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        journal.execute("PRAGMA user_version = 99")
    with pytest.raises(BadData, match="has schema version 99, this edgeflock reads up to "):
        read(run_dir)


def test_iterations_are_the_local_steps_of_the_rounds_that_stand(tmp_path: Path) -> None:
    """A client without samples does none, and what was discarded was no step of the model."""
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        journal.execute("UPDATE costs SET steps = 6 WHERE round = 2 AND seat = 0")
        journal.execute("UPDATE costs SET steps = 0 WHERE round = 3 AND seat = 0")
        journal.execute("UPDATE rounds SET committed = 0 WHERE round = 1")
        insert(journal, "round_costs", {"epoch": 0, "round": 2, "name": "simulated_s", "value": 1.5})
    run = read(run_dir)
    assert [round.spent.get("iterations") for round in run.rounds] == [5, 9]
    assert [round.spent.get("simulated_s") for round in run.rounds] == [1.5, 1.5]
