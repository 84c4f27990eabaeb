"""Costs as rows: of every client and round, by what bytes held, of rounds, and what is used of budgets."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping
from functools import lru_cache

from edgeflock.common.sensors import SOURCES
from edgeflock.server.costs import catalogue
from edgeflock.server.costs.budget import RESOURCES, STATED
from edgeflock.server.costs.rows import Bundles, Costs, RoundRows, Row
from edgeflock.server.costs.time_line import Seconds
from edgeflock.server.journal.decisions import write_meta

_STATED = frozenset(
    column.name for column in catalogue.BY_CLIENT if column.origin is not catalogue.Origin.SERVER
)
_MEASURED = "measured "  # before the names of costs that a method was told
USED = "used_"  # before what is used of budgets, in `meta`
WHOLE = "books_whole"  # in meta: the last life has written all that it has counted
_OWN = "own_"  # before time that is drawn, in place of what is used


def write(connection: sqlite3.Connection, epoch: int, costs: Costs) -> None:
    """Write what is due inside the caller's transaction."""
    _write_used(connection, costs.spent.used, costs.spent.simulated)
    _write_late(connection, epoch, costs.pending.late)
    if costs.whole:
        write_meta(connection, **{WHOLE: "1"})
    add_seconds(connection, epoch, costs.pending.seconds)
    if costs.rows is not None:
        _write_round(connection, epoch, costs.rows)


def _write_late(connection: sqlite3.Connection, epoch: int, late: Mapping[tuple[int, int], Row]) -> None:
    """Write what was said of rounds later: it belongs to the epoch in which a round was held."""
    held = {round: _held(connection, epoch, round) for round, _ in late}
    for of in set(held.values()):
        write_rows(connection, of, {key: row for key, row in late.items() if held[key[0]] == of})


def _held(connection: sqlite3.Connection, epoch: int, round: int) -> int:
    if not epoch:
        return epoch
    statement = "SELECT max(epoch) FROM rounds WHERE epoch <= ? AND round = ? AND cohort <> '[]'"
    (found,) = connection.execute(statement, (epoch, round)).fetchone()
    return epoch if found is None else int(found)


def _write_round(connection: sqlite3.Connection, epoch: int, of: RoundRows) -> None:
    write_rows(connection, epoch, {(of.round, seat): row for seat, row in of.rows.items()})
    connection.executemany(
        "INSERT INTO bundle_bytes (epoch, round, seat, direction, kind, codec, bytes) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET bytes = excluded.bytes",
        [
            (epoch, of.round, seat, *what, size)
            for seat, sizes in of.bundles.items()
            for what, size in sizes.items()
        ],
    )


def write_rows(connection: sqlite3.Connection, epoch: int, rows: Mapping[tuple[int, int], Row]) -> None:
    """Merge columns into cost rows, by round and seat."""
    alike: dict[tuple[str, ...], list[tuple[float | int | str | None, ...]]] = {}
    for key, row in rows.items():
        alike.setdefault(tuple(row), []).append((epoch, *key, *_written(row)))
    for names, values in alike.items():
        connection.executemany(_merge(names), values)


@lru_cache(maxsize=64)
def _merge(names: tuple[str, ...]) -> str:
    marks = ", ".join("?" for _ in names)
    updates = ", ".join(f"{name} = {_later(name)}" for name in names)
    return (
        f"INSERT INTO costs (epoch, round, seat, {', '.join(names)}) VALUES (?, ?, ?, {marks}) "
        f"ON CONFLICT (epoch, round, seat) DO UPDATE SET {updates}"
    )


def _later(name: str) -> str:
    """Return what a column is after a further row: what clients state is never lowered."""
    if name not in _STATED:
        return f"excluded.{name}"
    if name == "energy_source":
        return f"coalesce(excluded.{name}, {name})"
    return f"max(coalesce(excluded.{name}, {name}), coalesce({name}, excluded.{name}))"


def _written(row: Row) -> Iterable[float | int | str | None]:
    source = row.get("energy_source")
    return row.values() if not source else {**row, "energy_source": SOURCES[int(source) - 1]}.values()


