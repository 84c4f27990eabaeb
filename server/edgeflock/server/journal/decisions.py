"""The round machine's records as journal rows, and back: the only place that knows both."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edgeflock.server.core.decisions import (
    Conduct,
    Ended,
    EndingKind,
    Outcome,
    Record,
    Released,
    RoundClosed,
    RoundExtended,
    RoundOpened,
    Seated,
    Verdict,
)
from edgeflock.server.costs.budget import RESOURCES
from edgeflock.server.journal import conduct as conduct_rows

_MEASURED = "measured "  # before the names of costs that a method was told
_USED = "used_"
_OWN = "own_"  # before what the method itself counts, in place of what is used


@dataclass
class Story:
    """What a journal holds of a run, as a resuming server needs it."""

    meta: dict[str, str] = field(default_factory=dict)
    seats: tuple[tuple[int, str], ...] = ()
    samples: dict[int, int] = field(default_factory=dict)
    conduct: tuple[Conduct, ...] = ()  # of clients with bad updates
    epoch: int = 0
    committed: int = 0
    open_round: RoundOpened | None = None
    added: tuple[int, ...] | None = None  # by an extension of it; None: there was none
    closed: tuple[int, ...] | None = None
    over: str = ""  # the closing round is committed, too: why training is over
    ended: Ended | None = None
    finished: bool = False  # it ended and does not go on: clients may still have to hear it

    @property
    def used(self) -> dict[str, float]:
        """What the lives before have used, by resource."""
        names = [name for name in self.meta if name.startswith(_USED)]
        return {name.removeprefix(_USED): float(self.meta[name]) for name in names}

    @property
    def limit(self) -> str:
        """The budget that is used up: no round follows the one that is open."""
        return self.meta.get("limit", "")

    @property
    def newest(self) -> int:
        """The last round whose state is on disk: the closing round, or that of the last training."""
        return self.committed + 1 if self.over else self.committed


def write(connection: sqlite3.Connection, epoch: int, record: Record) -> None:
    """Write one record inside the caller's transaction."""
    match record:
        case Seated(seats=seats):
            connection.executemany("INSERT INTO seats (idx, client_id) VALUES (?, ?)", seats)
        case RoundOpened(round=round, cohort=cohort, last=last):
            connection.execute(
                "INSERT INTO rounds (epoch, round, cohort, roster, closing) VALUES (?, ?, ?, ?, ?)",
                (epoch, round, json.dumps(cohort), _write_roster(connection), last or None),
            )
        case RoundExtended(round=round, added=added):
            connection.execute(
                "UPDATE rounds SET extended = ? WHERE epoch = ? AND round = ?",
                (json.dumps(added), epoch, round),
            )
        case RoundClosed(round=round, counted=counted, limit=limit):
            connection.execute(
                "UPDATE rounds SET closed = ? WHERE epoch = ? AND round = ?",
                (json.dumps(counted), epoch, round),
            )
            if limit:
                write_meta(connection, limit=limit)
        case Conduct():
            conduct_rows.write(connection, (record,))
        case Released(seat=seat):
            conduct_rows.release(connection, seat)
        case Ended():
            write_outcomes(connection, epoch, record.round, record.discarded)
            write_meta(connection, ended_kind=str(record.kind), ended_reason=record.reason)


def _write_roster(connection: sqlite3.Connection) -> int:
    """Fix who is ready now and with how many samples; return the number of that roster."""
    known = connection.execute("SELECT idx, samples FROM seats WHERE samples IS NOT NULL ORDER BY idx")
    samples = json.dumps(dict(known.fetchall()))
    connection.execute("INSERT OR IGNORE INTO rosters (samples) VALUES (?)", (samples,))
    found = connection.execute("SELECT number FROM rosters WHERE samples = ?", (samples,))
    return int(found.fetchone()[0])


def write_meta(connection: sqlite3.Connection, **values: str) -> None:
    connection.executemany(
        "INSERT INTO meta (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value <> excluded.value",
        values.items(),
    )


def write_outcomes(
    connection: sqlite3.Connection, epoch: int, round: int, outcomes: Iterable[Outcome]
) -> None:
    connection.executemany(
        "INSERT INTO outcomes (epoch, round, idx, digest, verdict) VALUES (?, ?, ?, ?, ?)",
        [(epoch, round, item.seat, item.digest, str(item.verdict)) for item in outcomes],
    )


