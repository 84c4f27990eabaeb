"""The history of a run, finished or going on, from its journal: what compare, report and export reckon with.

Columns and names that this edgeflock does not know are read along: the ledger may grow.
Costs are totals, made by SQLite: a journal of 10,000 rounds of 200 clients has two million rows of them.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from edgeflock.common.errors import BadData, MissingData
from edgeflock.lab.history.values import (
    COMPLETED,
    GLOBAL,
    TIME_LINE,
    Client,
    Ending,
    Evaluation,
    History,
    Numbers,
    Point,
    RoundHistory,
    is_highest,
)
from edgeflock.server.config import ServerConfig
from edgeflock.server.files.run_toml import from_toml
from edgeflock.server.journal.feed import JOURNAL, Event, fields_of, require_run
from edgeflock.server.journal.schema import SCHEMA_VERSION, check_seals, read_only

__all__ = [
    "COMPLETED",
    "GLOBAL",
    "TIME_LINE",
    "Client",
    "Ending",
    "Evaluation",
    "History",
    "Numbers",
    "Point",
    "RoundHistory",
    "client_rows",
    "opened",
    "read",
]

_KEYS = ("epoch", "round", "idx")


def read(run_dir: Path) -> History:
    """Read a run. Raises MissingData if there is none, BadData with a sentence if it cannot be read."""
    with opened(run_dir) as (history, _):
        return history


@contextlib.contextmanager
def opened(run_dir: Path) -> Iterator[tuple[History, sqlite3.Connection]]:
    """Read a run, and hand out the journal as it was at that moment; raises what `read` does."""
    path = require_run(run_dir) / JOURNAL
    if not (run_dir / "run.toml").is_file():
        raise MissingData(f"{run_dir} has no run.toml: it is not known what was run")
    config = from_toml(run_dir / "run.toml")
    try:
        with contextlib.closing(_snapshot(path)) as connection:
            check_seals(connection)
            yield _history(run_dir, config, connection), connection
    except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
        raise BadData(f"{path} cannot be read as a journal: {error}") from None


def client_rows(run_dir: Path, table: str = "costs") -> Iterator[dict[str, Any]]:
    """Yield the rows of `costs` or `client_scores` of all rounds, with the client's name, for exports."""
    path = require_run(run_dir) / JOURNAL
    try:
        with contextlib.closing(_snapshot(path)) as connection:
            check_seals(connection)
            for row in connection.execute(
                f"SELECT client_id AS client, {table}.* FROM {table} JOIN seats USING (idx) "
                "ORDER BY epoch, round, idx"
            ):
                yield dict(row)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise BadData(f"{path} cannot be read as a journal: {error}") from None


def _snapshot(path: Path) -> sqlite3.Connection:
    """Open the journal as it is now, whatever its server writes meanwhile."""
    connection = read_only(path)
    connection.row_factory = sqlite3.Row
    connection.execute("BEGIN")
    return connection


@dataclass
class _Books:
    """Rows of the tables by (epoch, round), and the totals by client."""

    rounds: list[dict[str, Any]]
    values: dict[tuple[int, int], dict[str, float]] = field(default_factory=dict)
    costs: dict[tuple[int, int], Numbers] = field(default_factory=dict)
    verdicts: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    evaluations: dict[tuple[int, int], dict[str, Evaluation]] = field(default_factory=dict)


def _history(run_dir: Path, config: ServerConfig, connection: sqlite3.Connection) -> History:
    meta = {row["name"]: row["value"] for row in _rows(connection, "meta")}
    events = tuple(
        Event(row["cursor"], row["at"], row["name"], fields_of(row["fields"]))
        for row in _rows(connection, "events", "ORDER BY cursor")
    )
    every = _rounds(_books(connection))
    standing = _standing(every, int(meta.get("epoch", "0")))
    ended = "ended_kind" in meta
    return History(
        run_dir=run_dir,
        config=config,
        run_id=meta.get("run_id", ""),
        meta=meta,
        clients=_clients(connection, events),
        rounds=tuple(standing.values()),
        others=tuple(
            round
            for round in every
            if (round.cohort or not round.opened) and (round.epoch, round.number) not in standing
        ),
        events=events,
        ending=Ending(meta["ended_kind"], meta.get("ended_reason", "")) if ended else None,
    )


def _books(connection: sqlite3.Connection) -> _Books:
    books = _Books(_rows(connection, "rounds", "ORDER BY epoch, round"))
    for row in _rows(connection, "round_costs"):
        books.values.setdefault(_key(row), {})[row["name"]] = row["value"]
    for row in _totals(connection, "epoch, round"):
        books.costs[_key(row)] = _numbers(row)
    statement = "SELECT epoch, round, verdict, count(*) AS times FROM outcomes GROUP BY epoch, round, verdict"
    for row in _ask(connection, "outcomes", statement):
        books.verdicts.setdefault(_key(row), {})[row["verdict"]] = row["times"]
    for row in _rows(connection, "evaluations"):
        books.evaluations.setdefault(_key(row), {})[row["model"]] = _evaluation(row)
    return books


def _rounds(books: _Books) -> list[RoundHistory]:
    """Return every round with what the run had spent by its end, what was given up included."""
    found, spent = [], dict[str, float]()
    for row in sorted((*books.rounds, *_unopened(books)), key=_key):
        key = _key(row)
        members = {*json.loads(row["cohort"]), *json.loads(row.get("extended") or "[]")}
        round = RoundHistory(
            epoch=row["epoch"],
            number=row["round"],
            closing=row.get("closing") or "",
            committed=bool(row["committed"]),
            cohort=tuple(sorted(members)),
            verdicts=books.verdicts.get(key, {}),
            values=books.values.get(key, {}),
            costs=books.costs.get(key, {}),
            evaluations=books.evaluations.get(key, {}),
            spent={},
            opened=row.get("opened", True),
        )
        spent = _added(spent, round)
        found.append(replace(round, spent=spent))
    return found


