"""One round as its time line: the server's seconds, and each member's fetch, train, deliver and wait."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from edgeflock.server.files import run_dir as rundir
from edgeflock.server.journal.schema import read_only
from edgeflock.server.web.curves import finite
from edgeflock.server.web.story import ROUNDS, shown
from edgeflock.server.web.tail import Event

_PHASES = ("fetch_s", "train_s", "deliver_s", "wait_s")
_MOST_MEMBERS = 1000


def read_round(run_dir: Path, round: int) -> dict[str, Any] | None:
    """Return the newest version of a round, or None if there is none. Raises sqlite3.Error."""
    with contextlib.closing(read_only(run_dir / rundir.JOURNAL)) as connection:
        query = "SELECT max(epoch) FROM rounds WHERE round = ? AND cohort <> '[]'"
        epoch = connection.execute(query, (round,)).fetchone()[0]
        if epoch is None:
            return None
        query = "SELECT name, value FROM round_costs WHERE epoch = ? AND round = ?"
        costs = dict(connection.execute(query, (epoch, round)))
        server = {name: finite(value) for name, value in costs.items() if name.endswith("_s")}
        return {
            "round": round,
            "epoch": epoch,
            "server": {name: value for name, value in server.items() if " " not in name},
            "members": _members(connection, epoch, round),
        }


def _members(connection: sqlite3.Connection, epoch: int, round: int) -> list[dict[str, Any]]:
    connection.row_factory = sqlite3.Row
    rows = connection.execute(
        "SELECT seats.client_id AS id, outcomes.verdict, costs.* FROM outcomes "
        "JOIN seats ON seats.idx = outcomes.idx LEFT JOIN costs ON costs.epoch = outcomes.epoch "
        "AND costs.round = outcomes.round AND costs.idx = outcomes.idx "
        "WHERE outcomes.epoch = ? AND outcomes.round = ? ORDER BY outcomes.idx LIMIT ?",
        (epoch, round, _MOST_MEMBERS),
    )
    return [_member(row) for row in rows]


def _member(row: sqlite3.Row) -> dict[str, Any]:
    told: dict[str, Any] = {"id": row["id"], "verdict": row["verdict"]}
    for name in (*_PHASES, "cpu_s", "peak_rss_bytes", "bytes_down", "bytes_up", "steps", "samples"):
        if name in row.keys() and row[name] is not None:  # noqa: SIM118 - a Row iterates over its values
            told[name] = finite(row[name])
    return told


def read_events(run_dir: Path, before: int, limit: int, *, rounds: bool) -> list[dict[str, Any]]:
    """Return the events just before a cursor, oldest first, with or without those of every round.

    Raises sqlite3.Error.
    """
    without = () if rounds else ROUNDS
    with contextlib.closing(read_only(run_dir / rundir.JOURNAL)) as connection:
        marks = ", ".join("?" for _ in without)
        query = (
            "SELECT cursor, at, name, fields FROM events "
            f"WHERE cursor < ? AND name NOT IN ({marks}) ORDER BY cursor DESC LIMIT ?"
        )
        rows = connection.execute(query, (before, *without, limit)).fetchall()
    return [shown(Event(cursor, at, name, json.loads(text))) for cursor, at, name, text in reversed(rows)]
