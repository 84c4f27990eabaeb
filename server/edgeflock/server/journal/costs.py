"""The ledger's tables: costs and bytes of every client and round, and what is added to a round's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from functools import lru_cache

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


def write_costs(connection: sqlite3.Connection, epoch: int, rows: Mapping[tuple[int, int], Row]) -> None:
    """Merge columns into cost rows, by round and seat."""
    alike: dict[tuple[str, ...], list[tuple[float | int | str | None, ...]]] = {}
    for key, row in rows.items():
        alike.setdefault(tuple(row), []).append((epoch, *key, *_written(row)))
    for names, values in alike.items():
        connection.executemany(_merge(names), values)


@lru_cache(maxsize=64)
def _merge(names: tuple[str, ...]) -> str:
    marks = ", ".join("?" for _ in names)
    updates = ", ".join(f"{name} = excluded.{name}" for name in names)
    return (
        f"INSERT INTO costs (epoch, round, idx, {', '.join(names)}) VALUES (?, ?, ?, {marks}) "
        f"ON CONFLICT (epoch, round, idx) DO UPDATE SET {updates}"
    )


def _written(row: Row) -> Iterable[float | int | str | None]:
    source = row.get("energy_source")
    return row.values() if not source else {**row, "energy_source": SOURCES[int(source) - 1]}.values()


def write_bundles(
    connection: sqlite3.Connection, epoch: int, round: int, bundles: Mapping[int, Bundles]
) -> None:
    """Write the bytes of a round, by seat, and by direction, kind and codec."""
    connection.executemany(
        "INSERT INTO bundle_bytes (epoch, round, idx, direction, kind, codec, bytes) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET bytes = excluded.bytes",
        [
            (epoch, round, seat, *what, size)
            for seat, sizes in bundles.items()
            for what, size in sizes.items()
        ],
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
    connection: sqlite3.Connection, epoch: int, rounds: Mapping[int, Mapping[str, float]]
) -> None:
    """Add to what is written of rounds."""
    connection.executemany(
        "INSERT INTO round_costs (epoch, round, name, value) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (epoch, round, name) DO UPDATE SET value = value + excluded.value",
        [(epoch, round, name, value) for round, values in rounds.items() for name, value in values.items()],
    )
