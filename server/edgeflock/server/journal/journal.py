"""The journal: every decision, outcome, cost and event of a run in one SQLite file.

One writer thread owns the connection. What waits in its queue is written in one transaction
(WAL, synchronous FULL), so that a burst costs one fsync.
"""

from __future__ import annotations

import contextlib
import errno
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

from edgeflock.common.errors import CorruptCheckpoint, EdgeflockError
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

Work = Callable[[sqlite3.Connection], Any]
FULL = (errno.ENOSPC, errno.EDQUOT)  # a disk that is full now
_LAST_WAIT_MS = 200  # for readers, to leave the journal in one file
LAZY_S = 0.1  # longest that news waits for a decision to share its fsync


class _Job(NamedTuple):
    work: Work
    future: Future[Any]
    urgent: bool  # somebody waits for it


class JournalBroken(EdgeflockError):
    """The journal cannot be written; what it holds is intact."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the journal cannot be written: {cause}")
        text = str(cause).lower()
        self.no_space = "full" in text or "no space" in text


def connect(path: Path) -> sqlite3.Connection:
    """Open a journal, making its tables if it is new.

    Raises CorruptCheckpoint if the file is not a journal of this version.
    """
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    except sqlite3.Error as error:
        raise CorruptCheckpoint(f"{path} cannot be used as a journal: {error}") from None
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA cache_size = -256")  # KiB: what is written is seldom read again
        connection.create_function("seal", -1, _seal, deterministic=True)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            connection.executescript(f"BEGIN;{_SCHEMA}{_SEALS}PRAGMA user_version = {SCHEMA_VERSION};COMMIT;")
        elif version != SCHEMA_VERSION:
            connection.close()
            raise CorruptCheckpoint(
                f"{path} has schema version {version}, this edgeflock knows {SCHEMA_VERSION}"
            )
    except _UNREADABLE as error:
        connection.close()
        raise CorruptCheckpoint(f"{path} cannot be used as a journal: {_in_a_line(error)}") from None
    return connection


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


class Journal:
    """The writer thread and its queue; answers come as futures."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect(path)
        self._broken: sqlite3.OperationalError | None = None  # the disk has failed
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._listeners: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    def submit(self, work: Work, *, urgent: bool = True) -> Future[Any]:
        """Run work inside a transaction, at once or with the next urgent one; done means durable."""
        future: Future[Any] = Future()
        self._queue.put(_Job(work, future, urgent))
        return future

    def note(self, name: str, **fields: object) -> Future[Any]:
        """Append an event; it says when this was called."""
        at = time.time()
        return self.submit(lambda connection: write_event(connection, name, fields, at), urgent=False)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call listener (from the writer thread) after every transaction."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Write what is queued and close the file."""
        self._queue.put(None)
        self._thread.join()
        if self._broken is None:  # closing moves what is written to another place
            with contextlib.suppress(sqlite3.Error):  # who reads for long leaves the run in two files
                self._connection.execute(f"PRAGMA busy_timeout = {_LAST_WAIT_MS}")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.close()

    def _write(self) -> None:
        running = True
        while running:
            batch, running = self._next_batch()
            if batch:
                self._transact(batch)

    def _next_batch(self) -> tuple[list[_Job], bool]:
        """Wait for an urgent job, or a while for others; False: the journal was closed."""
        batch: list[_Job] = []
        patience: float | None = None
        while True:
            try:
                item = self._queue.get(timeout=None if patience is None else patience - time.monotonic())
            except (queue.Empty, ValueError):  # the time is over
                return batch, True
            if item is None:
                return batch, False
            if item.future.set_running_or_notify_cancel():  # who gave up must not break the thread
                batch.append(item)
            patience = time.monotonic() + LAZY_S if patience is None else patience
            if self._queue.empty() and any(job.urgent for job in batch):
                return batch, True

    def _transact(self, batch: Sequence[_Job]) -> None:
        """Write a batch; after an I/O error nothing more (DESIGN rule 7): what a disk holds that has failed
        to write or sync, only the next process can see."""
        if self._broken is not None:
            self._fail(batch, self._broken)
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            results = [job.work(self._connection) for job in batch]
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_IOERR:  # not on all errors
                self._broken = error
            self._fail(batch, error)
            return
        except Exception as error:  # one job is wrong: it must take neither the others nor the thread with it
            self._fail([] if len(batch) > 1 else batch, error)
            for job in batch if len(batch) > 1 else []:
                self._transact([job])
            return
        for job, result in zip(batch, results, strict=True):
            job.future.set_result(result)
        for listener in self._listeners:
            listener()

    def _fail(self, batch: Sequence[_Job], error: Exception) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # a disk that fails may fail here too
                self._connection.execute("ROLLBACK")
        for job in batch:
            job.future.set_exception(JournalBroken(error))


def write_event(
    connection: sqlite3.Connection, name: str, fields: dict[str, object], at: float | None = None
) -> None:
    """Append an event inside the caller's transaction; it happened now unless said otherwise."""
    connection.execute(
        "INSERT INTO events (at, name, fields) VALUES (?, ?, ?)",
        (at or time.time(), name, json.dumps(fields, sort_keys=True)),
    )


def read_only(path: Path) -> sqlite3.Connection:
    """Open a journal for reading, from any thread of the caller's choice."""
    uri = f"{path.absolute().as_uri()}?mode=ro"  # names may hold ? and #
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False, timeout=10)
    connection.create_function("seal", -1, _seal, deterministic=True)
    return connection
