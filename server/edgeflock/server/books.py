"""The books of a round: what it cost, the one line that says everything of it, and the rows of its commit."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from edgeflock.server import records
from edgeflock.server.checkpoint import Saved
from edgeflock.server.client_scores import ClientScores
from edgeflock.server.events import CommitRound, Verdict
from edgeflock.server.fold import SpooledUpdate
from edgeflock.server.journal import write_event
from edgeflock.server.records import Row
from edgeflock.server.rounds import RoundMachine
from edgeflock.server.sessions import Sessions


@dataclass(frozen=True)
class Commit:
    """All that the transaction of a round writes."""

    effect: CommitRound
    saved: Saved
    values: Mapping[str, float]  # metrics of the method and seconds of the server
    rows: Mapping[int, Row]  # costs by roster index
    line: dict[str, object]
    stop: str  # why the next round is not opened after all
    closing: bool
    measured: Mapping[str, float]  # what the method was told
    used: Mapping[str, float]  # of the budgets, over all lives
    scores: ClientScores

    def write(self, connection: sqlite3.Connection, epoch: int) -> None:
        """Make the round count, and open the next."""
        round, following = self.effect.round, self.effect.next
        records.write_commit(connection, epoch, round, self.saved.model.digest, self.saved.state_digest)
        records.write_outcomes(connection, epoch, round, self.effect.outcomes)
        records.write_round_costs(connection, epoch, round, self.values)
        records.write_measured(connection, epoch, round, self.measured)
        records.write_used(connection, self.used)
        for index, row in self.rows.items():
            records.write_cost(connection, epoch, round, index, row)
        self.scores.write(connection, epoch, round)
        if following is not None and not self.stop:
            records.write(connection, epoch, following)
        write_event(connection, self.name, self.line)

    @property
    def name(self) -> str:
        return "closing_committed" if self.closing else "round_committed"


class LateCosts:
    """What clients report of rounds that are over, until it is written; filled on the event loop."""

    def __init__(self) -> None:
        self._rows: deque[tuple[int, int, Row]] = deque()

    def add(self, round: int, index: int, row: Row) -> None:
        self._rows.append((round, index, row))

    def write(self, connection: sqlite3.Connection, epoch: int) -> None:
        """Empty this in the journal's thread."""
        while self._rows:
            round, index, row = self._rows.popleft()
            records.write_cost(connection, epoch, round, index, row)


def cost_rows(
    machine: RoundMachine,
    sessions: Sessions,
    updates: Mapping[int, SpooledUpdate],
    stated: Mapping[int, Mapping[str, float]],
) -> dict[int, Row]:
    """Close the round's books: what the server counted, and what the clients stated in their headers."""
    rows: dict[int, Row] = {}
    for index in machine.tally.cohort:
        session = sessions.by_id(machine.seats.names[index])
        counted = session.take_bytes() if session is not None else {"bytes_down": 0, "bytes_up": 0}
        update = updates.get(index)
        resent = max(0, counted["bytes_up"] - update.package.size_bytes) if update is not None else 0
        rows[index] = {**counted, "resent_bytes": resent, **stated.get(index, {})}
    return rows


def canonical_line(
    machine: RoundMachine, effect: CommitRound, values: Mapping[str, float], rows: Mapping[int, Row]
) -> dict[str, object]:
    """The one line that says everything of a round."""
    missed = [item for item in effect.outcomes if item.verdict is not Verdict.COUNTED]
    seconds = sum(value for name, value in values.items() if name.endswith("_s"))
    return {
        "round": effect.round,
        "counted": len(effect.outcomes) - len(missed),
        "not_counted": {machine.seats.names[item.index]: str(item.verdict) for item in missed},
        **values,
        "seconds": round(seconds, 6),
        "bytes_down": sum(int(row["bytes_down"] or 0) for row in rows.values()),
        "bytes_up": sum(int(row["bytes_up"] or 0) for row in rows.values()),
    }
