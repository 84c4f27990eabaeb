"""The journal's tables and the seals of its rows: how the file is made, opened, checked and read."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from edgeflock.common.errors import CorruptCheckpoint
from edgeflock.common.payload.checksum import extend
from edgeflock.server.costs.catalogue import BY_CLIENT
from edgeflock.server.journal.migrations import SEALED, STEPS

SCHEMA_VERSION = len(STEPS) + 1
_KINDS = {int: "INTEGER", float: "REAL", str: "TEXT"}
_COLUMNS = {column.name: f"{column.name} {_KINDS[column.kind]}" for column in BY_CLIENT}  # of costs
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL, seal INTEGER) STRICT;
CREATE TABLE seats (
  seat INTEGER PRIMARY KEY, client_id TEXT NOT NULL UNIQUE, samples INTEGER, seal INTEGER
) STRICT;
CREATE TABLE dismissed (                      -- clients that operators dropped or replaced, and not back
  client_id TEXT PRIMARY KEY,                 -- whose seat still names it: that is vacant
  seat INTEGER NOT NULL REFERENCES seats (seat),
  round INTEGER NOT NULL,                     -- at hand then, or else the next
  kept INTEGER NOT NULL,                      -- its update of that round was there, and counts
  seal INTEGER
) STRICT;
CREATE TABLE rosters (                        -- who was ready when a round was opened
  number INTEGER PRIMARY KEY,
  samples TEXT NOT NULL UNIQUE,               -- n_i by seat, JSON; the methods' N and n
  seal INTEGER
) STRICT;
CREATE TABLE rounds (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL,
  cohort TEXT NOT NULL,                       -- seats, JSON
  roster INTEGER REFERENCES rosters (number),
  extended TEXT,                              -- seats added, JSON; NULL: not extended
  counted TEXT,                               -- the seats that count as decided, JSON
  last TEXT,                                  -- why training is over; NULL: a round of training
  committed INTEGER NOT NULL DEFAULT 0,
  model_digest TEXT, state_digest TEXT, seal INTEGER,
  PRIMARY KEY (epoch, round)
) STRICT;
CREATE TABLE outcomes (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, seat INTEGER NOT NULL REFERENCES seats (seat),
  digest BLOB NOT NULL, verdict TEXT NOT NULL,
  moved INTEGER,                              -- the client's own state, with it; NULL: it did not say
  seal INTEGER,
  PRIMARY KEY (epoch, round, seat)
) STRICT;
CREATE INDEX outcomes_that_moved ON outcomes (epoch, round) WHERE verdict = 'counted' AND moved IS NOT 0;
CREATE TABLE conduct (                        -- clients that have sent bad updates
  seat INTEGER PRIMARY KEY REFERENCES seats (seat),
  refused INTEGER NOT NULL,                   -- bad updates in all
  in_row INTEGER NOT NULL,                    -- since the last that counted, or since its quarantine
  until INTEGER NOT NULL,                     -- in quarantine to the end of that round
  reason TEXT NOT NULL,                       -- of the last bad one
  seal INTEGER
) STRICT;
CREATE TABLE costs (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, seat INTEGER NOT NULL REFERENCES seats (seat), {columns},
  PRIMARY KEY (epoch, round, seat)
) STRICT;
CREATE TABLE bundle_bytes (                   -- the payload of `costs` by what it held, resends included
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, seat INTEGER NOT NULL REFERENCES seats (seat),
  direction TEXT NOT NULL, kind TEXT NOT NULL, codec TEXT NOT NULL, bytes INTEGER NOT NULL,
  PRIMARY KEY (epoch, round, seat, direction, kind, codec)
) STRICT, WITHOUT ROWID;
CREATE TABLE round_costs (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,
  PRIMARY KEY (epoch, round, name)
) STRICT;
CREATE TABLE evaluations (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, model TEXT NOT NULL,
  value REAL NOT NULL, loss REAL, samples INTEGER NOT NULL, -- value: of the run's figure; NULL: not a number
  members INTEGER NOT NULL DEFAULT 1,         -- models of that name; value, loss and the others are means
  deviation REAL NOT NULL DEFAULT 0, worst_tenth REAL NOT NULL DEFAULT 0, -- of their values
  others TEXT NOT NULL DEFAULT '{}',          -- the task's other metrics by name, JSON
  seal INTEGER,
  PRIMARY KEY (epoch, round, model)
) STRICT;
CREATE TABLE client_scores (                  -- clients' own models, on their own test samples or the pooled
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, seat INTEGER NOT NULL REFERENCES seats (seat),
  model TEXT NOT NULL, samples INTEGER NOT NULL, value REAL NOT NULL, loss REAL NOT NULL,
  others TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY (epoch, round, seat, model)
) STRICT;
CREATE TABLE events (
  cursor INTEGER PRIMARY KEY, at REAL NOT NULL, name TEXT NOT NULL, fields TEXT NOT NULL
) STRICT;
""".replace("{columns}", ", ".join(_COLUMNS.values()))
TABLES = tuple(re.findall(r"CREATE TABLE (\w+)", _TABLES))

