"""Scores of clients' own models in the journal: one row each, and one evaluation for all of a name."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import structlog

from edgeflock.common.scores import Score, Summary, summarise
from edgeflock.server.core.decisions import Outcome, Verdict
from edgeflock.server.engine.scoring import told, write_score

log = structlog.get_logger()


@dataclass(frozen=True)
class ClientScores:
    """The scores of the counted members of one round, by seat and name."""

    by_index: Mapping[int, Mapping[str, Score]]

    @classmethod
    def of(cls, scores: Mapping[int, Mapping[str, Score]], outcomes: Iterable[Outcome]) -> ClientScores:
        """Keep those of the members whose update counts."""
        counted = [item.seat for item in outcomes if item.verdict is Verdict.COUNTED]
        return cls({seat: scores[seat] for seat in counted if scores.get(seat)})

    def say(self, round: int) -> None:
        """Write them into the log, once they are durable."""
        for name, found in self.summaries().items():
            log.info("evaluated", **told(round, name, found))

    def summaries(self) -> dict[str, Summary]:
        names = sorted({name for mine in self.by_index.values() for name in mine})
        groups = {name: [mine[name] for mine in self.by_index.values() if name in mine] for name in names}
        return {name: summarise(group) for name, group in groups.items()}

    def write(self, connection: sqlite3.Connection, epoch: int, round: int) -> None:
        """Write them inside the transaction that commits the round."""
        connection.executemany(
            "INSERT INTO client_scores (epoch, round, idx, model, samples, accuracy, loss) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (epoch, round, seat, name, score.samples, score.accuracy, score.loss)
                for seat, mine in self.by_index.items()
                for name, score in mine.items()
            ],
        )
        for name, found in self.summaries().items():
            write_score(connection, epoch, round, name, found)
