"""The books of a round: what it cost, the one line that says everything of it, and the rows of its commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from edgeflock.server import records
from edgeflock.server.checkpoint import Saved
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

    def write(self, connection: sqlite3.Connection, epoch: int) -> None:
        """Make the round count, and open the next."""
        round, following = self.effect.round, self.effect.next
        records.write_commit(connection, epoch, round, self.saved.model.digest, self.saved.state_digest)
        records.write_outcomes(connection, epoch, round, self.effect.outcomes)
        records.write_round_costs(connection, epoch, round, self.values)
        for index, row in self.rows.items():
            records.write_cost(connection, epoch, round, index, row)
        if following is not None and not self.stop:
            records.write(connection, epoch, following)
        write_event(connection, "round_committed", self.line)


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
