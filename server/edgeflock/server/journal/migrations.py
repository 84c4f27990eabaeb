"""Earlier versions of the journal: what became of each with the next one, step by step.

Columns of `costs` are no part of it: what the catalogue has and a journal lacks is added when it is opened.
"""

from __future__ import annotations

import ast
import json
import sqlite3
from collections.abc import Callable

# What the rows of a version carried a checksum over; before version 4 none did.
_SEALED_4 = {
    "meta": "name, value",
    "seats": "idx, client_id, samples",
    "rosters": "number, samples",
    "rounds": (
        "epoch, round, cohort, roster, extended, closed, closing, committed, model_digest, state_digest"
    ),
    "outcomes": "epoch, round, idx, digest, verdict",
}
SEALED = {
    4: _SEALED_4,
    5: _SEALED_4,
    6: {**_SEALED_4, "conduct": "idx, refused, in_row, until, reason"},
    7: {
        "meta": "name, value",
        "seats": "seat, client_id, samples",
        "rosters": "number, samples",
        "rounds": (
            "epoch, round, cohort, roster, extended, counted, last, committed, model_digest, state_digest"
        ),
        "outcomes": "epoch, round, seat, digest, verdict",
        "conduct": "seat, refused, in_row, until, reason",
    },
    8: {
        "meta": "name, value",
        "seats": "seat, client_id, samples",
        "rosters": "number, samples",
        "rounds": (
            "epoch, round, cohort, roster, extended, counted, last, committed, model_digest, state_digest"
        ),
        "outcomes": "epoch, round, seat, digest, verdict, moved",
        "conduct": "seat, refused, in_row, until, reason",
        "evaluations": "epoch, round, model, accuracy, loss, samples, members, deviation, worst_tenth",
    },
    9: {
        "meta": "name, value",
        "seats": "seat, client_id, samples",
        "rosters": "number, samples",
        "rounds": (
            "epoch, round, cohort, roster, extended, counted, last, committed, model_digest, state_digest"
        ),
        "outcomes": "epoch, round, seat, digest, verdict, moved",
        "conduct": "seat, refused, in_row, until, reason",
        "evaluations": "epoch, round, model, value, loss, samples, members, deviation, worst_tenth, others",
    },
}


def _groups_of_models(connection: sqlite3.Connection) -> None:
    """An evaluation may be of several models."""
    for column in ("members INTEGER NOT NULL DEFAULT 1", "deviation REAL NOT NULL DEFAULT 0"):
        connection.execute(f"ALTER TABLE evaluations ADD COLUMN {column}")
    connection.execute("ALTER TABLE evaluations ADD COLUMN worst_tenth REAL NOT NULL DEFAULT 0")


def _rosters(connection: sqlite3.Connection) -> None:
    """A round knows who was ready when it was opened, and whether it is the closing one; clients have scores.

    Before, whoever was ready at the time was asked: that is who has samples now.
    """
    connection.execute(
        "CREATE TABLE rosters (number INTEGER PRIMARY KEY, samples TEXT NOT NULL UNIQUE) STRICT"
    )
    connection.execute("ALTER TABLE rounds ADD COLUMN roster INTEGER REFERENCES rosters (number)")
    connection.execute("ALTER TABLE rounds ADD COLUMN closing TEXT")
    ready = connection.execute("SELECT idx, samples FROM seats WHERE samples IS NOT NULL ORDER BY idx")
    connection.execute("INSERT INTO rosters VALUES (1, ?)", (json.dumps(dict(ready.fetchall())),))
    connection.execute("UPDATE rounds SET roster = 1 WHERE cohort <> '[]'")
    connection.execute(
        "CREATE TABLE client_scores (epoch INTEGER NOT NULL, round INTEGER NOT NULL, "
        "idx INTEGER NOT NULL REFERENCES seats (idx), model TEXT NOT NULL, samples INTEGER NOT NULL, "
        "accuracy REAL NOT NULL, loss REAL NOT NULL, PRIMARY KEY (epoch, round, idx, model)) STRICT"
    )


def _seals(connection: sqlite3.Connection) -> None:
    """Rows of decisions carry a checksum."""
    for table in _SEALED_4:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN seal INTEGER")


def _bundles(connection: sqlite3.Connection) -> None:
    """Payload is counted by what it holds."""
    connection.execute(
        "CREATE TABLE bundle_bytes (epoch INTEGER NOT NULL, round INTEGER NOT NULL, "
        "idx INTEGER NOT NULL REFERENCES seats (idx), direction TEXT NOT NULL, kind TEXT NOT NULL, "
        "codec TEXT NOT NULL, bytes INTEGER NOT NULL, "
        "PRIMARY KEY (epoch, round, idx, direction, kind, codec)) STRICT, WITHOUT ROWID"
    )


