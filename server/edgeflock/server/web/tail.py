"""What is new in the journal since the last look: read-only, by cursors, never the whole again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from edgeflock.server.costs.time_line import OF_A_ROUND
from edgeflock.server.journal.schema import read_only

_PAGE = 5000  # events of one look; a long run is caught up with in several
_UNSETTLED_ROUNDS = 2  # clients may still add to the costs of the last rounds

Totals = Mapping[str, float | int | None]
Row = Mapping[str, float | int | str | None]


class Event(NamedTuple):
    """One row of the feed."""

    cursor: int
    at: float  # seconds since 1970
    name: str
    fields: dict[str, Any]


@dataclass
class News:
    """What one look found."""

    events: list[Event] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)
    seats: list[tuple[int, str, int | None]] = field(default_factory=list)
    settled: dict[int, Totals] = field(default_factory=dict)  # costs to be added for good, by seat
    recent: dict[int, Totals] = field(default_factory=dict)  # costs that may still grow, by seat
    latest: dict[int, Row] = field(default_factory=dict)  # the newest of these rows, by seat
    lines: dict[int, dict[str, float]] = field(default_factory=dict)  # whole time lines, by round
    verdicts: list[tuple[int, str, int, int]] = field(
        default_factory=list
    )  # seat, verdict, how many, newest round
    more: bool = False  # look again at once


class Tail:
    """The cursors into one journal. `look` is for one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._version = -1
        self._cursor = self._outcome = self._cost = 0
        self._epoch = self._line = 0  # the last round whose time line is whole, and its epoch
        self._columns: dict[str, str] = {}  # of costs: name -> kind

    def look(self) -> News | None:
        """Return what is new, or None if nothing is. Raises sqlite3.Error if the journal cannot be read."""
        if not self._path.exists():
            return None
        if self._connection is None:
            self._connection = read_only(self._path)
        version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        if version == self._version:
            return None
        self._connection.execute("BEGIN")  # all of one look is of one moment
        try:
            news = self._read(self._connection)
        finally:
            self._connection.execute("ROLLBACK")
        self._version = -1 if news.more else version
        return news

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _read(self, connection: sqlite3.Connection) -> News:
        news = News(meta=dict(connection.execute("SELECT name, value FROM meta")))
        query = "SELECT cursor, at, name, fields FROM events WHERE cursor > ? ORDER BY cursor LIMIT ?"
        for cursor, at, name, text in connection.execute(query, (self._cursor, _PAGE)):
            news.events.append(Event(cursor, at, name, json.loads(text)))
        news.more = len(news.events) == _PAGE
        self._cursor = news.events[-1].cursor if news.events else self._cursor
        if not news.more:  # what follows is of use only with the newest events
            news.seats = connection.execute(
                "SELECT idx, client_id, samples FROM seats ORDER BY idx"
            ).fetchall()
            self._read_verdicts(connection, news)
            self._read_costs(connection, news)
            self._read_lines(connection, news)
        return news

    def _read_verdicts(self, connection: sqlite3.Connection, news: News) -> None:
        newest = _newest_row(connection, "outcomes")
        query = (
            "SELECT idx, verdict, count(*), max(round) FROM outcomes "
            "WHERE rowid > ? AND rowid <= ? GROUP BY idx, verdict"
        )
        news.verdicts = connection.execute(query, (self._outcome, newest)).fetchall()
        self._outcome = newest

    def _read_lines(self, connection: sqlite3.Connection, news: News) -> None:
        """Read the time lines that are whole now: what a commit itself takes is written with the next."""
        epoch = int(news.meta.get("epoch", "0"))
        after = self._line if epoch == self._epoch else 0
        upto = _last_round(connection, epoch) - ("ended_kind" not in news.meta)
        query = "SELECT round, name, value FROM round_costs WHERE epoch = ? AND round > ? AND round <= ?"
        for round, name, seconds in connection.execute(query, (epoch, after, upto)):
            if name in OF_A_ROUND:
                news.lines.setdefault(round, {})[name] = seconds
        self._epoch, self._line = epoch, max(after, upto)

    def _read_costs(self, connection: sqlite3.Connection, news: News) -> None:
        """Sum rows that nobody will change any more once, and the few that may still grow every time."""
        newest = _newest_row(connection, "costs")
        epoch = int(news.meta.get("epoch", "0"))
        last = _last_round(connection, epoch)
        query = "SELECT min(rowid) FROM costs WHERE epoch = ? AND round > ?"
        first = connection.execute(query, (epoch, last - _UNSETTLED_ROUNDS)).fetchone()[0]
        border = max(self._cost, newest if first is None else first - 1)
        news.settled, latest = self._sums(connection, self._cost, border)
        news.recent, newer = self._sums(connection, border, newest)
        news.latest = {**latest, **newer}
        self._cost = border

    def _sums(
        self, connection: sqlite3.Connection, after: int, upto: int
    ) -> tuple[dict[int, Totals], dict[int, Row]]:
        """Return sums and newest values of the rows behind one and up to another, by seat."""
        numbers, names = self._names(connection)
        sums, plain = ", ".join(f"sum({name})" for name in numbers), ", ".join(names)
        # With one max() the bare columns are those of the row that has it.
        query = (
            f"SELECT idx, max(rowid), {sums}, {plain} FROM costs WHERE rowid > ? AND rowid <= ? GROUP BY idx"
        )
        totals: dict[int, Totals] = {}
        latest: dict[int, Row] = {}
        for seat, _, *values in connection.execute(query, (after, upto)):
            totals[seat] = dict(zip(numbers, values[: len(numbers)], strict=True))
            latest[seat] = dict(zip(names, values[len(numbers) :], strict=True))
        return totals, latest

    def _names(self, connection: sqlite3.Connection) -> tuple[list[str], list[str]]:
        """Return the columns of costs that hold numbers, and all, whatever there are."""
        if not self._columns:
            rows = connection.execute("PRAGMA table_info(costs)").fetchall()
            self._columns = {row[1]: row[2] for row in rows if row[1] not in ("epoch", "round", "idx")}
        numbers = [name for name, kind in self._columns.items() if kind in ("INTEGER", "REAL")]
        return numbers, list(self._columns)


def _last_round(connection: sqlite3.Connection, epoch: int) -> int:
    """Return the newest committed round."""
    query = "SELECT max(round) FROM rounds WHERE epoch = ? AND committed = 1"
    return connection.execute(query, (epoch,)).fetchone()[0] or 0


def _newest_row(connection: sqlite3.Connection, table: str) -> int:
    return connection.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0] or 0
