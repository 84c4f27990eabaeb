"""What the dashboard reads from a real journal: only what is new, summed once, in pages."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from edgeflock.common.sensors import SOURCES
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Outcome, Samples, Seated
from edgeflock.server.journal import costs
from edgeflock.server.journal import decisions as records
from edgeflock.server.journal.events import write_event
from edgeflock.server.journal.schema import connect
from edgeflock.server.journal.writer import Writer
from edgeflock.server.web import tail as tail_module
from edgeflock.server.web.tail import News, Tail


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(connect(tmp_path / "journal.sqlite"))
    made.submit(lambda c: records.write(c, 0, Seated(((0, "a"), (1, "b"))))).result()
    yield made
    made.close()


@pytest.fixture
def tail(journal: Writer, tmp_path: Path) -> Iterator[Tail]:
    made = Tail(tmp_path)
    yield made
    made.close()


def commit(journal: Writer, round: int, *, late: int | None = None) -> None:
    """Commit a round with costs that are told by the round's number."""

    def transaction(connection: sqlite3.Connection) -> None:
        connection.execute(
            "INSERT INTO rounds (epoch, round, cohort, committed) VALUES (0, ?, '[0, 1]', 1)", (round,)
        )
        verdicts = {seat: Verdict.LATE if seat == late else Verdict.COUNTED for seat in (0, 1)}
        outcomes = [Outcome(seat, b"", verdict) for seat, verdict in verdicts.items()]
        records.write_outcomes(connection, 0, round, outcomes)
        for seat in (0, 1):
            row = {"bytes_up": 10 * round, "bytes_down": 5, "peak_rss_bytes": 100 * round + seat}
            costs.write_rows(connection, 0, {(round, seat): row})
        write_event(connection, "round_committed", {"round": round})

    journal.submit(transaction).result()


def look(tail: Tail) -> News:
    news = tail.look()
    assert news is not None
    return news


def sums(news: News, column: str) -> tuple[float, float]:
    """Return what is settled and what is recent of the first client."""
    return news.settled[0].sums[column], news.recent[0].sums[column]


def test_nothing_new_is_no_news_and_no_journal_is_none(tail: Tail, tmp_path: Path) -> None:
    assert [row[:2] for row in look(tail).seats] == [(0, "a"), (1, "b")]
    assert tail.look() is None
    assert Tail(tmp_path / "absent").look() is None


def test_each_event_comes_once_and_a_long_story_in_pages(
    journal: Writer, tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "_PAGE", 2)
    for round in (1, 2, 3):
        commit(journal, round)
    first, second = look(tail), look(tail)
    assert ([event.cursor for event in first.events], first.more) == ([1, 2], True)
    assert ([event.cursor for event in second.events], second.more) == ([3], False)
    assert (first.verdicts, len(second.verdicts)) == ([], 2)
    assert tail.look() is None


def test_verdicts_are_counted_since_the_last_look(journal: Writer, tail: Tail) -> None:
    commit(journal, 1)
    commit(journal, 2, late=1)
    assert sorted(look(tail).verdicts) == [(0, "counted", 2, 2), (1, "counted", 1, 1), (1, "late", 1, 2)]
    commit(journal, 3)
    assert sorted(look(tail).verdicts) == [(0, "counted", 1, 3), (1, "counted", 1, 3)]


def test_settled_costs_come_once_and_recent_ones_as_they_grow(journal: Writer, tail: Tail) -> None:
    for round in (1, 2, 3, 4):
        commit(journal, round)
    news = look(tail)
    assert sums(news, "bytes_up") == (10, 20 + 30 + 40)
    assert news.recent[1].newest["peak_rss_bytes"] == 401
    assert "cpu_s" not in news.recent[0].sums
    told_later = {"cpu_s": 2.5, "energy_source": 1.0 + SOURCES.index("model")}
    journal.submit(lambda c: costs.write_rows(c, 0, {(4, 0): told_later})).result()
    news = look(tail)
    assert news.recent[0].newest["energy_source"] == "model"
    assert (news.settled, news.recent[0].sums["cpu_s"], news.recent[0].sums["bytes_up"]) == ({}, 2.5, 90)
    commit(journal, 5)
    news = look(tail)
    assert sums(news, "bytes_up") == (20, 30 + 40 + 50)