def _conduct(connection: sqlite3.Connection) -> None:
    """Bad updates are counted by client."""
    connection.execute(
        "CREATE TABLE conduct (idx INTEGER PRIMARY KEY REFERENCES seats (idx), refused INTEGER NOT NULL, "
        "in_row INTEGER NOT NULL, until INTEGER NOT NULL, reason TEXT NOT NULL, seal INTEGER) STRICT"
    )


def _words(connection: sqlite3.Connection) -> None:
    """Names of today: seat, counted, last; what makes the run this run names each option of its method."""
    for table in ("seats", "outcomes", "conduct", "costs", "bundle_bytes", "client_scores"):
        connection.execute(f"ALTER TABLE {table} RENAME COLUMN idx TO seat")
    for before, now in (("closed", "counted"), ("closing", "last")):
        connection.execute(f"ALTER TABLE rounds RENAME COLUMN {before} TO {now}")
    for name in ("opened", "committed"):
        renamed = (f"last_round_{name}", f"closing_{name}")
        connection.execute("UPDATE events SET name = ? WHERE name = ?", renamed)
    ready = connection.execute("SELECT cursor, fields FROM events WHERE name = 'client_ready'").fetchall()
    for cursor, text in ready:
        now = text.replace('"index": ', '"seat": ')
        connection.execute("UPDATE events SET fields = ? WHERE cursor = ?", (now, cursor))
    row = connection.execute("SELECT value FROM meta WHERE name = 'identity'").fetchone()
    if row is not None:
        identity: dict[str, str] = json.loads(row[0])
        options = dict(ast.literal_eval(identity.pop("set", "[]")))
        identity |= {f"set {name}": value for name, value in options.items()}
        connection.execute("UPDATE meta SET value = ? WHERE name = 'identity'", (json.dumps(identity),))


def _scores(connection: sqlite3.Connection) -> None:
    """A score may end a run, so it carries a checksum; a loss may be NaN, which is NULL."""
    connection.execute("ALTER TABLE evaluations RENAME TO evaluations_7")
    connection.execute(
        "CREATE TABLE evaluations (epoch INTEGER NOT NULL, round INTEGER NOT NULL, model TEXT NOT NULL, "
        "accuracy REAL NOT NULL, loss REAL, samples INTEGER NOT NULL, members INTEGER NOT NULL DEFAULT 1, "
        "deviation REAL NOT NULL DEFAULT 0, worst_tenth REAL NOT NULL DEFAULT 0, seal INTEGER, "
        "PRIMARY KEY (epoch, round, model)) STRICT"
    )
    columns = "epoch, round, model, accuracy, loss, samples, members, deviation, worst_tenth"
    connection.execute(f"INSERT INTO evaluations ({columns}) SELECT {columns} FROM evaluations_7")
    connection.execute("DROP TABLE evaluations_7")


def _moved(connection: sqlite3.Connection) -> None:
    """An update that counted says whether the client's own state moved with it; NULL: that is not known."""
    connection.execute("ALTER TABLE outcomes ADD COLUMN moved INTEGER")
    connection.execute(
        "CREATE INDEX outcomes_that_moved ON outcomes (epoch, round) "
        "WHERE verdict = 'counted' AND moved IS NOT 0"
    )


def _scores_and_moved(connection: sqlite3.Connection) -> None:
    _scores(connection)
    _moved(connection)


def _tasks(connection: sqlite3.Connection) -> None:
    """What a model is judged by need not be its accuracy, and there may be other metrics beside it."""
    for table in ("evaluations", "client_scores"):
        connection.execute(f"ALTER TABLE {table} RENAME COLUMN accuracy TO value")
        connection.execute(f"ALTER TABLE {table} ADD COLUMN others TEXT NOT NULL DEFAULT '{{}}'")


def _dismissed(connection: sqlite3.Connection) -> None:
    """Operators may drop clients and give seats to others."""
    connection.execute(
        "CREATE TABLE dismissed (client_id TEXT PRIMARY KEY, seat INTEGER NOT NULL REFERENCES seats (seat), "
        "round INTEGER NOT NULL, kept INTEGER NOT NULL, seal INTEGER) STRICT"
    )


STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = (  # the first is from version 1 to 2
    _groups_of_models,
    _rosters,
    _seals,
    _bundles,
    _conduct,
    _words,
    _scores_and_moved,
    _tasks,
    _dismissed,
)