def question(columns: str, which: str = "true", by: str = "") -> str:
    """Return what is asked of the rows by client and round: of all or some, one by one or in groups."""
    return f"SELECT {columns} FROM costs WHERE {which}{f' GROUP BY {by}' if by else ''}"


def read_round(connection: sqlite3.Connection, epoch: int, round: int) -> dict[int, tuple[Row, Bundles]]:
    """Return what is written of a round's costs, by seat: the row, and the bytes by bundle."""
    names, of_round = catalogue.names(catalogue.BY_CLIENT), "epoch = ? AND round = ?"
    found: dict[int, tuple[Row, Bundles]] = {}
    for seat, *values in connection.execute(question(f"seat, {', '.join(names)}", of_round), (epoch, round)):
        row = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        if "energy_source" in row:
            row["energy_source"] = SOURCES.index(row["energy_source"]) + 1
        bundles = connection.execute(
            f"SELECT direction, kind, codec, bytes FROM bundle_bytes WHERE {of_round} AND seat = ?",
            (epoch, round, seat),
        )
        found[seat] = (row, {(way, kind, codec): size for way, kind, codec, size in bundles})
    return found


def read_stated(connection: sqlite3.Connection, epoch: int, round: int) -> dict[int, Row]:
    """Return what the budgets count of what clients state, by seat."""
    names, found = tuple(STATED.values()), dict[int, Row]()
    for seat, *values in connection.execute(
        question(f"seat, {', '.join(names)}", "epoch = ? AND round = ?"), (epoch, round)
    ):
        found[seat] = dict(zip(names, values, strict=True))
    return found


# ---------------------------------------------------------------------------------- of a round as a whole


def add_seconds(connection: sqlite3.Connection, epoch: int, rounds: Seconds) -> None:
    """Add to what is written of rounds."""
    connection.executemany(
        "INSERT INTO round_costs (epoch, round, name, value) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (epoch, round, name) DO UPDATE SET value = value + excluded.value",
        [(epoch, round, name, value) for round, values in rounds.items() for name, value in values.items()],
    )


def write_values(connection: sqlite3.Connection, epoch: int, round: int, values: Mapping[str, float]) -> None:
    """Write what is no sum; what is not a number is not known."""
    connection.executemany(
        "INSERT OR REPLACE INTO round_costs (epoch, round, name, value) VALUES (?, ?, ?, ?)",
        [(epoch, round, name, value) for name, value in values.items() if not math.isnan(value)],
    )


def write_measured(
    connection: sqlite3.Connection, epoch: int, round: int, measured: Mapping[str, float]
) -> None:
    """Write what a method may have steered by, so that the round can be computed again."""
    named = {f"{_MEASURED}{name}": value for name, value in measured.items()}
    write_values(connection, epoch, round, named)


def read_measured(connection: sqlite3.Connection, epoch: int, round: int) -> dict[str, float]:
    """Return what the method was told when a round was committed that was held in this epoch."""
    rows = connection.execute(
        "SELECT name, value FROM round_costs WHERE epoch = ? AND round = ? AND name LIKE ?",
        (epoch, round, f"{_MEASURED}%"),
    )
    return {name.removeprefix(_MEASURED): value for name, value in rows}


# ---------------------------------------------------------------------------------- of budgets


def _write_used(connection: sqlite3.Connection, used: Mapping[str, float], own: Mapping[str, float]) -> None:
    """Write what the run has used so far, if anything is said of it; `own` is the method's own count."""
    named = {f"{USED}{name}": repr(value) for name, value in used.items()}
    named |= {f"{_OWN}{name}": repr(value) for name, value in own.items()}
    if named:
        write_meta(connection, **named)


def read_used(meta: Mapping[str, str]) -> dict[str, float]:
    """Return what is used of the budgets by the rows of `meta`, as it counts for them."""
    counts = {name: meta.get(f"{_OWN}{name}", meta.get(f"{USED}{name}")) for name in RESOURCES}
    return {name: float(amount) for name, amount in counts.items() if amount is not None}
