"""The books of a round: what it cost, the one line that says everything of it, and the rows of its commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from edgeflock.server.core.decisions import Verdict
from edgeflock.server.core.effects import CommitRound
from edgeflock.server.core.run import RunMachine
from edgeflock.server.costs.ledger import Pending, RoundBooks
from edgeflock.server.costs.time_line import OF_A_ROUND
from edgeflock.server.engine.client_scores import ClientScores
from edgeflock.server.files.checkpoints import Saved
from edgeflock.server.journal import conduct as conduct_rows
from edgeflock.server.journal import decisions as records
from edgeflock.server.journal.costs import Row
from edgeflock.server.journal.journal import write_event


@dataclass(frozen=True)
class Commit:
    """All that the transaction of a round writes."""

    effect: CommitRound
    saved: Saved
    values: Mapping[str, float]  # metrics of the method, peaks of the server
    books: RoundBooks
    pending: Pending
    line: dict[str, object]
    stop: str  # why the next round is not opened after all
    closing: bool
    measured: Mapping[str, float]  # what the method was told
    used: Mapping[str, float]  # of the budgets, over all lives
    own: Mapping[str, float]  # the same, where the method itself counts it
    scores: ClientScores

    def write(self, connection: sqlite3.Connection, epoch: int) -> None:
        """Make the round count, and open the next."""
        round, following = self.effect.round, self.effect.next
        records.write_commit(connection, epoch, round, self.saved.model.digest, self.saved.state_digest)
        records.write_outcomes(connection, epoch, round, self.effect.outcomes)
        records.write_round_costs(connection, epoch, round, self.values)
        records.write_measured(connection, epoch, round, self.measured)
        records.write_used(connection, self.used, self.own)
        self.books.write(connection, epoch)
        self.pending.write(connection, epoch)
        self.scores.write(connection, epoch, round)
        if following is not None and not self.stop:
            records.write(connection, epoch, following)
        conduct_rows.write(connection, self.effect.conduct)
        for word in self.effect.announcements:
            write_event(connection, word.name, word.fields)
        write_event(connection, self.name, self.line)

    @property
    def name(self) -> str:
        return "closing_committed" if self.closing else "round_committed"


def canonical_line(
    machine: RunMachine,
    effect: CommitRound,
    metrics: Mapping[str, float],
    line: Mapping[str, float],
    rows: Mapping[int, Row],
) -> dict[str, object]:
    """The one line that says everything of a round."""
    missed = [item for item in effect.outcomes if item.verdict is not Verdict.COUNTED]
    seconds = sum(value for name, value in line.items() if name in OF_A_ROUND)
    return {
        "round": effect.round,
        "counted": len(effect.outcomes) - len(missed),
        "not_counted": {machine.roster.names[item.seat]: str(item.verdict) for item in missed},
        **{name: value for name, value in metrics.items() if not name.startswith("server_")},
        **{name: round(value, 6) for name, value in line.items()},
        "seconds": round(seconds, 6),
        "bytes_down": sum(int(row["bytes_down"] or 0) for row in rows.values()),
        "bytes_up": sum(int(row["bytes_up"] or 0) for row in rows.values()),
        "flops": sum(row.get("flops") or 0 for row in rows.values()),
    }