def write_commit(
    connection: sqlite3.Connection, epoch: int, round: int, model_digest: str, state_digest: str
) -> None:
    connection.execute(
        "UPDATE rounds SET committed = 1, model_digest = ?, state_digest = ? WHERE epoch = ? AND round = ?",
        (model_digest, state_digest, epoch, round),
    )


def write_round_costs(
    connection: sqlite3.Connection, epoch: int, round: int, values: Mapping[str, float]
) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO round_costs (epoch, round, name, value) VALUES (?, ?, ?, ?)",
        [(epoch, round, name, value) for name, value in values.items()],
    )


def write_measured(
    connection: sqlite3.Connection, epoch: int, round: int, measured: Mapping[str, float]
) -> None:
    """Write what a method may have steered by, so that the round can be computed again."""
    named = {f"{_MEASURED}{name}": value for name, value in measured.items()}
    write_round_costs(connection, epoch, round, named)


def write_used(connection: sqlite3.Connection, used: Mapping[str, float], own: Mapping[str, float]) -> None:
    """Write what the run has used so far, if anything is said of it; `own` is the method's own count."""
    named = {f"{_USED}{name}": repr(value) for name, value in used.items()}
    named |= {f"{_OWN}{name}": repr(value) for name, value in own.items()}
    if named:
        write_meta(connection, **named)


def read_used(meta: Mapping[str, str]) -> dict[str, float]:
    """Return what is used of the budgets by the rows of `meta`, as it counts for them."""
    counts = {name: meta.get(f"{_OWN}{name}", meta.get(f"{_USED}{name}")) for name in RESOURCES}
    return {name: float(amount) for name, amount in counts.items() if amount is not None}


def read_story(connection: sqlite3.Connection) -> Story:
    """Read what a resuming server needs."""
    story = Story(meta=dict(connection.execute("SELECT name, value FROM meta")))
    story.epoch = int(story.meta.get("epoch", "0"))
    story.seats = tuple(connection.execute("SELECT idx, client_id FROM seats ORDER BY idx"))
    story.samples = dict(connection.execute("SELECT idx, samples FROM seats WHERE samples IS NOT NULL"))
    story.conduct = conduct_rows.read(connection)
    _read_rounds(connection, story)
    if "ended_kind" in story.meta:
        kind = EndingKind(story.meta["ended_kind"])
        story.ended = Ended(kind, story.meta["ended_reason"], story.committed)
    return story


def _read_rounds(connection: sqlite3.Connection, story: Story) -> None:
    base = int(story.meta.get("epoch_base", "0"))
    found = connection.execute(
        "SELECT max(round) FROM rounds WHERE epoch = ? AND committed = 1 AND closing IS NULL", (story.epoch,)
    ).fetchone()[0]
    story.committed = base if found is None else found
    story.over = read_closing(connection, story.epoch, story.committed + 1)
    row = connection.execute(
        "SELECT round, cohort, extended, closed, closing FROM rounds WHERE epoch = ? AND committed = 0",
        (story.epoch,),
    ).fetchone()
    if row is None:
        return
    round, cohort, extended, closed, closing = row
    story.open_round = RoundOpened(round, tuple(json.loads(cohort)), closing or "")
    story.added = None if extended is None else tuple(json.loads(extended))
    story.closed = None if closed is None else tuple(json.loads(closed))


def read_closing(connection: sqlite3.Connection, epoch: int, round: int) -> str:
    """Return why training was over if that is a committed closing round, else nothing."""
    row = connection.execute(
        "SELECT closing FROM rounds WHERE epoch = ? AND round = ? AND committed = 1", (epoch, round)
    ).fetchone()
    return "" if row is None else row[0] or ""


def read_outcomes(
    connection: sqlite3.Connection, epoch: int, rounds: Iterable[int]
) -> dict[int, list[Outcome]]:
    """Return the outcomes of those rounds."""
    bases = _bases(connection, epoch)
    return {round: _read_outcomes(connection, _epoch_of(bases, round), round) for round in rounds}


def read_last_outcomes(
    connection: sqlite3.Connection, epoch: int, committed: int
) -> dict[int, dict[int, Outcome]]:
    """Return the last two outcomes of every client: by seat, then by round."""
    bases = _bases(connection, epoch)
    wanted = 2 * connection.execute("SELECT count(*) FROM seats").fetchone()[0]
    found: dict[int, dict[int, Outcome]] = {}
    for round in range(committed, 0, -1):
        for outcome in _read_outcomes(connection, _epoch_of(bases, round), round):
            mine = found.setdefault(outcome.seat, {})
            if len(mine) < 2:
                mine[round] = outcome
                wanted -= 1
        if not wanted:
            break
    return found


