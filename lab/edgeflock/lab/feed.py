"""The journal's events as the lab reads them: read-only, from a cursor on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeflock.common.errors import EdgeflockError, MissingData

JOURNAL = "journal.sqlite"
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
        """Return the new events; none while there is no journal yet."""
        try:
            rows = self._rows()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error) or "locked" in str(error):
                return []  # the server is just making it
            raise EdgeflockError(f"cannot read {self.path}: {error}") from None
        except sqlite3.DatabaseError as error:
            raise EdgeflockError(f"cannot read {self.path}: {error}") from None
        if rows:
            self.cursor = int(rows[-1][0])
        return [Event(int(c), float(at), str(name), json.loads(fields)) for c, at, name, fields in rows]

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


def require_run(run_dir: Path) -> Path:
    """Return the directory if it is that of a run. Raises MissingData with a sentence."""
    if not (run_dir / JOURNAL).is_file():
        raise MissingData(f"{run_dir} is not a run directory: it has no {JOURNAL}")
    return run_dir
