"""The journal's tables and the seals of its rows: how the file is made, opened, checked and read."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from edgeflock.common.errors import CorruptCheckpoint
from edgeflock.common.payload.checksum import extend

SCHEMA_VERSION = 6

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL, seal INTEGER) STRICT;
CREATE TABLE seats (
  idx INTEGER PRIMARY KEY, client_id TEXT NOT NULL UNIQUE, samples INTEGER, seal INTEGER
) STRICT;
CREATE TABLE rosters (                        -- who was ready when a round was opened
  number INTEGER PRIMARY KEY,
  samples TEXT NOT NULL UNIQUE,               -- n_i by seat, JSON; the methods' N and n
  seal INTEGER
) STRICT;
CREATE TABLE rounds (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL,
  cohort TEXT NOT NULL,                       -- roster indices, JSON
  roster INTEGER REFERENCES rosters (number),
  extended TEXT,                              -- indices added, JSON; NULL: not extended
  closed TEXT,                                -- the counted set as decided, JSON
  closing TEXT,                               -- why training is over; NULL: a round of training
  committed INTEGER NOT NULL DEFAULT 0,
  model_digest TEXT, state_digest TEXT, seal INTEGER,
  PRIMARY KEY (epoch, round)
) STRICT;
CREATE TABLE outcomes (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, idx INTEGER NOT NULL REFERENCES seats (idx),
  digest BLOB NOT NULL, verdict TEXT NOT NULL, seal INTEGER,
  PRIMARY KEY (epoch, round, idx)
) STRICT;
CREATE TABLE conduct (                        -- clients that have sent bad updates
  idx INTEGER PRIMARY KEY REFERENCES seats (idx),
  refused INTEGER NOT NULL,                   -- bad updates in all
  in_row INTEGER NOT NULL,                    -- since the last that counted, or since its quarantine
  until INTEGER NOT NULL,                     -- in quarantine to the end of that round
  reason TEXT NOT NULL,                       -- of the last bad one
  seal INTEGER
) STRICT;
CREATE TABLE costs (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, idx INTEGER NOT NULL REFERENCES seats (idx),
  samples INTEGER, steps INTEGER,
  bytes_down INTEGER, bytes_up INTEGER, resent_bytes INTEGER,       -- payload, as the server counted it
  message_bytes_down INTEGER, message_bytes_up INTEGER,             -- with the messages around it
  wire_bytes_down INTEGER, wire_bytes_up INTEGER,                   -- with HTTP/2 ... Ethernet: estimated
  fetch_s REAL, train_s REAL, deliver_s REAL, wait_s REAL, cpu_s REAL, peak_rss_bytes INTEGER,
  samples_done INTEGER,
  flops REAL, method_flops REAL,              -- of the local work; of these, what the method adds to FedAvg
  method_pass_flops REAL,                     -- of these, in passes through the model
  peak_gpu_bytes INTEGER, temperature_c REAL, throttled INTEGER, -- the highest; 1: its clock was held down
  energy_j REAL, energy_source TEXT,          -- rapl, hwmon, or model: watts that somebody stated
  PRIMARY KEY (epoch, round, idx)
) STRICT;
CREATE TABLE bundle_bytes (                   -- the payload of `costs` by what it held, resends included
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, idx INTEGER NOT NULL REFERENCES seats (idx),
  direction TEXT NOT NULL, kind TEXT NOT NULL, codec TEXT NOT NULL, bytes INTEGER NOT NULL,
  PRIMARY KEY (epoch, round, idx, direction, kind, codec)
) STRICT, WITHOUT ROWID;
CREATE TABLE round_costs (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,
  PRIMARY KEY (epoch, round, name)
) STRICT;
CREATE TABLE evaluations (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, model TEXT NOT NULL,
  accuracy REAL NOT NULL, loss REAL NOT NULL, samples INTEGER NOT NULL,
  members INTEGER NOT NULL DEFAULT 1,         -- models of that name; accuracy and loss are means
  deviation REAL NOT NULL DEFAULT 0, worst_tenth REAL NOT NULL DEFAULT 0, -- of their accuracy
  PRIMARY KEY (epoch, round, model)
) STRICT;
CREATE TABLE client_scores (                  -- clients' own models, on their own test samples or the pooled
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, idx INTEGER NOT NULL REFERENCES seats (idx),
  model TEXT NOT NULL, samples INTEGER NOT NULL, accuracy REAL NOT NULL, loss REAL NOT NULL,
  PRIMARY KEY (epoch, round, idx, model)
) STRICT;
CREATE TABLE events (
  cursor INTEGER PRIMARY KEY, at REAL NOT NULL, name TEXT NOT NULL, fields TEXT NOT NULL
) STRICT;
"""

_SEALED = {  # what is decided: each row carries a checksum, which SQLite's pages do not
    "meta": "name, value",
    "seats": "idx, client_id, samples",
    "rosters": "number, samples",
    "rounds": (
        "epoch, round, cohort, roster, extended, closed, closing, committed, model_digest, state_digest"
    ),
    "outcomes": "epoch, round, idx, digest, verdict",
    "conduct": "idx, refused, in_row, until, reason",
}
_SEALS = "".join(
    f"CREATE TRIGGER {table}_{name} AFTER {change} ON {table} BEGIN "
    f"UPDATE {table} SET seal = seal({columns}) WHERE rowid = NEW.rowid; END;\n"
    for table, columns in _SEALED.items()
    for name, change in (("inserted", "INSERT"), ("updated", f"UPDATE OF {columns}"))
)
_UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)  # its own complaint quotes what it could not read


def connect(path: Path) -> sqlite3.Connection:
    """Open a journal, making its tables if it is new.

    Raises CorruptCheckpoint if the file is not a journal of this version.
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
        if not _known_version(connection, path):
            connection.executescript(f"BEGIN;{_SCHEMA}{_SEALS}PRAGMA user_version = {SCHEMA_VERSION};COMMIT;")
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
        with contextlib.closing(read_only(path)) as connection:
            if version := _known_version(connection, path):
                verify(connection, path)
            yield connection if version else None
    except _UNREADABLE as error:
        raise _unusable(path, error) from None


def _known_version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version not in (0, SCHEMA_VERSION):
        raise CorruptCheckpoint(f"{path} has schema version {version}, this edgeflock knows {SCHEMA_VERSION}")
    return version


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
    """Raise DatabaseError unless every decision stands as it was written, in a journal of this version."""
    if connection.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
        return
    for table, columns in _SEALED.items():
        query = f"SELECT 1 FROM {table} WHERE seal IS NOT seal({columns}) LIMIT 1"
        if connection.execute(query).fetchone():
            raise sqlite3.DatabaseError(f"a row of {table} is not what was written")


def read_only(path: Path) -> sqlite3.Connection:
    """Open a journal for reading, from any thread of the caller's choice."""
    uri = f"{path.absolute().as_uri()}?mode=ro"  # names may hold ? and #
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False, timeout=10)
    connection.create_function("seal", -1, _seal, deterministic=True)
    return connection
