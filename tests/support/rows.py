"""What a journal holds, asked in SQL as only tests do."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from edgeflock.server.journal.schema import read_only


def rows(journal: Path, statement: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(read_only(journal)) as connection:
        return connection.execute(statement).fetchall()


def events(journal: Path, name: str) -> list[dict[str, Any]]:
    """Return the fields of every event of that name, in their order."""
    found = rows(journal, f"SELECT fields FROM events WHERE name = '{name}' ORDER BY cursor")
    return [json.loads(fields) for (fields,) in found]
