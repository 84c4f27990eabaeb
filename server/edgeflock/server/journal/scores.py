"""Scores as rows: of the models that the server tests, of clients' own models, and all of a name together."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from edgeflock.common.scores import LOCAL, POOLED, Metric, Score, Summary, measures_from_text
from edgeflock.server.core.effects import TestModel

UNTESTED = "untested "
MEASURES = "measures"


def write_score(connection: sqlite3.Connection, epoch: int, round: int, model: str, found: Summary) -> None:
    """Write an evaluation inside the caller's transaction."""
    values = {"epoch": epoch, "round": round, "model": model, **asdict(found)}
    values["others"] = json.dumps(found.others)
    connection.execute(
        f"INSERT OR REPLACE INTO evaluations ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
        tuple(values.values()),
    )


def write_client_scores(
    connection: sqlite3.Connection, epoch: int, round: int, scores: Mapping[int, Mapping[str, Score]]
) -> None:
    """Write the scores of clients' own models, by seat and name."""
    connection.executemany(
        "INSERT INTO client_scores (epoch, round, seat, model, samples, value, loss, others) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (epoch, round, seat, name, score.samples, score.value, score.loss, json.dumps(score.others))
            for seat, mine in scores.items()
            for name, score in mine.items()
        ],
    )


def read_newest(connection: sqlite3.Connection, epoch: int) -> dict[str, int]:
    """Return of each model that the server tests the newest round that has a score."""
    statement = (
        "SELECT model, max(round) FROM evaluations WHERE epoch = ? AND model NOT IN (?, ?) GROUP BY model"
    )
    return dict(connection.execute(statement, (epoch, LOCAL, POOLED)))


# In `meta`: tests that have begun and have no score, each by its round and what it tests.


def write_untested(connection: sqlite3.Connection, round: int, models: Iterable[str]) -> None:
    connection.execute("INSERT OR IGNORE INTO meta (name, value) VALUES (?, '1')", (_named(round, models),))


def remove_untested(connection: sqlite3.Connection, round: int, models: Iterable[str]) -> None:
    """These are known; a life with other options may have tested more or less than the one that began."""
    known = {*models}
    begun = connection.execute(
        "SELECT name FROM meta WHERE name LIKE ?", (f"{UNTESTED}{round} %",)
    ).fetchall()
    for test in read_untested(name for (name,) in begun):
        if left := tuple(name for name in test.models if name not in known):
            write_untested(connection, round, left)
        if left != test.models:
            connection.execute("DELETE FROM meta WHERE name = ?", (_named(round, test.models),))


def read_untested(meta: Iterable[str]) -> tuple[TestModel, ...]:
    """Return them by the names in `meta`, the oldest first."""
    named = (name.removeprefix(UNTESTED).split(" ", 1) for name in meta if name.startswith(UNTESTED))
    found = sorted((int(round), tuple(models.split(","))) for round, models in named)
    return tuple(TestModel(*one) for one in found)


def _named(round: int, models: Iterable[str]) -> str:
    return f"{UNTESTED}{round} {','.join(models)}"


def read_score(connection: sqlite3.Connection, epoch: int, round: int) -> Summary | None:
    """Return how the global model of that round did, if the journal knows it."""
    statement = f"SELECT {COLUMNS} FROM evaluations WHERE epoch = ? AND round = ? AND model = 'global'"
    row = connection.execute(statement, (epoch, round)).fetchone()
    return None if row is None else summary_of(*row)


COLUMNS = "value, loss, samples, members, deviation, worst_tenth, others"


def summary_of(value: float, loss: float | None, *more: Any) -> Summary:
    """Return the evaluation that the columns of a row make."""
    samples, members, deviation, worst_tenth, others = more
    loss = math.nan if loss is None else loss
    return Summary(value, loss, samples, members, deviation, worst_tenth, json.loads(others))


def read_best(connection: sqlite3.Connection) -> tuple[float, int] | None:
    """Return value and round of the best evaluation of a round that the run stands on.

    What an epoch has said of rounds beyond those that a later one goes on from is no more.
    """
    order = "DESC" if read_measures(connection)[0].higher else "ASC"
    row = connection.execute(
        "WITH bases AS (SELECT epoch, min(round) AS base FROM rounds WHERE epoch > 0 GROUP BY epoch) "
        "SELECT value, round FROM evaluations AS one WHERE model = 'global' AND NOT EXISTS "
        "(SELECT 1 FROM bases WHERE bases.epoch > one.epoch AND bases.base < one.round) "
        f"ORDER BY value {order}, round LIMIT 1"
    ).fetchone()
    return None if row is None else (row[0], row[1])


def count_since(connection: sqlite3.Connection, round: int) -> int:
    """Return how many rounds after one, that the run stands on, have a test of the global model."""
    (found,) = connection.execute(
        "WITH bases AS (SELECT epoch, min(round) AS base FROM rounds WHERE epoch > 0 GROUP BY epoch) "
        "SELECT count(DISTINCT round) FROM evaluations AS one WHERE model = 'global' AND round > ? "
        "AND NOT EXISTS (SELECT 1 FROM bases WHERE bases.epoch > one.epoch AND bases.base < one.round)",
        (round,),
    ).fetchone()
    return int(found)


# In `meta`: by what models are judged.


def read_measures(connection: sqlite3.Connection) -> tuple[Metric, ...]:
    """Return the figure of the run, its task's other metrics, and the loss."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (MEASURES,)).fetchone()
    return measures_from_text(row[0] if row else None)
