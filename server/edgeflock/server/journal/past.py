"""What a journal holds of a run's past: of the whole run as its server takes it up, and round by round."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType

from edgeflock.common.scores import Metric, Summary, measures_from_text
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Conduct, Dropped, Ended, EndingKind, Outcome, RoundOpened
from edgeflock.server.core.effects import TestModel
from edgeflock.server.costs.rows import Bundles, Row
from edgeflock.server.journal import costs, decisions, scores
from edgeflock.server.journal.costs import USED, WHOLE

PARTED = "parted "  # before a seat in `meta`: it has heard of the end
_SPAN = 8  # rounds that are looked through at first, then twice as many: most clients were there lately
_STANDING = (  # of each client the row of the highest round
    "SELECT max(round), seat, digest, verdict, moved FROM outcomes "
    "WHERE epoch = ? AND round > ? AND round <= ? AND verdict = 'counted' AND moved IS NOT 0 GROUP BY seat"
)


@lru_cache(maxsize=2)  # most rounds have the one of the round before
def _read_roster(text: str) -> Mapping[int, int]:
    return MappingProxyType({int(seat): samples for seat, samples in json.loads(text).items()})


@dataclass
class Resumed:
    """What a journal knows of a run at its start."""

    meta: dict[str, str] = field(default_factory=dict)
    seats: tuple[tuple[int, str], ...] = ()
    samples: dict[int, int] = field(default_factory=dict)
    conduct: tuple[Conduct, ...] = ()  # of clients with bad updates
    dismissed: tuple[Dropped, ...] = ()  # who was dropped or replaced, and is not back
    epoch: int = 0
    committed: int = 0
    open_round: RoundOpened | None = None
    added: tuple[int, ...] | None = None  # by an extension of it; None: there was none
    counted: tuple[int, ...] | None = None  # the set that was decided for it; None: it was still open
    over: str = ""  # the last round is committed, too: why training is over
    ended: Ended | None = None
    finished: bool = False  # it ended and does not go on: clients may still have to hear it

    @property
    def used(self) -> dict[str, float]:
        """What the lives before have used, by resource."""
        names = [name for name in self.meta if name.startswith(USED)]
        return {name.removeprefix(USED): float(self.meta[name]) for name in names}

    @property
    def cut(self) -> bool:
        """Whether a life was cut off in the open round: it has counted more of it than it has written."""
        return self.open_round is not None and WHOLE not in self.meta

    @property
    def parted(self) -> set[int]:
        """The seats of those who have heard of the end and said goodbye."""
        return {int(name.removeprefix(PARTED)) for name in self.meta if name.startswith(PARTED)}

    @property
    def limit(self) -> str:
        """The budget that is used up: no round follows the one that is open."""
        return self.meta.get("limit", "")

    @property
    def untested(self) -> tuple[TestModel, ...]:
        """Tests that have begun and have no score."""
        return scores.read_untested(self.meta)

    @property
    def measures(self) -> tuple[Metric, ...]:
        """By what its models are judged, the figure first."""
        return measures_from_text(self.meta.get(scores.MEASURES))

    @property
    def paused(self) -> bool:
        """Whether an operator has it pause."""
        return self.meta.get("paused") == "1"

    @property
    def stop(self) -> str:
        """An operator's reason to end the run, which has not ended yet."""
        return self.meta.get("stop", "")

    @property
    def newest(self) -> int:
        """The newest round whose state is on disk: the last round, or the newest one of training."""
        return self.committed + 1 if self.over else self.committed


@dataclass(frozen=True)
class PastRound:
    """What it takes to compute a committed round again."""

    cohort: tuple[int, ...]  # with whom it was opened, ascending
    counted: tuple[int, ...]  # ascending
    roster: Mapping[int, int]  # n_i of everybody who was ready, by seat
    measured: Mapping[str, float]  # what the method was told


