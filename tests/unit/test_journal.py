"""The journal: schema, the writer thread, what happens when it cannot write."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from edgeflock.common.errors import CorruptCheckpoint, JournalBroken
from edgeflock.server.core.decisions import RoundOpened, Samples, Seated
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.schema import SCHEMA_VERSION, connect, read_only
from edgeflock.server.journal.writer import Work
from support.rows import rows

WAIT_S = 20


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal.sqlite")
    yield made
    made.close()


def test_a_new_journal_has_its_tables_and_says_its_version(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    connect(path).close()
    tables = {name for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {
        "meta", "seats", "rosters", "rounds", "outcomes", "conduct", "dismissed", "costs", "bundle_bytes",
        "round_costs", "evaluations", "client_scores", "events",
    }  # fmt: skip
    assert rows(path, "PRAGMA user_version") == [(SCHEMA_VERSION,)]


def test_commits_survive_a_power_cut(tmp_path: Path) -> None:
    """WAL with synchronous FULL: a commit returns after its fsync."""
    with contextlib.closing(connect(tmp_path / "journal.sqlite")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_closed_journal_is_one_file_also_beside_a_reader(tmp_path: Path) -> None:
    """Who copies a finished run copies all of it."""
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    journal.note("run_ended").result(WAIT_S)
    with contextlib.closing(read_only(path)) as reader:
        assert reader.execute("SELECT count(*) FROM events").fetchone() == (1,)
        journal.close()
        copy = tmp_path / "copy.sqlite"
        copy.write_bytes(path.read_bytes())
    assert rows(copy, "SELECT name FROM events") == [("run_ended",)]


def test_what_is_written_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    for count in (1, 2):
        journal = Journal(path)
        journal.note("run_started", life=count).result(WAIT_S)
        journal.close()
    found = rows(path, "SELECT cursor, name, fields FROM events ORDER BY cursor")
    assert found == [(1, "run_started", '{"life": 1}'), (2, "run_started", '{"life": 2}')]


def test_closing_writes_what_is_queued(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    for number in range(50):
        journal.note("event", number=number)
    journal.close()
    numbers = [
        json.loads(text)["number"] for (text,) in rows(path, "SELECT fields FROM events ORDER BY cursor")
    ]
    assert numbers == list(range(50))


def submit(journal: Journal, work: Work[Any]) -> Future[Any]:
    """Let the writer thread do anything."""
    return journal._writer.submit(work)


class Gate:
    """Keeps the writer thread busy until it is opened, so that what comes meanwhile is one batch."""

    def __init__(self, journal: Journal) -> None:
        self.open = threading.Event()
        started = threading.Event()

        def work(connection: sqlite3.Connection) -> None:
            started.set()
            assert self.open.wait(WAIT_S)

        self.future = submit(journal, work)
        assert started.wait(WAIT_S)


def test_what_waits_in_the_queue_is_one_transaction(journal: Journal) -> None:
    commits: list[int] = []
    journal.listen(lambda: commits.append(1))
    gate = Gate(journal)
    futures = [journal.note("event", number=number) for number in range(20)]
    gate.open.set()
    for future in futures:
        future.result(WAIT_S)
    assert (
        submit(journal, lambda connection: len(commits)).result(WAIT_S) == 2
    )  # the gate's, and all the others


def test_a_job_that_is_wrong_fails_alone(journal: Journal) -> None:
    """A broken constraint, an integer beyond SQLite's, fields that are no JSON: the others are written."""
    gate = Gate(journal)
    before = journal.note("before")
    bad = [
        submit(journal, lambda connection: connection.execute("INSERT INTO seats VALUES (1, NULL, 0, 0)")),
        submit(
            journal,
            lambda connection: connection.execute("INSERT INTO seats VALUES (?, 'a', 0, 0)", (2**70,)),
        ),
        journal.note("unwritable", value=object()),
    ]
    after = journal.note("after")
    gate.open.set()
    for future in (before, after, journal.note("later")):
        future.result(WAIT_S)
    assert all(isinstance(future.exception(WAIT_S), JournalBroken) for future in bad)
    assert [name for (name,) in rows(journal.path, "SELECT name FROM events")] == ["before", "after", "later"]


def test_of_two_jobs_the_wrong_one_fails_alone(journal: Journal) -> None:
    gate = Gate(journal)
    bad, good = journal.note("unwritable", value=object()), journal.note("good")
    gate.open.set()
    good.result(WAIT_S)
    assert bad.exception(WAIT_S) is not None
    assert [name for (name,) in rows(journal.path, "SELECT name FROM events")] == ["good"]


def test_an_outcome_of_somebody_without_a_seat_is_refused(journal: Journal) -> None:
    insert = "INSERT INTO outcomes VALUES (0, 1, 7, x'00', 'counted', NULL, 0)"
    future: Future[Any] = submit(journal, lambda connection: connection.execute(insert))
    with pytest.raises(JournalBroken, match="FOREIGN KEY"):
        future.result(WAIT_S)


