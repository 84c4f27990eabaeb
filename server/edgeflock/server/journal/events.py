"""Events as rows: what the readers of a journal are told, in the order in which it happened."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping


def write_event(
    connection: sqlite3.Connection, name: str, fields: Mapping[str, object], at: float | None = None
) -> None:
    """Append an event inside the caller's transaction; it happened now unless said otherwise."""
    connection.execute(
        "INSERT INTO events (at, name, fields) VALUES (?, ?, ?)",
        (at or time.time(), name, json.dumps(fields, sort_keys=True)),
    )