def test_what_is_whole_is_read_once(journal: Writer, tail: Tail) -> None:
    """Of ten thousand clients most rows are: how long a client has waited is what it says last of a round."""
    for round in (1, 2):
        commit(journal, round)
    look(tail)
    waited = {(2, 0): {"wait_s": 1.0}, (1, 1): {"wait_s": 2.0}, (2, 1): {"wait_s": 3.0}}
    journal.submit(lambda c: costs.write_rows(c, 0, waited)).result()
    news = look(tail)
    assert news.settled[1].sums["wait_s"] == 5.0
    assert {seat: growth.sums["bytes_up"] for seat, growth in news.recent.items()} == {0: 30}
    journal.submit(lambda c: costs.write_rows(c, 0, {(1, 0): {"wait_s": 4.0}})).result()
    news = look(tail)
    assert (news.settled[0].sums["wait_s"], news.settled[0].newest["bytes_up"], news.recent) == (5.0, 20, {})


def test_seats_come_again_when_one_has_changed(journal: Writer, tail: Tail) -> None:
    assert len(look(tail).seats) == 2
    commit(journal, 1)
    assert look(tail).seats == []
    journal.submit(lambda c: records.write(c, 0, Samples(1, 30))).result()
    assert [(row.client, row.samples) for row in look(tail).seats] == [("a", None), ("b", 30)]


def test_what_a_client_says_later_comes_also_where_cohorts_are_small(journal: Writer, tail: Tail) -> None:
    """Twenty rounds have gone by without it; of the last two that it took part in it may still tell more."""
    for round in (1, 2, 3):
        commit(journal, round)
    look(tail)
    for round in range(4, 24):
        journal.submit(partial(costs.write_rows, epoch=0, rows={(round, 0): {"bytes_up": 1}})).result()
        look(tail)
    journal.submit(lambda c: costs.write_rows(c, 0, {(3, 1): {"cpu_s": 2.5}})).result()
    assert look(tail).recent[1].sums["cpu_s"] == 2.5


def test_a_look_reads_the_rows_behind_its_cursors_only(journal: Writer, tail: Tail) -> None:
    """Ten thousand rounds are read once: every statement on the large tables is a search by row number."""
    for round in range(1, 5):
        commit(journal, round)
    look(tail)
    commit(journal, 5)
    statements: list[str] = []
    assert tail._reader is not None
    connection = tail._reader._file.connection
    connection.set_trace_callback(statements.append)
    look(tail)
    connection.set_trace_callback(None)
    large = [
        text for text in statements if any(f"FROM {name}" in text for name in ("events", "costs", "outcomes"))
    ]
    plans = [row[3] for text in large for row in connection.execute(f"EXPLAIN QUERY PLAN {text}")]
    assert len(large) >= 6
    assert [plan for plan in plans if re.match("SCAN (?!json_each)", plan)] == []


def test_a_time_line_comes_once_and_when_it_is_whole(journal: Writer, tail: Tail) -> None:
    """What the commit of a round itself takes is written with the next, or with the end."""

    def write(round: int, name: str, seconds: float) -> None:
        journal.submit(lambda c: costs.add_seconds(c, 0, {round: {name: seconds}})).result()

    commit(journal, 1)
    write(1, "open_s", 2.0)
    assert look(tail).lines == {}
    commit(journal, 2)
    write(1, "commit_s", 0.5)
    write(1, "server_cpu_s", 9.0)
    assert look(tail).lines == {1: {"open_s": 2.0, "commit_s": 0.5}}
    write(2, "fold_s", 0.25)
    assert look(tail).lines == {}
    ended = "INSERT INTO meta (name, value) VALUES ('ended_kind', 'completed')"
    journal.submit(lambda c: c.execute(ended)).result()
    assert look(tail).lines == {2: {"fold_s": 0.25}}


def test_a_time_line_of_another_epoch_is_its_own(journal: Writer, tail: Tail) -> None:
    for round in (1, 2, 3):
        commit(journal, round)
        journal.submit(partial(costs.add_seconds, epoch=0, rounds={round: {"open_s": 1.0}})).result()
    assert list(look(tail).lines) == [1, 2]

    def raised(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('epoch', '1')")
        write_event(connection, "epoch_raised", {"epoch": 1, "round": 1, "lost_up_to": 3})
        for round in (2, 3):
            connection.execute(
                "INSERT INTO rounds (epoch, round, cohort, committed) VALUES (1, ?, '[0, 1]', 1)", (round,)
            )
            costs.add_seconds(connection, 1, {round: {"open_s": 4.0}})
            write_event(connection, "round_committed", {"round": round})

    journal.submit(raised).result()
    assert look(tail).lines == {2: {"open_s": 4.0}}


def test_a_long_story_is_caught_up_with_in_pages_its_time_lines_too(
    journal: Writer, tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "_PAGE", 2)
    for round in (1, 2, 3, 4, 5):
        commit(journal, round)
        journal.submit(partial(costs.add_seconds, epoch=0, rounds={round: {"open_s": float(round)}})).result()
    assert [list(look(tail).lines) for _ in range(3)] == [[1, 2], [3, 4], []]
