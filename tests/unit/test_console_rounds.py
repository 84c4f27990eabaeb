"""A line for each round, in order, and the table at the end, from a real journal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeflock.common.command.terminal import text_of
from edgeflock.common.command.units import size
from edgeflock.common.errors import BadData
from edgeflock.lab.operate.events import as_lines, events
from edgeflock.server.console.rows import Rows
from edgeflock.server.console.summary import rows as table
from edgeflock.server.console.summary import spending
from edgeflock.server.core.target import Target
from edgeflock.server.journal.costs import read_used
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.reader import Event, Feed
from support.told_run import told_run


def event(name: str, /, **fields: object) -> Event:
    return Event(1, 0.0, name, fields)


def committed(number: int) -> Event:
    return event("round_committed", round=number, bytes_up=1500, bytes_down=1500, seconds=0.25, loss=0.5)


def evaluated(number: int, accuracy: float, model: str = "global") -> Event:
    return event("evaluated", round=number, model=model, accuracy=accuracy, loss=0.4)


def shown(rows: Rows, *events: Event) -> list[str]:
    return [text_of(row.line()) for entry in events for row in rows.take(entry.name, entry.fields)]


def summary(run_dir: Path, events: Sequence[Event], goal: Target | None = None) -> str:
    """Return the table at the end as text."""
    found = table(run_dir, events, goal)
    width = max(len(name) for name, _ in found)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in found)


def test_where_nothing_is_trained_a_row_has_the_test_of_what_its_round_began_with() -> None:
    rows = Rows(1, 1, "accuracy", behind=1)
    assert shown(rows, committed(1), evaluated(0, 0.5)) == [
        "round 1/1  accuracy 0.5000   test loss 0.4000     3.0 kB     0.25 s"
    ]


def test_a_row_waits_for_its_evaluation() -> None:
    rows = Rows(rounds=10, eval_every=1)
    assert shown(rows, committed(1)) == []
    assert shown(rows, evaluated(1, 0.1, model="private")) == []
    assert shown(rows, evaluated(1, 0.875)) == [
        "round  1/10  accuracy 0.8750   test loss 0.4000     3.0 kB     0.25 s"
    ]


def test_a_round_that_is_not_evaluated_is_shown_at_once() -> None:
    rows = Rows(rounds=3, eval_every=2)
    row = "round 1/3  accuracy      -  train loss 0.5000     3.0 kB     0.25 s"
    assert shown(rows, committed(1)) == [row]
    assert shown(rows, committed(2)) == []
    assert shown(Rows(rounds=3, eval_every=0), committed(3)) != []


def test_the_closing_task_has_a_line_of_its_own_with_its_evaluation() -> None:
    rows = Rows(rounds=10, eval_every=4)
    closing = event("last_round_committed", round=11, bytes_up=0, bytes_down=1500, seconds=0.25)
    assert shown(rows, closing) == []
    assert shown(rows, evaluated(11, 0.875)) == [
        "closing      accuracy 0.8750   test loss 0.4000     1.5 kB     0.25 s"
    ]
    assert shown(Rows(rounds=10, eval_every=4), closing, event("run_ended")) == [
        "closing         1.5 kB     0.25 s"
    ]


def test_rows_stay_in_order_when_evaluations_do_not() -> None:
    rows = Rows(rounds=9, eval_every=1)
    assert shown(rows, committed(1), committed(2), evaluated(2, 0.2)) == []
    assert [text[6] for text in shown(rows, evaluated(1, 0.1))] == ["1", "2"]


def test_an_evaluation_that_never_comes_does_not_hold_the_rows_back() -> None:
    rows = Rows(rounds=9, eval_every=1)
    assert [text[6] for text in shown(rows, *(committed(number) for number in range(1, 6)))] == ["1", "2"]
    assert [text[6] for text in shown(rows, event("run_ended"))] == ["3", "4", "5"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_960, "1.0 MB"),
        (4.5e15, "4500.0 TB"),
    ],
)
def test_bytes_are_written_for_people(count: float, text: str) -> None:
    assert size(count) == text


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.sqlite")
    yield journal
    journal.close()


def test_the_feed_gives_every_event_once_while_the_server_writes(tmp_path: Path, journal: Journal) -> None:
    feed = Feed(tmp_path)
    journal.note("run_started", method="fedavg").result(10)
    journal.note("round_committed", round=1).result(10)
    assert [entry.name for entry in feed.read()] == ["run_started", "round_committed"]
    assert feed.read() == []
    journal.note("run_ended", kind="completed").result(10)
    assert [entry.fields for entry in feed.read()] == [{"kind": "completed"}]
    feed.close()
    later = Feed(tmp_path, after=feed.cursor)
    assert later.read() == []
    later.close()


def test_the_feed_of_a_finished_run_is_read_without_a_server(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    journal.note("run_ended", kind="completed").result(10)
    journal.close()
    feed = Feed(tmp_path)
    assert '"event": "run_ended", "kind": "completed"}' in next(as_lines(feed.read()[:1]))
    feed.close()


def test_there_are_no_events_before_there_is_a_journal(tmp_path: Path) -> None:
    assert Feed(tmp_path).read() == []


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"this is no database " * 100)
    feed = Feed(tmp_path)
    with pytest.raises(BadData, match=r"cannot be read as a journal: .*not a database"):
        feed.read()
    feed.close()


def test_the_summary_holds_the_whole_run(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    group = {"deviation": 0.25, "worst_tenth": 0.1, "members": 9}
    events = [
        committed(1),
        evaluated(1, 0.9),
        committed(2),
        evaluated(2, 0.8),
        evaluated(2, 0.99, model="personal"),
        event("evaluated", round=2, model="client_local", accuracy=0.5, **group),
        event("last_round_committed", round=3, bytes_up=0, bytes_down=500, seconds=0.25),
        event("run_ended", kind="completed", reason="all rounds done"),
    ]
    assert summary(tmp_path, events).splitlines() == [
        "ended              completed, all rounds done",
        "rounds             2",
        "final accuracy     0.8000",
        "best accuracy      0.9000",
        "personal           accuracy 0.9900",
        "clients, own test  mean accuracy 0.5000, deviation 0.2500, worst tenth 0.1000, of 9 models",
        "bytes up           3.0 kB",
        "bytes down         3.5 kB",
        "time               750 ms of rounds",
        f"model SHA-256      {hashlib.sha256(b'weights').hexdigest()}",
        f"run directory      {tmp_path}",
    ]


def test_the_summary_says_of_which_round_its_figures_are_if_not_of_the_last(tmp_path: Path) -> None:
    """A target or --stop-after ends a run by what devices find, who get the last model no more."""
    lines = summary(tmp_path, [committed(1), evaluated(1, 0.9), committed(2)]).splitlines()
    assert "final accuracy  0.9000 (of round 1: that of round 2 was not tested)" in lines
    asked = event("round_committed", round=2, bytes_up=0, bytes_down=1, seconds=0.1)  # it has trained nothing
    assert "not tested" not in summary(tmp_path, [evaluated(1, 0.9), asked])


@pytest.mark.parametrize(("goal", "said"), [(0.9, "reached"), (0.95, "not reached")])
def test_the_summary_says_what_became_of_the_target(tmp_path: Path, goal: float, said: str) -> None:
    lines = summary(
        tmp_path, [committed(1), evaluated(1, 0.9), evaluated(1, 0.99, model="own")], Target(goal)
    )
    assert f"target          accuracy {goal:g}, {said}" in lines.splitlines()


def test_budgets_are_shown_as_shares_and_summed_up(tmp_path: Path) -> None:
    spent = {"time": [30.25, 60.0], "bytes": [4_100_000, 5_000_000], "energy": [1010.0, 1000.0]}
    done = event("round_committed", round=1, bytes_up=10, bytes_down=10, seconds=0.5, budget=spent)
    (row,) = Rows(rounds=1, eval_every=0).take(done.name, done.fields)
    assert text_of(row.line()).endswith("0.50 s  budget used: time  50%, bytes  82%, energy 101%")
    lines = summary(tmp_path, [done, event("run_started", budget={"time": "60s"})]).splitlines()
    assert [line for line in lines if line.startswith("budget")] == [
        "budget of time    30.2 s of 1 min",
        "budget of bytes   4.10 MB of 5 MB",
        "budget of energy  1.01 kJ of 1 kJ, 10 J beyond it",
    ]


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (200, "round 1/1  accuracy      -  train loss      -       20 B     0.50 s  budget used: time  50%"),
        (80, "round 1/1  accuracy      -  train loss      -       20 B     0.50 s  time  50%"),
        (70, "round 1/1  acc      -  loss      -      20 B  0.50 s  time  50%"),
        (55, "round 1/1  acc      -  loss      -      20 B  0.50 s"),
    ],
)
def test_a_row_gives_way_to_a_narrow_terminal(width: int, text: str) -> None:
    done = event(
        "round_committed", round=1, bytes_up=10, bytes_down=10, seconds=0.5, budget={"time": [30, 60]}
    )
    (row,) = Rows(rounds=1, eval_every=0).take(done.name, done.fields)
    assert text_of(row.line(width)) == text


def test_of_rounds_that_were_gone_back_on_the_table_tells_nothing(tmp_path: Path) -> None:
    told = [committed(1), evaluated(1, 0.4), committed(2), evaluated(2, 0.9), committed(3)]
    back = [*told, event("epoch_raised", epoch=1, round=1, lost_up_to=3), committed(2), evaluated(2, 0.5)]
    found = dict(table(tmp_path, back))
    assert (found["rounds"], found["final accuracy"], found["best accuracy"]) == ("2", "0.5000", "0.5000")


def test_what_the_journal_knows_of_an_open_round_counts_for_every_budget() -> None:
    done = event("round_committed", round=1, budget={"time": [2.0, 60.0], "cpu": [0.5, 9.0]})
    meta = {"used_time": "9.04", "used_cpu": "0.75", "used_bytes": "7.0", "used_energy": "0.0"}
    assert list(spending([done], read_used(meta))) == [("time", "9.04 s of 1 min"), ("cpu", "750 ms of 9 s")]


def test_a_method_s_own_clock_is_not_mixed_up_with_the_time_that_passes() -> None:
    done = event("round_committed", round=1, budget={"time": [2.0, 60.0]})
    meta = {"used_time": "50.0", "own_time": "2.0"}
    assert list(spending([done], read_used(meta))) == [("time", "2 s of 1 min")]


def test_a_budget_that_nobody_measures_is_not_said_to_be_unused(tmp_path: Path) -> None:
    spent = {"energy": [0.0, 50_000.0], "cpu": [4.262, 7200.0]}
    done = event("round_committed", round=1, bytes_up=10, bytes_down=10, seconds=0.5, budget=spent)
    (row,) = Rows(rounds=1, eval_every=0).take(done.name, done.fields)
    assert text_of(row.line()).endswith("0.50 s  budget used: energy    -, cpu   0%")
    lines = summary(tmp_path, [done]).splitlines()
    assert [line for line in lines if line.startswith("budget")] == [
        "budget of energy  not known of 50 kJ: no client stated its energy, see fl-client --watts",
        "budget of cpu     4.26 s of 2 h",
    ]


def test_the_summary_of_a_run_that_was_cut_says_so(tmp_path: Path) -> None:
    text = summary(tmp_path, [committed(1)])
    assert "ended           not yet" in text
    assert "no final model" in text


@pytest.mark.parametrize(
    ("flags", "cursors"), [((), [1, 2, 3]), (("--after=2",), [3]), (("--after=0",), [1, 2, 3])]
)
def test_the_story_begins_with_its_first_event_or_behind_the_one_that_is_named(
    tmp_path: Path, flags: tuple[str, ...], cursors: list[int]
) -> None:
    run = told_run(tmp_path / "run", names=("a", "b", "c"))
    told = CliRunner().invoke(events, [str(run), "--json", *flags], standalone_mode=False)
    assert [json.loads(line)["cursor"] for line in told.output.splitlines()] == cursors
