"""What the journal holds of bad updates: one row for each client that has sent any."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from edgeflock.server.core.decisions import Conduct

_COLUMNS = "idx, refused, in_row, until, reason"


def write(connection: sqlite3.Connection, conduct: Iterable[Conduct]) -> None:
    """Write it in the caller's transaction, over what was there of the same clients."""
    changes = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", ")[1:])
    connection.executemany(
        f"INSERT INTO conduct ({_COLUMNS}) VALUES (?, ?, ?, ?, ?) ON CONFLICT (idx) DO UPDATE SET {changes}",
        [(one.seat, one.refused, one.row, one.until, one.reason) for one in conduct],
    )


def release(connection: sqlite3.Connection, seat: int) -> None:
    """End a client's quarantine; what it has sent stays counted."""
    connection.execute("UPDATE conduct SET in_row = 0, until = 0 WHERE idx = ?", (seat,))


def read(connection: sqlite3.Connection) -> tuple[Conduct, ...]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM conduct ORDER BY idx")
    return tuple(Conduct(*row) for row in rows)
