"""Decisions as rows: seats, rounds, outcomes, conduct and the ending; past.py reads them back."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterable

from edgeflock.server.core.decisions import (
    Conduct,
    Dropped,
    Ended,
    Outcome,
    Paused,
    Placed,
    Record,
    Released,
    RoundClosed,
    RoundExtended,
    RoundOpened,
    Samples,
    Scored,
    Seated,
    Stopping,
)
from edgeflock.server.journal.scores import remove_untested, write_score

_CONDUCT = "seat, refused, in_row, until, reason"
_VACANT = "SELECT seat FROM dismissed JOIN seats USING (seat, client_id)"
READ_DISMISSED = "SELECT seat, client_id, round, kept FROM dismissed ORDER BY client_id"
READ_CONDUCT = f"SELECT {_CONDUCT} FROM conduct ORDER BY seat"


def write(connection: sqlite3.Connection, epoch: int, record: Record) -> None:
    """Write one record inside the caller's transaction."""
    match record:
        case Seated(seats=seats):
            connection.executemany("INSERT INTO seats (seat, client_id) VALUES (?, ?)", seats)
        case Samples(seat=seat, samples=samples):
            connection.execute("UPDATE seats SET samples = ? WHERE seat = ?", (samples, seat))
        case RoundOpened(round=round, cohort=cohort, last=last):
            connection.execute(
                "INSERT INTO rounds (epoch, round, cohort, roster, last) VALUES (?, ?, ?, ?, ?)",
                (epoch, round, json.dumps(cohort), _write_roster(connection), last or None),
            )
        case RoundExtended(round=round, added=added):
            connection.execute(
                "UPDATE rounds SET extended = ? WHERE epoch = ? AND round = ?",
                (json.dumps(added), epoch, round),
            )
        case RoundClosed(round=round, counted=counted, limit=limit):
            connection.execute(
                "UPDATE rounds SET counted = ? WHERE epoch = ? AND round = ?",
                (json.dumps(counted), epoch, round),
            )
            if limit:
                write_meta(connection, limit=limit)
        case Conduct():
            _write_conduct(connection, record)
        case Released(seat=seat):  # what it has sent stays counted
            connection.execute("UPDATE conduct SET in_row = 0, until = 0 WHERE seat = ?", (seat,))
        case Dropped():
            _dismiss(connection, record)
        case Placed():
            _place(connection, record)
        case Scored(round=round, scores=scores, models=models):
            for model, found in scores:
                write_score(connection, epoch, round, model, found)
            remove_untested(connection, round, models)
        case Paused(on=on):
            write_meta(connection, paused=str(int(on)))
        case Stopping(reason=reason):
            write_meta(connection, stop=reason)
        case Ended():
            remove_meta(connection, "paused", "stop")  # who goes on after the end begins without them
            write_outcomes(connection, epoch, record.round, record.discarded)
            write_meta(connection, ended_kind=str(record.kind), ended_reason=record.reason)


def _write_roster(connection: sqlite3.Connection) -> int:
    """Fix who is ready now and with how many samples; return the number of that roster.

    It is looked for when a seat has changed since: what a round costs does not grow with who has a seat.
    """
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS newest_roster (number INTEGER)")
    for table, change in itertools.product(("seats", "dismissed"), ("INSERT", "UPDATE", "DELETE")):
        connection.execute(
            f"CREATE TEMP TRIGGER IF NOT EXISTS {table}_{change} AFTER {change} ON main.{table} "
            "BEGIN DELETE FROM newest_roster; END"
        )
    newest = connection.execute("SELECT number FROM newest_roster").fetchone()
    number = _find_roster(connection) if newest is None else int(newest[0])
    if newest is None:
        connection.execute("INSERT INTO newest_roster (number) VALUES (?)", (number,))
    return number


def _find_roster(connection: sqlite3.Connection) -> int:
    known = connection.execute("SELECT seat, samples FROM seats WHERE samples IS NOT NULL ORDER BY seat")
    vacant = {seat for (seat,) in connection.execute(_VACANT)}
    samples = json.dumps({seat: count for seat, count in known.fetchall() if seat not in vacant})
    connection.execute("INSERT OR IGNORE INTO rosters (samples) VALUES (?)", (samples,))
    found = connection.execute("SELECT number FROM rosters WHERE samples = ?", (samples,))
    return int(found.fetchone()[0])


def _write_conduct(connection: sqlite3.Connection, one: Conduct) -> None:
    """Write what a client's updates were like, over what was there of it."""
    changes = ", ".join(f"{name} = excluded.{name}" for name in _CONDUCT.split(", ")[1:])
    connection.execute(
        f"INSERT INTO conduct ({_CONDUCT}) VALUES (?, ?, ?, ?, ?) ON CONFLICT (seat) DO UPDATE SET {changes}",
        (one.seat, one.refused, one.row, one.until, one.reason),
    )


def _dismiss(connection: sqlite3.Connection, one: Dropped) -> None:
    """Write down whom the run takes no more."""
    connection.execute(
        "INSERT INTO dismissed (client_id, seat, round, kept) VALUES (?, ?, ?, ?)",
        (one.client_id, one.seat, one.round, one.kept),
    )


def _place(connection: sqlite3.Connection, one: Placed) -> None:
    """Give a client a seat, new or of another; what was said of that one's data and conduct is no more."""
    connection.execute("DELETE FROM dismissed WHERE client_id = ?", (one.client_id,))
    if one.before not in ("", one.client_id):
        connection.execute("DELETE FROM dismissed WHERE client_id = ?", (one.before,))
        _dismiss(connection, Dropped(one.seat, one.before, one.round))
        connection.execute("DELETE FROM conduct WHERE seat = ?", (one.seat,))
    connection.execute(
        "INSERT INTO seats (seat, client_id) VALUES (?, ?) "
        "ON CONFLICT (seat) DO UPDATE SET client_id = excluded.client_id, samples = NULL",
        (one.seat, one.client_id),
    )


def write_meta(connection: sqlite3.Connection, **values: str) -> None:
    connection.executemany(
        "INSERT INTO meta (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value <> excluded.value",
        values.items(),
    )


def read_epoch(connection: sqlite3.Connection) -> int:
    """Return the epoch that the run is in."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
    return 0 if row is None else int(row[0])


def remove_meta(connection: sqlite3.Connection, *names: str) -> None:
    """Forget these; a name may be a pattern of SQL."""
    connection.executemany("DELETE FROM meta WHERE name LIKE ?", [(name,) for name in names])


def write_outcomes(
    connection: sqlite3.Connection, epoch: int, round: int, outcomes: Iterable[Outcome]
) -> None:
    connection.executemany(
        "INSERT INTO outcomes (epoch, round, seat, digest, verdict, moved) VALUES (?, ?, ?, ?, ?, ?)",
        [(epoch, round, item.seat, item.digest, str(item.verdict), item.moved) for item in outcomes],
    )


def write_commit(connection: sqlite3.Connection, epoch: int, round: int, digests: tuple[str, str]) -> None:
    """An open round counts, with these files of its model and its state."""
    connection.execute(
        "UPDATE rounds SET committed = 1, model_digest = ?, state_digest = ? WHERE epoch = ? AND round = ?",
        (*digests, epoch, round),
    )


def write_base(connection: sqlite3.Connection, epoch: int, round: int, digests: tuple[str, str]) -> None:
    """A round that an epoch goes on from; nobody trained in it."""
    connection.execute(
        "INSERT INTO rounds (epoch, round, cohort, committed, model_digest, state_digest) "
        "VALUES (?, ?, '[]', 1, ?, ?)",
        (epoch, round, *digests),
    )
