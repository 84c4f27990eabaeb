"""The journal's events for readers: read-only, from a cursor on."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeflock.common.errors import BadData, MissingData
from edgeflock.server.journal.schema import SCHEMA_VERSION, read_only

JOURNAL = "journal.sqlite"
_TABLES = ("meta", "seats", "rounds", "events")  # of every version
_QUERY = "SELECT cursor, at, name, fields FROM events WHERE cursor > ? ORDER BY cursor"


@dataclass(frozen=True)
class Event:
    """One row of the feed."""

    cursor: int
    at: float  # seconds since 1970
    name: str
    fields: Mapping[str, Any]

    def number(self, key: str) -> float | None:
        """Return a field if it is a number."""
        value = self.fields.get(key)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


class Feed:
    """Events of one run directory; `read` returns what came since the last call."""

    def __init__(self, run_dir: Path, after: int = 0) -> None:
        self.path = run_dir / JOURNAL
        self.cursor = after
        self._connection: sqlite3.Connection | None = None

    def read(self) -> list[Event]:
        """Return the new events; none while there is no journal yet. Raises BadData if it cannot be read."""
        try:
            rows = self._rows()
            events = [Event(int(c), float(at), str(name), fields_of(text)) for c, at, name, text in rows]
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            if isinstance(error, sqlite3.OperationalError) and _is_being_made(error):
                return []
            raise BadData(f"{self.path} cannot be read as a journal: {error}") from None
        if rows:
            self.cursor = int(rows[-1][0])
        return events

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _rows(self) -> list[tuple[Any, ...]]:
        if self._connection is None:
            if not self.path.exists():
                return []
            self._connection = sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)
        return self._connection.execute(_QUERY, (self.cursor,)).fetchall()


def _is_being_made(error: sqlite3.OperationalError) -> bool:
    """Whether the server is only just beginning to write it."""
    return "no such table" in str(error) or "locked" in str(error)


def fields_of(text: str) -> dict[str, Any]:
    """Return the fields of an event. Raises ValueError if these are none."""
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("an event has no fields")
    return fields


def require_run(run_dir: Path) -> Path:
    """Return the directory if it is that of a run that can be read here.

    Raises MissingData if there is none, BadData with a sentence if its journal is no journal of ours.
    """
    path = run_dir / JOURNAL
    try:
        if not path.is_file():
            raise MissingData(f"{run_dir} is not a run directory: {_lacking(run_dir)}")
        path.open("rb").close()
        with contextlib.closing(read_only(path)) as connection:
            _require_schema(path, connection)
    except OSError as error:
        raise BadData(f"{path} cannot be read: {error.strerror}") from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise BadData(f"{path} cannot be read as a journal: {error}") from None
    return run_dir


def _require_schema(path: Path, connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise BadData(f"{path} has schema version {version}, this edgeflock reads up to {SCHEMA_VERSION}")
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if version == 0 or not tables:
        raise BadData(f"{path} is not the journal of a run: it has no tables")
    if missing := [table for table in _TABLES if table not in tables]:
        raise BadData(f"{path} is not the journal of a run: it has no table {missing[0]}")


def _lacking(run_dir: Path) -> str:
    if not run_dir.exists():
        return "it does not exist"
    return f"it has no {JOURNAL}" if run_dir.is_dir() else "it is a file"
