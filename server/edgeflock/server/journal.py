"""The journal: every decision, outcome, cost and event of a run in one SQLite file.

One writer thread owns the connection. What waits in its queue is written in one transaction
(WAL, synchronous FULL), so that a burst costs one fsync.
"""

from __future__ import annotations

import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from edgeflock.common.errors import CorruptCheckpoint, EdgeflockError

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE seats (idx INTEGER PRIMARY KEY, client_id TEXT NOT NULL UNIQUE, samples INTEGER) STRICT;
CREATE TABLE rounds (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL,
  cohort TEXT NOT NULL,                       -- roster indices, JSON
  extended TEXT,                              -- indices added, JSON; NULL: not extended
  closed TEXT,                                -- the counted set as decided, JSON
  committed INTEGER NOT NULL DEFAULT 0,
  model_digest TEXT, state_digest TEXT,
  PRIMARY KEY (epoch, round)
) STRICT;
CREATE TABLE outcomes (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, idx INTEGER NOT NULL REFERENCES seats (idx),
  digest BLOB NOT NULL, verdict TEXT NOT NULL,
  PRIMARY KEY (epoch, round, idx)
) STRICT;
CREATE TABLE costs (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, idx INTEGER NOT NULL REFERENCES seats (idx),
  samples INTEGER, steps INTEGER,
  bytes_down INTEGER, bytes_up INTEGER, resent_bytes INTEGER,       -- payload, as the server counted it
  message_bytes_down INTEGER, message_bytes_up INTEGER,             -- with the messages around it
  fetch_s REAL, train_s REAL, deliver_s REAL, wait_s REAL, cpu_s REAL, peak_rss_bytes INTEGER, flops REAL,
  PRIMARY KEY (epoch, round, idx)
) STRICT;
CREATE TABLE round_costs (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,
  PRIMARY KEY (epoch, round, name)
) STRICT;
CREATE TABLE evaluations (
  epoch INTEGER NOT NULL, round INTEGER NOT NULL, model TEXT NOT NULL,
  accuracy REAL NOT NULL, loss REAL NOT NULL, samples INTEGER NOT NULL,
  PRIMARY KEY (epoch, round, model)
) STRICT;
CREATE TABLE events (
  cursor INTEGER PRIMARY KEY, at REAL NOT NULL, name TEXT NOT NULL, fields TEXT NOT NULL
) STRICT;
"""

Work = Callable[[sqlite3.Connection], Any]
_Job = tuple[Work, "Future[Any]"]


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
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            connection.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version = {SCHEMA_VERSION};COMMIT;")
        elif version != SCHEMA_VERSION:
            raise CorruptCheckpoint(
                f"{path} has schema version {version}, this edgeflock knows {SCHEMA_VERSION}"
            )
    except sqlite3.DatabaseError as error:
        connection.close()
        raise CorruptCheckpoint(f"{path} cannot be used as a journal: {error}") from None
    return connection


class Journal:
    """The writer thread and its queue; answers come as futures."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect(path)
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._listeners: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> Future[Any]:
        """Run work inside a transaction; the future is done when it is durable."""
        future: Future[Any] = Future()
        self._queue.put((work, future))
        return future

    def note(self, name: str, **fields: object) -> Future[Any]:
        """Append an event."""
        return self.submit(lambda connection: write_event(connection, name, fields))

    def listen(self, listener: Callable[[], None]) -> None:
        """Call listener (from the writer thread) after every transaction."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Write what is queued and close the file."""
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _write(self) -> None:
        running = True
        while running:
            batch, running = self._next_batch()
            if batch:
                self._transact(batch)

    def _next_batch(self) -> tuple[list[_Job], bool]:
        """Wait for a job and take all that are queued behind it; False: the journal was closed."""
        batch: list[_Job] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if self._queue.empty():
                return batch, True
            item = self._queue.get()
        return batch, False

    def _transact(self, batch: Sequence[_Job]) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            results = [work(self._connection) for work, _ in batch]
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail(batch, error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)
        for listener in self._listeners:
            listener()

    def _fail(self, batch: Sequence[_Job], error: sqlite3.Error) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        for _, future in batch:
            future.set_exception(JournalBroken(error))


def write_event(connection: sqlite3.Connection, name: str, fields: dict[str, object]) -> None:
    """Append an event inside the caller's transaction."""
    connection.execute(
        "INSERT INTO events (at, name, fields) VALUES (?, ?, ?)",
        (time.time(), name, json.dumps(fields, sort_keys=True)),
    )


def read_only(path: Path) -> sqlite3.Connection:
    """Open a journal for reading, from any thread of the caller's choice."""
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False, timeout=10)