def _bases(connection: sqlite3.Connection, epoch: int) -> list[tuple[int, int]]:
    """Return the epochs after the first, newest first, each with the round that it goes on from."""
    return connection.execute(
        "SELECT epoch, min(round) FROM rounds WHERE epoch BETWEEN 1 AND ? GROUP BY epoch ORDER BY epoch DESC",
        (epoch,),
    ).fetchall()


def _epoch_of(bases: list[tuple[int, int]], round: int) -> int:
    """Return the epoch in which a round was held, as the newest one knows it."""
    return next((epoch for epoch, base in bases if round > base), 0)


def _read_outcomes(connection: sqlite3.Connection, epoch: int, round: int) -> list[Outcome]:
    rows = connection.execute(
        "SELECT idx, digest, verdict FROM outcomes WHERE epoch = ? AND round = ? ORDER BY idx", (epoch, round)
    )
    return [Outcome(seat, bytes(digest), Verdict(verdict)) for seat, digest, verdict in rows]


def is_settled(connection: sqlite3.Connection, epoch: int, round: int) -> bool:
    """Whether the final word on a round was given in that epoch, be it committed or discarded."""
    row = connection.execute("SELECT 1 FROM outcomes WHERE epoch = ? AND round = ?", (epoch, round))
    return row.fetchone() is not None


def read_counted(connection: sqlite3.Connection, epoch: int, round: int) -> tuple[int, ...]:
    """Return who counted in a committed round, ascending."""
    outcomes = read_outcomes(connection, epoch, [round])[round]
    return tuple(outcome.seat for outcome in outcomes if outcome.verdict is Verdict.COUNTED)


def read_cohort(connection: sqlite3.Connection, epoch: int, round: int) -> tuple[int, ...]:
    """Return with whom a committed round was opened, ascending."""
    held = _epoch_of(_bases(connection, epoch), round)
    row = connection.execute(
        "SELECT cohort FROM rounds WHERE epoch = ? AND round = ?", (held, round)
    ).fetchone()
    return () if row is None else tuple(json.loads(row[0]))


def read_roster(connection: sqlite3.Connection, epoch: int, round: int) -> dict[int, int]:
    """Return n_i of everybody who was ready when a round was opened, by seat."""
    held = _epoch_of(_bases(connection, epoch), round)
    row = connection.execute(
        "SELECT samples FROM rounds JOIN rosters ON number = roster WHERE epoch = ? AND round = ?",
        (held, round),
    ).fetchone()
    return {} if row is None else {int(seat): samples for seat, samples in json.loads(row[0]).items()}


def read_digests(connection: sqlite3.Connection, epoch: int, round: int) -> tuple[str, str] | None:
    """Return the digests of a committed round's model and state files, of that epoch or an earlier one."""
    row = connection.execute(
        "SELECT model_digest, state_digest FROM rounds WHERE epoch <= ? AND round = ? AND committed = 1 "
        "ORDER BY epoch DESC LIMIT 1",
        (epoch, round),
    ).fetchone()
    return None if row is None else (row[0], row[1])


def read_measured(connection: sqlite3.Connection, epoch: int, round: int) -> dict[str, float]:
    """Return what the method was told when that round was committed."""
    held = _epoch_of(_bases(connection, epoch), round)
    rows = connection.execute(
        "SELECT name, value FROM round_costs WHERE epoch = ? AND round = ? AND name LIKE ?",
        (held, round, f"{_MEASURED}%"),
    )
    return {name.removeprefix(_MEASURED): value for name, value in rows}


def read_scored(connection: sqlite3.Connection, epoch: int) -> int:
    """Return the newest round that has a score, 0 if there is none."""
    statement = "SELECT max(round) FROM evaluations WHERE epoch = ? AND model = 'global'"
    return connection.execute(statement, (epoch,)).fetchone()[0] or 0


def read_accuracy(connection: sqlite3.Connection, epoch: int, round: int) -> float | None:
    """Return how the global model of that round did, if the journal knows it."""
    row = connection.execute(
        "SELECT accuracy FROM evaluations WHERE epoch = ? AND round = ? AND model = 'global'", (epoch, round)
    ).fetchone()
    return None if row is None else float(row[0])


def read_best(connection: sqlite3.Connection) -> tuple[float, int] | None:
    """Return accuracy and round of the best evaluation so far."""
    row = connection.execute(
        "SELECT accuracy, round FROM evaluations WHERE model = 'global' ORDER BY accuracy DESC, round LIMIT 1"
    ).fetchone()
    return None if row is None else (row[0], row[1])
