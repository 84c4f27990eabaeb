"""The one thread that writes a run's journal: what waits in its queue is one transaction.

WAL, synchronous FULL: a burst costs one fsync, and news waits a moment for a decision to share it.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from edgeflock.common.errors import JournalBroken

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
_PATIENCE_MS = 2000  # while another program has locked the journal: then who waits is told, and tries again
_LAST_WAIT_MS = 200  # for readers, to leave the journal in one file
LAZY_S = 0.1  # longest that news waits for a decision to share its fsync


class _Job(NamedTuple):
    work: Work[Any]
    future: Future[Any]
    urgent: bool  # somebody waits for it
    writes: bool


class Writer:
    """The thread and its queue; answers come as futures."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
        self._broken: sqlite3.OperationalError | None = None  # the disk has failed
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._listeners: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    @property
    def broken(self) -> JournalBroken | None:
        """Why nothing more is written; None: nothing has failed for good."""
        return None if self._broken is None else JournalBroken(self._broken)

    def submit(self, work: Work[T], *, urgent: bool = True) -> Future[T]:
        """Run work inside a transaction, at once or with the next urgent one; done means durable."""
        future: Future[T] = Future()
        self._queue.put(_Job(work, future, urgent, writes=True))
        return future

    def ask(self, work: Work[T]) -> Future[T]:
        """Run work that only reads, after what was submitted before; no lock or full disk is in its way."""
        future: Future[T] = Future()
        self._queue.put(_Job(work, future, urgent=True, writes=False))
        return future

    def listen(self, listener: Callable[[], None]) -> None:
        """Call listener (from the writer thread) after every transaction."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Write what is queued and close the file, once."""
        if not self._thread.is_alive():
            return
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
        questions = [job for job in batch if not job.writes]
        try:
            self._connection.execute("BEGIN" if len(questions) == len(batch) else "BEGIN IMMEDIATE")
            results = [job.work(self._connection) for job in batch]
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_IOERR:  # not on all errors
                self._broken = error
            elif 0 < len(questions) < len(batch):
                self._fail([job for job in batch if job.writes], error)
                self._transact(questions)
                return
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