@dataclass(frozen=True)
class PastScores:
    """How the models have done."""

    best: tuple[float, int] | None  # value of the global one, and round
    newest: Mapping[str, int]  # of each model the newest round that has a score
    score: Summary | None  # of the global one in the round that was asked for, if the journal knows it
    since: int = 0  # tests of it since the best one


class Past:
    """Answers as of one epoch: what an epoch before it knew beyond its base is no more."""

    def __init__(self, connection: sqlite3.Connection, epoch: int) -> None:
        self._connection, self._epoch = connection, epoch

    def resumed(self) -> Resumed:
        """Return what a server needs that takes the run up."""
        ask = self._connection.execute
        meta = dict(ask("SELECT name, value FROM meta"))
        resumed = Resumed(meta, epoch=self._epoch)
        resumed.seats = tuple(ask("SELECT seat, client_id FROM seats ORDER BY seat"))
        resumed.samples = dict(ask("SELECT seat, samples FROM seats WHERE samples IS NOT NULL"))
        resumed.conduct = tuple(Conduct(*row) for row in ask(decisions.READ_CONDUCT))
        dismissed = ask(decisions.READ_DISMISSED)
        resumed.dismissed = tuple(Dropped(seat, who, at, bool(kept)) for seat, who, at, kept in dismissed)
        self._read_rounds(resumed)
        if "ended_kind" in meta:
            resumed.ended = Ended(EndingKind(meta["ended_kind"]), meta["ended_reason"], resumed.committed)
        return resumed

    def _read_rounds(self, resumed: Resumed) -> None:
        base = int(resumed.meta.get("epoch_base", "0"))
        (found,) = self._connection.execute(
            "SELECT max(round) FROM rounds WHERE epoch = ? AND committed = 1 AND last IS NULL",
            (self._epoch,),
        ).fetchone()
        resumed.committed = base if found is None else found
        resumed.over = self._last(resumed.committed + 1)
        row = self._connection.execute(
            "SELECT round, cohort, extended, counted, last FROM rounds WHERE epoch = ? AND committed = 0",
            (self._epoch,),
        ).fetchone()
        if row is None:
            return
        round, cohort, extended, counted, last = row
        resumed.open_round = RoundOpened(round, tuple(json.loads(cohort)), last or "")
        resumed.added = None if extended is None else tuple(json.loads(extended))
        resumed.counted = None if counted is None else tuple(json.loads(counted))

    def _last(self, round: int) -> str:
        """Return why training was over if that is a committed last round, else nothing."""
        row = self._connection.execute(
            "SELECT last FROM rounds WHERE epoch = ? AND round = ? AND committed = 1", (self._epoch, round)
        ).fetchone()
        return "" if row is None else row[0] or ""

    # ------------------------------------------------------------------------------- outcomes

    def last_outcomes(self, newest: int) -> dict[int, dict[int, Outcome]]:
        """Return the last two outcomes of every client up to a round: by seat, then by round."""
        wanted = 2 * self._connection.execute("SELECT count(*) FROM seats").fetchone()[0]
        found: dict[int, dict[int, Outcome]] = {}
        for round in range(newest, 0, -1):
            for outcome in self.outcomes(round):
                mine = found.setdefault(outcome.seat, {})
                if len(mine) < 2:
                    mine[round] = outcome
                    wanted -= 1
            if not wanted:
                break
        return found

    def outcomes(self, round: int) -> list[Outcome]:
        """Return what became of a round's updates, by ascending seat; nothing before it is settled."""
        rows = self._connection.execute(
            "SELECT seat, digest, verdict, moved FROM outcomes WHERE epoch = ? AND round = ? ORDER BY seat",
            (self._held(round), round),
        )
        return [_outcome(*row) for row in rows]

    def standing(self, newest: int) -> dict[int, tuple[int, Outcome]]:
        """Return of every client the last update up to a round that counted and moved its own state, or of
        which that is not known: by seat, with its round."""
        seats = self._connection.execute("SELECT count(*) FROM seats").fetchone()[0]
        found: dict[int, tuple[int, Outcome]] = {}
        for epoch, base, top in self._held_spans(newest):
            span = _SPAN
            while top > base and len(found) < seats:
                low = max(base, top - span)
                for round, *row in self._connection.execute(_STANDING, (epoch, low, top)):
                    found.setdefault(row[0], (round, _outcome(*row)))
                top, span = low, 2 * span
        return found

    def is_settled(self, round: int) -> bool:
        """Whether the final word on a round was given in this epoch, be it committed or discarded."""
        row = self._connection.execute(
            "SELECT 1 FROM outcomes WHERE epoch = ? AND round = ?", (self._epoch, round)
        )
        return row.fetchone() is not None

    # ------------------------------------------------------------------------------- rounds

    def round(self, round: int) -> PastRound:
        """Return what it takes to compute a committed round again."""
        held = self._held(round)
        row = self._connection.execute(
            "SELECT cohort FROM rounds WHERE epoch = ? AND round = ?", (held, round)
        ).fetchone()
        counted = [one.seat for one in self.outcomes(round) if one.verdict is Verdict.COUNTED]
        measured = costs.read_measured(self._connection, held, round)
        cohort = () if row is None else tuple(json.loads(row[0]))
        return PastRound(cohort, tuple(counted), self.roster(round), measured)

    def roster(self, round: int) -> Mapping[int, int]:
        """Return n_i of everybody who was ready when a round was opened, by seat."""
        row = self._connection.execute(
            "SELECT samples FROM rounds JOIN rosters ON number = roster WHERE epoch = ? AND round = ?",
            (self._held(round), round),
        ).fetchone()
        return {} if row is None else _read_roster(row[0])

    def digests(self, round: int) -> tuple[str, str] | None:
        """Return the digests of a committed round's model and state files, of this epoch or one before."""
        row = self._connection.execute(
            "SELECT model_digest, state_digest FROM rounds WHERE epoch <= ? AND round = ? AND committed = 1 "
            "ORDER BY epoch DESC LIMIT 1",
            (self._epoch, round),
        ).fetchone()
        return None if row is None else (row[0], row[1])

    def costs(self, round: int) -> dict[int, tuple[Row, Bundles]]:
        """Return what is written of a round's costs, by seat: the row, and the bytes by bundle."""
        return costs.read_round(self._connection, self._epoch, round)

    def stated(self, round: int) -> dict[int, Row]:
        """Return what the budgets count of what clients have stated of a round, by seat."""
        return costs.read_stated(self._connection, self._held(round), round)

    def scores(self, round: int) -> PastScores:
        """Return how the models have done, the global one of a round among them."""
        best = scores.read_best(self._connection)
        return PastScores(
            best,
            scores.read_newest(self._connection, self._epoch),
            scores.read_score(self._connection, self._epoch, round),
            0 if best is None else scores.count_since(self._connection, best[1]),
        )

    def _held(self, round: int) -> int:
        """Return the epoch in which a round was held, as this one knows it."""
        return next((epoch for epoch, base in self._bases if round > base), 0)

    def _held_spans(self, newest: int) -> Iterator[tuple[int, int, int]]:
        """Yield which rounds up to one were held in which epoch, newest first: epoch, base, last round."""
        for epoch, base in (*self._bases, (0, 0)):
            if base < newest:
                yield epoch, base, newest
            newest = min(newest, base)

    @cached_property
    def _bases(self) -> list[tuple[int, int]]:
        """The epochs after the first, newest first, each with the round that it goes on from."""
        return self._connection.execute(
            "SELECT epoch, min(round) FROM rounds WHERE epoch BETWEEN 1 AND ? "
            "GROUP BY epoch ORDER BY epoch DESC",
            (self._epoch,),
        ).fetchall()


def _outcome(seat: int, digest: bytes, verdict: str, moved: int | None) -> Outcome:
    return Outcome(seat, bytes(digest), Verdict(verdict), None if moved is None else bool(moved))
