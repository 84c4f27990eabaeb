"""A run's journal opened for reading: what is wrong with it, in a sentence, and questions in SQL."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgeflock.common.errors import BadData, MissingData
from edgeflock.server.files.run_dir import JOURNAL
from edgeflock.server.journal.schema import SCHEMA_VERSION, TABLES, check_seals, is_behind, read_only

_OF_EVERY_VERSION = ("meta", "seats", "rounds", "events")

Value = float | int | str | None


class Unready(BadData):
    """The journal cannot be read now: its server may be only just beginning to write it."""


class JournalFile:
    """The file, read-only, from any thread, with one question at a time.

    All raise BadData with a sentence if it cannot be read.
    """

    def __init__(self, run_dir: Path) -> None:
        """Raises MissingData if there is no run, BadData if its journal is none that is known here."""
        self.path = run_dir / JOURNAL
        try:
            if not self.path.is_file():
                raise MissingData(f"{run_dir} is not a run directory: {_lacking(run_dir)}")
            self.path.open("rb").close()
        except OSError as error:
            raise BadData(f"{self.path} cannot be read: {error.strerror}") from None
        self._open()

    def _open(self) -> None:
        with self.readable():
            self.connection = read_only(self.path)
        try:
            with self.readable():
                self._copied = not self.one("SELECT length(file) FROM pragma_database_list")
                self._check_tables()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.connection.close()

    def check(self) -> None:
        """Raise BadData unless every decision stands as it was written."""
        with self.readable():
            check_seals(self.connection)

    def keep_up(self) -> None:
        """Of an earlier version a copy is read; once its server has brought it up to date, the journal."""
        if self._copied and not self.connection.in_transaction and not is_behind(self.path):
            self.close()
            self._open()

    def ask(self, question: str, *values: Value) -> Iterator[Any]:
        with self.readable():
            rows = self.connection.execute(question, values)
            while (row := rows.fetchone()) is not None:
                yield row

    def one(self, question: str, *values: Value) -> Any:
        """Return the first value of the first row."""
        return next(self.ask(question, *values))[0]

    @contextlib.contextmanager
    def readable(self) -> Iterator[None]:
        """Say of what cannot be read which file it is in."""
        try:
            yield
        except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
            busy = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
            kind = Unready if busy else BadData
            raise kind(f"{self.path} cannot be read as a journal: {error}") from None

    def _check_tables(self) -> None:
        """Refuse what is no journal of a run that is known here."""
        version = self.one("PRAGMA user_version")
        if version > SCHEMA_VERSION:
            raise BadData(
                f"{self.path} has schema version {version}, this edgeflock reads up to {SCHEMA_VERSION}"
            )
        tables = {row[0] for row in self.ask("SELECT name FROM sqlite_master WHERE type = 'table'")}
        none = f"{self.path} is not the journal of a run: it has no"
        if version == 0 or not tables:
            raise Unready(f"{none} tables")
        if missing := [table for table in _OF_EVERY_VERSION if table not in tables]:
            raise BadData(f"{none} table {missing[0]}")
        if missing := [table for table in TABLES if table not in tables]:
            raise sqlite3.DatabaseError(f"it has no table {missing[0]}")


def _lacking(run_dir: Path) -> str:
    if not run_dir.exists():
        return "it does not exist"
    return f"it has no {JOURNAL}" if run_dir.is_dir() else "it is a file"