_SEALED = {  # what is decided: each row carries a checksum, which SQLite's pages do not
    "meta": "name, value",
    "seats": "seat, client_id, samples",
    "dismissed": "client_id, seat, round, kept",
    "rosters": "number, samples",
    "rounds": (
        "epoch, round, cohort, roster, extended, counted, last, committed, model_digest, state_digest"
    ),
    "outcomes": "epoch, round, seat, digest, verdict, moved",
    "conduct": "seat, refused, in_row, until, reason",
    "evaluations": "epoch, round, model, value, loss, samples, members, deviation, worst_tenth, others",
}
_TRIGGERS = tuple(
    f"CREATE TRIGGER {table}_{name} AFTER {change} ON {table} BEGIN "
    f"UPDATE {table} SET seal = seal({columns}) WHERE rowid = NEW.rowid; END"
    for table, columns in _SEALED.items()
    for name, change in (("inserted", "INSERT"), ("updated", f"UPDATE OF {columns}"))
)
_UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)  # its own complaint quotes what it could not read


def connect(path: Path) -> sqlite3.Connection:
    """Open a journal, making its tables if it is new, and bringing one of an earlier version up to date.

    Raises CorruptCheckpoint if the file is no journal, is damaged, or of a later version.
    """
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    except sqlite3.Error as error:
        raise _unusable(path, error) from None
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA cache_size = -256")  # KiB: what is written is seldom read again
        connection.create_function("seal", -1, _seal, deterministic=True)
        _make_or_bring_up(connection, path)
    except _UNREADABLE as error:
        connection.close()
        raise _unusable(path, error) from None
    except CorruptCheckpoint:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def consulted(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Open a journal for reading, and check it as a whole; give nothing if it is empty.

    Raises CorruptCheckpoint as `connect` and `verify` do.
    """
    try:
        _roll_back(path)
        with contextlib.closing(_opened(path)) as there:
            if version := _known_version(there, path):
                verify(there, path)
        with contextlib.closing(read_only(path)) as connection:
            yield connection if version else None
    except _UNREADABLE as error:
        raise _unusable(path, error) from None


def _roll_back(path: Path) -> None:
    """Undo what a power cut has left half done; who may only read cannot."""
    with contextlib.closing(sqlite3.connect(path, timeout=10)) as connection:
        _version(connection)


def _make_or_bring_up(connection: sqlite3.Connection, path: Path) -> None:
    version = _known_version(connection, path)
    if _is_todays(connection):
        return
    if version:  # what is damaged is not sealed anew
        verify(connection, path)
    _change(connection, version)


def _known_version(connection: sqlite3.Connection, path: Path) -> int:
    version = _version(connection)
    if version > SCHEMA_VERSION:
        raise CorruptCheckpoint(f"{path} has schema version {version}, this edgeflock knows {SCHEMA_VERSION}")
    return version


def _version(connection: sqlite3.Connection) -> int:
    """Return the version of the tables, 0 if there are none."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _is_todays(connection: sqlite3.Connection) -> bool:
    return _version(connection) == SCHEMA_VERSION and not _missing(connection)


def _missing(connection: sqlite3.Connection) -> list[str]:
    """Return the columns of costs that the catalogue has had since."""
    there = {row[1] for row in connection.execute("PRAGMA table_info(costs)")}
    return [column for name, column in _COLUMNS.items() if there and name not in there]


def _change(connection: sqlite3.Connection, version: int) -> None:
    """Make the tables of a version those of today, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if version:
            _migrate(connection, version)
        else:
            _make(connection)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has ended it
            connection.execute("ROLLBACK")
        raise


def _make(connection: sqlite3.Connection) -> None:
    for statement in (*_TABLES.split(";\n")[:-1], *_TRIGGERS):
        connection.execute(statement)


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for (name,) in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for step in STEPS[version - 1 :]:
        step(connection)
    for column in _missing(connection):
        connection.execute(f"ALTER TABLE costs ADD COLUMN {column}")
    for table, columns in _SEALED.items():
        connection.execute(f"UPDATE {table} SET seal = seal({columns})")
    for trigger in _TRIGGERS:
        connection.execute(trigger)


def _unusable(path: Path, error: Exception) -> CorruptCheckpoint:
    return CorruptCheckpoint(f"{path} cannot be used as a journal: {_in_a_line(error)}")


def _in_a_line(words: object) -> str:
    """Return what SQLite says, which may quote whatever the file holds."""
    return " ".join(ascii(str(words))[1:-1].replace("\\n", " ").split())


def _seal(*values: object) -> int:
    return extend(0, repr(values).encode("utf-8", "surrogatepass"))


def verify(connection: sqlite3.Connection, path: Path) -> None:
    """Raise CorruptCheckpoint unless the file is sound and every decision stands as it was written."""
    try:
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found == "ok":
            check_seals(connection)
    except _UNREADABLE as error:
        found = str(error)
    if found != "ok":
        sentence = f"{path} is damaged ({_in_a_line(found)}): restore a backup of the run directory"
        raise CorruptCheckpoint(sentence)


def check_seals(connection: sqlite3.Connection) -> None:
    """Raise DatabaseError unless every decision stands as it was written."""
    version = _version(connection)
    for table, columns in (_SEALED if version == SCHEMA_VERSION else SEALED.get(version, {})).items():
        query = f"SELECT 1 FROM {table} WHERE seal IS NOT seal({columns}) LIMIT 1"
        if connection.execute(query).fetchone():
            raise sqlite3.DatabaseError(f"a row of {table} is not what was written")


def read_only(path: Path) -> sqlite3.Connection:
    """Open a journal for reading, from any thread of the caller's choice; its directory may be read-only.

    One that `is_behind` is read as of now, from a copy that is brought up to date.
    """
    with contextlib.ExitStack() as otherwise:
        connection = otherwise.enter_context(contextlib.closing(_opened(path)))
        version = _version(connection)
        if 0 < version <= SCHEMA_VERSION and not _is_todays(connection):
            check_seals(connection)
            return _brought_up(connection, version)
        otherwise.pop_all()
        return connection


def is_behind(path: Path) -> bool:
    """Whether a journal is not of today yet: whoever takes its run up brings it up to date."""
    with contextlib.closing(_opened(path)) as connection:
        return not _is_todays(connection)


def _opened(path: Path) -> sqlite3.Connection:
    wal = path.with_name(f"{path.name}-wal")
    at_rest = not os.access(path.parent, os.W_OK) and not (wal.exists() and wal.stat().st_size)
    how = "immutable=1" if at_rest else "mode=ro"  # else SQLite makes files for those who read meanwhile
    uri = f"{path.absolute().as_uri()}?{how}"  # names may hold ? and #
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False, timeout=10)
    connection.create_function("seal", -1, _seal, deterministic=True)
    return connection


def _brought_up(connection: sqlite3.Connection, version: int) -> sqlite3.Connection:
    copy = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # a file without a name
    copy.create_function("seal", -1, _seal, deterministic=True)
    connection.backup(copy)
    _change(copy, version)
    copy.execute("PRAGMA query_only = 1")
    return copy