def _run_out_of_pages(connection: sqlite3.Connection) -> None:
    """Let the file not grow any more, as a full disk would."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_is_told_as_such_and_writing_goes_on_when_there_is_space(journal: Journal) -> None:
    submit(journal, _run_out_of_pages).result(WAIT_S)
    with pytest.raises(
        JournalBroken, match="the journal cannot be written: database or disk is full"
    ) as broken:
        journal.note("big", text="x" * 100_000).result(WAIT_S)
    assert broken.value.no_space
    submit(journal, lambda connection: connection.execute("PRAGMA max_page_count = 100000")).result(WAIT_S)
    journal.note("small").result(WAIT_S)
    told = rows(journal.path, "SELECT name, at FROM events ORDER BY cursor")
    assert [name for name, _ in told] == ["big", "small"]  # what found no room is told all the same
    assert told[0][1] < told[1][1]


def test_a_broken_disk_is_an_answer_and_not_a_hang(journal: Journal) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    gate = Gate(journal)
    futures = [journal.note("one"), submit(journal, fail), journal.note("two")]
    gate.open.set()
    for future in [gate.future, *futures]:
        error = future.exception(WAIT_S)
        if future is not gate.future:
            assert isinstance(error, JournalBroken)
            assert not error.no_space
    assert rows(journal.path, "SELECT name FROM events") == []


def test_a_reader_follows_the_events_from_a_cursor(journal: Journal) -> None:
    for number in range(5):
        journal.note("event", number=number).result(WAIT_S)
    found = rows(journal.path, "SELECT cursor, fields FROM events WHERE cursor > 3 ORDER BY cursor")
    assert found == [(4, '{"number": 3}'), (5, '{"number": 4}')]


def test_who_gave_up_waiting_does_not_stop_the_others(journal: Journal) -> None:
    held, free = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        held.set()
        free.wait(WAIT_S)

    first = submit(journal, slow)
    held.wait(WAIT_S)
    given_up, last = submit(journal, lambda connection: 1), submit(journal, lambda connection: 2)
    assert given_up.cancel()
    assert not first.cancel()
    free.set()
    assert last.result(WAIT_S) == 2


def test_a_path_with_the_marks_of_a_uri_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a?b#c%20").mkdir()
    path = tmp_path / "a?b#c%20" / "journal.sqlite"
    connect(path).close()
    assert rows(path, "SELECT count(*) FROM events") == [(0,)]


def test_a_reader_cannot_write(journal: Journal) -> None:
    with (
        contextlib.closing(read_only(journal.path)) as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        connection.execute("DELETE FROM events")


def test_a_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(CorruptCheckpoint) as refused:
        connect(path)
    assert str(refused.value) == f"{path} has schema version 99, this edgeflock knows {SCHEMA_VERSION}"


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpoint, match="cannot be used as a journal"):
        connect(path)
    assert path.read_bytes() == content


def test_a_directory_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").mkdir()
    with pytest.raises(CorruptCheckpoint, match="cannot be used as a journal"):
        connect(tmp_path / "journal.sqlite")


def test_after_an_io_error_the_file_is_not_touched_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    journal.note("before").result(WAIT_S)
    with pytest.raises(JournalBroken, match="disk I/O error"):
        submit(journal, failing_disk).result(WAIT_S)
    with pytest.raises(JournalBroken, match="disk I/O error"):
        journal.note("after").result(WAIT_S)
    journal.close()
    assert "disk I/O error" in str(journal.broken), "whoever ends with it says so"
    assert rows(path, "SELECT name FROM events") == [("before",)]


def failing_disk(connection: sqlite3.Connection) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    raise error


def test_what_is_asked_is_answered_while_another_program_has_locked_the_journal(
    journal: Journal,
) -> None:
    """What is to be written meanwhile fails with words, and can be written again."""
    journal._writer.submit(lambda connection: connection.execute("PRAGMA busy_timeout = 50")).result(WAIT_S)
    with contextlib.closing(sqlite3.connect(journal.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        held = threading.Event()
        journal._writer.ask(lambda connection: held.wait(WAIT_S))  # what comes now is one batch
        written, asked = journal.decide([Samples(0, 10)]), journal.ask(lambda past: past.resumed().committed)
        held.set()
        assert asked.result(WAIT_S) == 0
        with pytest.raises(JournalBroken) as broken:
            written.result(WAIT_S)
    assert broken.value.hindrance == "another program has locked the journal"
    journal.decide([Samples(0, 10)]).result(WAIT_S)


def test_who_has_a_seat_is_looked_at_again_only_when_somebody_has_changed(journal: Journal) -> None:
    looks: list[str] = []

    def trace(connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(lambda text: looks.append(text) if "FROM seats" in text else None)

    def opened(round: int) -> tuple[int, dict[int, int]]:
        journal.decide([RoundOpened(round, (0, 1))]).result()
        (number,) = rows(journal.path, f"SELECT roster FROM rounds WHERE round = {round}")[0]
        return number, dict(journal.ask(lambda past: past.roster(round)).result())

    submit(journal, trace).result()
    journal.decide([Seated(((0, "a"), (1, "b"))), Samples(0, 5)]).result()
    first, before = opened(1)
    assert (opened(2), len(looks)) == ((first, {0: 5}), 1)
    journal.decide([Samples(1, 7)]).result()
    second, _ = opened(3)
    assert (opened(4), second > first, len(looks)) == ((second, {0: 5, 1: 7}), True, 2)
    with pytest.raises(JournalBroken):  # what is taken back counts nowhere
        journal.decide([Samples(1, 9), RoundOpened(5, (0,)), RoundOpened(5, (0,))]).result()
    assert opened(5) == (second, {0: 5, 1: 7})
    journal.decide([Samples(1, 9)]).result()
    assert (opened(6)[1], before) == ({0: 5, 1: 9}, {0: 5})
