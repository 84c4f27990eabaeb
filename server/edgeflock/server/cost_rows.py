"""The ledger's tables: costs and bytes of every client and round, and what is added to a round's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from edgeflock.common.sensors import SOURCES

Row = Mapping[str, float | int | None]  # columns of `costs`; the source of its joules as a number, from 1
Bundles = Mapping[tuple[str, str, str], int]  # bytes by direction, kind and codec

# What a header says: an update that was received is not told again.
STATED = (
    "samples",
    "steps",
    "train_s",
    "fetch_s",
    "cpu_s",
    "peak_rss_bytes",
    "samples_done",
    "peak_gpu_bytes",
    "temperature_c",
    "throttled",
    "energy_j",
    "energy_source",
)


def write_cost(connection: sqlite3.Connection, epoch: int, round: int, index: int, row: Row) -> None:
    """Merge columns into the cost row of one client and round."""
    names = list(row)
    marks = ", ".join("?" for _ in names)
    updates = ", ".join(f"{name} = excluded.{name}" for name in names)
    connection.execute(
        f"INSERT INTO costs (epoch, round, idx, {', '.join(names)}) VALUES (?, ?, ?, {marks}) "
        f"ON CONFLICT (epoch, round, idx) DO UPDATE SET {updates}",
        (epoch, round, index, *map(_written, row.items())),
    )


def _written(column: tuple[str, float | int | None]) -> float | int | str | None:
    name, value = column
    return SOURCES[int(value) - 1] if name == "energy_source" and value else value


def write_bundles(
    connection: sqlite3.Connection,
    epoch: int,
    round: int,
    index: int,
    bundles: Bundles,
) -> None:
    """Write the bytes of one client and round, by direction, kind and codec."""
    connection.executemany(
        "INSERT OR REPLACE INTO bundle_bytes (epoch, round, idx, direction, kind, codec, bytes) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(epoch, round, index, *what, size) for what, size in bundles.items()],
    )


def read_costs(
    connection: sqlite3.Connection, epoch: int, round: int
) -> dict[int, tuple[dict[str, float | int | None], dict[tuple[str, str, str], int]]]:
    """Return what is written of a round's costs, by seat: the row, and the bytes by bundle."""
    cursor = connection.execute("SELECT * FROM costs WHERE epoch = ? AND round = ?", (epoch, round))
    names = [column[0] for column in cursor.description]
    found = {}
    for values in cursor.fetchall():
        row = dict(zip(names, values, strict=True))
        source = row["energy_source"]
        row["energy_source"] = None if source is None else SOURCES.index(source) + 1
        bundles = connection.execute(
            "SELECT direction, kind, codec, bytes FROM bundle_bytes "
            "WHERE epoch = ? AND round = ? AND idx = ?",
            (epoch, round, row["idx"]),
        )
        known = {name: value for name, value in row.items() if value is not None}
        found[row["idx"]] = (known, {(way, kind, codec): size for way, kind, codec, size in bundles})
    return found


def add_round_costs(
    connection: sqlite3.Connection, epoch: int, round: int, values: Mapping[str, float]
) -> None:
    """Add to what is written of a round."""
    connection.executemany(
        "INSERT INTO round_costs (epoch, round, name, value) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (epoch, round, name) DO UPDATE SET value = value + excluded.value",
        [(epoch, round, name, value) for name, value in values.items()],
    )
