"""The journal's face for the server: what is decided, spent and said of a run, in the run's words.

Whoever has an event loop awaits the futures; at the start they are waited for.
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from edgeflock.common.errors import JournalBroken
from edgeflock.common.scores import Score, Summary
from edgeflock.server.core.decisions import Conduct, Outcome, Record, RoundOpened
from edgeflock.server.core.effects import Announce, TestModel
from edgeflock.server.costs.rows import Costs
from edgeflock.server.journal import costs as cost_rows
from edgeflock.server.journal import decisions, schema, scores
from edgeflock.server.journal.events import write_event
from edgeflock.server.journal.past import PARTED, Past, Resumed
from edgeflock.server.journal.writer import Writer

T = TypeVar("T")
Event = tuple[str, Mapping[str, object], float]  # and when it was
FAREWELL = "farewell"  # in meta: the clients have had their time to hear of the end


@dataclass(frozen=True)
class Evaluation:
    """How one model does on the samples of many: together, and by seat and name."""

    model: str
    found: Summary
    by_seat: Mapping[int, Mapping[str, Score]]


@dataclass(frozen=True)
class Commit:
    """All that becomes durable with a round."""

    round: int
    digests: tuple[str, str]  # of the files of its model and its state
    outcomes: Sequence[Outcome]
    next: RoundOpened | None  # opened with it
    values: Mapping[str, float]  # metrics of the method, peaks of the server
    measured: Mapping[str, float]  # what the method was told
    costs: Costs
    conduct: Sequence[Conduct] = ()
    evaluations: Mapping[str, Summary] = field(default_factory=dict)  # by name, of clients' own models
    scores: Mapping[int, Mapping[str, Score]] = field(default_factory=dict)  # the same, by seat and name
    before: Evaluation | None = None  # how the devices found the model of the round before
    announcements: Sequence[Announce] = ()
    tests: Sequence[TestModel] = ()  # that are to begin


class Journal:
    """The rows of one run, and the thread that writes them; a future that is done is durable.

    Raises CorruptCheckpoint unless the file is sound and of a version that is known here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        connection = schema.connect(path)
        try:
            schema.verify(connection, path)
            self.epoch = decisions.read_epoch(connection)
        except BaseException:
            connection.close()
            raise
        self._writer = Writer(connection)
        self._untold: deque[Event] = deque()  # that found no room, oldest first

    def close(self) -> None:
        """Write what is due and close the file, once."""
        self._writer.close()

    @property
    def broken(self) -> JournalBroken | None:
        """Why nothing more is written; None: all that was said to be durable is."""
        return self._writer.broken

    def listen(self, listener: Callable[[], None]) -> None:
        """Call listener (from the journal's thread) after every transaction."""
        self._writer.listen(listener)

    def ask(self, question: Callable[[Past], T]) -> Future[T]:
        """Ask what is written."""
        return self._writer.ask(lambda connection: question(Past(connection, self.epoch)))

    # ------------------------------------------------------------------------------- while it goes on

    def note(self, name: str, **fields: object) -> Future[None]:
        """Append an event, which is only told: nothing is decided from it, and nobody need wait for it.

        It says when this was called. One that finds no room comes with a later one.
        """
        before, now = self._take_untold(), (name, fields, time.time())

        def write(connection: sqlite3.Connection) -> None:
            for event in (*before, now):
                write_event(connection, *event)

        def settle(written: Future[None]) -> None:
            if (error := written.exception()) is not None:
                later = isinstance(error, JournalBroken) and error.passing
                self._untold.extend((*before, now) if later else before)

        written = self._writer.submit(write, urgent=False)
        written.add_done_callback(settle)
        return written

    def _take_untold(self) -> list[Event]:
        taken = []
        while self._untold:
            taken.append(self._untold.popleft())
        return taken

    def decide(
        self, records: Sequence[Record], announcements: Sequence[Announce] = (), costs: Costs | None = None
    ) -> Future[None]:
        """Make decisions durable, in one transaction with what is said of them and what is due of costs."""

        def write(connection: sqlite3.Connection) -> None:
            for record in records:
                decisions.write(connection, self.epoch, record)
            if costs is not None:
                cost_rows.write(connection, self.epoch, costs)
            for one in announcements:
                write_event(connection, one.name, one.fields)

        return self._writer.submit(write)

    def commit(self, commit: Commit) -> Future[None]:
        """Make a round count, and open the next."""
        return self._writer.submit(lambda connection: self._commit(connection, commit))

    def _commit(self, connection: sqlite3.Connection, commit: Commit) -> None:
        epoch, round = self.epoch, commit.round
        decisions.write_commit(connection, epoch, round, commit.digests)
        decisions.write_outcomes(connection, epoch, round, commit.outcomes)
        cost_rows.write_values(connection, epoch, round, commit.values)
        cost_rows.write_measured(connection, epoch, round, commit.measured)
        cost_rows.write(connection, epoch, commit.costs)
        scores.write_client_scores(connection, epoch, round, commit.scores)
        for name, found in commit.evaluations.items():
            scores.write_score(connection, epoch, round, name, found)
        if (before := commit.before) is not None:
            scores.write_client_scores(connection, epoch, round - 1, before.by_seat)
            scores.write_score(connection, epoch, round - 1, before.model, before.found)
        for test in commit.tests:
            scores.write_untested(connection, round, test.models)
        if commit.next is not None:
            decisions.write(connection, epoch, commit.next)
        for conduct in commit.conduct:
            decisions.write(connection, epoch, conduct)
        for one in commit.announcements:
            write_event(connection, one.name, one.fields)

    def keep(self, costs: Costs) -> Future[None]:
        """Write what is due of costs with the next decision, or a moment later; if not, it stays due."""
        return self._writer.submit(
            lambda connection: cost_rows.write(connection, self.epoch, costs), urgent=False
        )

    def parted(self, seat: int) -> Future[None]:
        """A client has heard of the end and said goodbye."""
        name = f"{PARTED}{seat}"
        return self._writer.submit(lambda connection: decisions.write_meta(connection, **{name: "1"}))

    def farewell(self) -> Future[None]:
        """The clients have had their time to hear of the end."""
        return self._writer.submit(lambda connection: decisions.write_meta(connection, **{FAREWELL: "1"}))

    # ------------------------------------------------------------------------------- at its start

    def name(self, **identity: str) -> Future[None]:
        """The run gets its id, and what else makes it this run."""
        return self._writer.submit(lambda connection: decisions.write_meta(connection, **identity))

    def begin(self, digests: tuple[str, str], **described: str) -> Future[None]:
        """Round 0 is there: the initial model, with what is to be known of it."""

        def write(connection: sqlite3.Connection) -> None:
            decisions.write_base(connection, 0, 0, digests)
            decisions.write_meta(connection, **described)

        return self._writer.submit(write)

    def forget_ending(self) -> Future[None]:
        """An ending of before no longer holds, and the books are open again."""
        return self._writer.submit(
            lambda connection: decisions.remove_meta(
                connection, "ended_kind", "ended_reason", FAREWELL, f"{PARTED}%", cost_rows.WHOLE
            )
        )

    def forget_limit(self) -> Future[None]:
        """A budget that was used up is so no more: other rounds may follow."""
        return self._writer.submit(lambda connection: decisions.remove_meta(connection, "limit"))

    def raise_epoch(self, base: int, lost: int) -> Future[None]:
        """Go on from a committed round in a new epoch; those after it, up to another, are no more."""

        def write(connection: sqlite3.Connection) -> None:
            digests = Past(connection, self.epoch).digests(base)
            assert digests is not None  # a round that was committed
            self.epoch += 1
            decisions.write_base(connection, self.epoch, base, digests)
            decisions.write_meta(connection, epoch=str(self.epoch), epoch_base=str(base))
            decisions.remove_meta(connection, f"{scores.UNTESTED}%")
            fields = {"epoch": self.epoch, "round": base, "lost_up_to": lost}
            write_event(connection, "epoch_raised", fields)

        return self._writer.submit(write)


def consult(path: Path) -> Resumed:
    """Return what a journal knows of its run without taking it up; raises CorruptCheckpoint as that does."""
    with schema.consulted(path) as connection:
        return Past(connection, decisions.read_epoch(connection)).resumed() if connection else Resumed()