def _unopened(books: _Books) -> list[dict[str, Any]]:
    """Return a row for every round that took time and was not opened: a budget was used up before."""
    known = {_key(row) for row in books.rounds}
    missing = [key for key in books.values if key not in known]
    return [
        {"epoch": epoch, "round": number, "cohort": "[]", "committed": 0, "opened": False}
        for epoch, number in missing
    ]


def _added(spent: Numbers, round: RoundHistory) -> dict[str, float]:
    costs = {name: cost for name, cost in round.costs.items() if not is_highest(name)}
    costs |= {"seconds": round.seconds, "bytes": round.bytes}
    if round.energy_j is not None:
        costs["energy_j"] = round.energy_j
    return {**spent, **{name: spent.get(name, 0.0) + cost for name, cost in costs.items()}}


def _standing(rounds: Sequence[RoundHistory], epoch: int) -> dict[tuple[int, int], RoundHistory]:
    """Return the rounds that the run stands on, those of an epoch that was gone back on left out.

    An epoch after the first begins with a row for the round that it goes on from, which may be tested again.
    """
    bases: dict[int, RoundHistory] = {}
    for round in rounds:
        if 0 < round.epoch <= epoch:
            bases.setdefault(round.epoch, round)
    found: dict[tuple[int, int], RoundHistory] = {}
    for round in rounds:
        later = [base.number for of, base in bases.items() if of > round.epoch]
        begins = bases.get(round.epoch) is round or not round.number
        if round.committed and not begins and round.number <= min(later, default=round.number):
            again = {
                name: score
                for base in bases.values()
                if base.number == round.number
                for name, score in base.evaluations.items()
            }
            found[round.epoch, round.number] = replace(round, evaluations={**round.evaluations, **again})
    return found


def _clients(connection: sqlite3.Connection, events: Sequence[Event]) -> tuple[Client, ...]:
    costs = {row["idx"]: _numbers(row) for row in _totals(connection, "idx")}
    verdicts: dict[int, dict[str, int]] = {}
    statement = "SELECT idx, verdict, count(*) AS times FROM outcomes GROUP BY idx, verdict"
    for row in _ask(connection, "outcomes", statement):
        verdicts.setdefault(row["idx"], {})[row["verdict"]] = row["times"]
    scores: dict[int, dict[str, Evaluation]] = {}
    for row in _ask(connection, "client_scores", _LAST_SCORES):
        scores.setdefault(row["idx"], {})[row["model"]] = _evaluation(row)
    joined, ready = _last(events, "client_joined"), _last(events, "client_ready")
    return tuple(
        Client(
            index=row["idx"],
            name=row["client_id"],
            samples=row["samples"],
            costs=costs.get(row["idx"], {}),
            verdicts=verdicts.get(row["idx"], {}),
            scores=scores.get(row["idx"], {}),
            device=joined.get(row["client_id"], {}),
            classes=tuple(ready.get(row["client_id"], {}).get("classes", ())),
        )
        for row in _rows(connection, "seats", "ORDER BY idx")
    )


def _last(events: Sequence[Event], name: str) -> dict[str, dict[str, Any]]:
    """Return what the last event of that name says of each client."""
    found = [event for event in events if event.name == name]
    return {
        str(event.fields.get("client")): {
            key: value for key, value in event.fields.items() if key != "client"
        }
        for event in found
    }


# ---------------------------------------------------------------------------------------------- SQL

_LAST_SCORES = (  # SQLite takes the bare columns from the row that holds the maximum
    "SELECT idx, model, samples, accuracy, loss, max(epoch * 1000000000 + round) FROM client_scores "
    "GROUP BY idx, model"
)


def _totals(connection: sqlite3.Connection, by: str) -> list[dict[str, Any]]:
    """Return the sums of all numbers in `costs`, whatever columns it has; of what is no sum the largest."""
    known = connection.execute("PRAGMA table_info(costs)").fetchall()
    numbers = [
        row["name"] for row in known if row["type"] in ("INTEGER", "REAL") and row["name"] not in _KEYS
    ]
    sums = [f'{"max" if is_highest(name) else "sum"}("{name}") AS "{name}"' for name in numbers]
    return _ask(connection, "costs", f"SELECT {', '.join([by, *sums])} FROM costs GROUP BY {by}")


def _rows(connection: sqlite3.Connection, table: str, order: str = "") -> list[dict[str, Any]]:
    return _ask(connection, table, f"SELECT * FROM {table} {order}")


def _ask(connection: sqlite3.Connection, table: str, statement: str) -> list[dict[str, Any]]:
    """Return the rows that are asked of a table, none if an older edgeflock had no such table."""
    if _has(connection, table):
        return [dict(row) for row in connection.execute(statement)]
    if connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION:
        raise sqlite3.DatabaseError(f"it has no table {table}")
    return []


def _has(connection: sqlite3.Connection, table: str) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
    return found.fetchone() is not None


def _key(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["epoch"], row["round"]


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    found = {name: value for name, value in row.items() if name not in _KEYS and value is not None}
    if endless := [name for name, value in found.items() if not math.isfinite(value)]:
        raise ValueError(f"{endless[0]} in it is no number")
    return found


def _evaluation(row: Mapping[str, Any]) -> Evaluation:
    names = (entry.name for entry in fields(Evaluation))
    return Evaluation(**{name: row[name] for name in names if name in row})
