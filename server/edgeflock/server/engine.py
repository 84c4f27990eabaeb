"""The engine: feeds the round machine with events and executes its effects, each where it belongs.

The event loop only decides and speaks. Arithmetic and checkpoints run in one thread, spool writes in a few,
evaluation in another, SQLite in the journal's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, assert_never

import structlog

from edgeflock.common.errors import EdgeflockError, NonFinite
from edgeflock.common.package import Package
from edgeflock.methods.base import Round
from edgeflock.server import records
from edgeflock.server.books import Commit, canonical_line, cost_rows
from edgeflock.server.broadcast import Broadcast
from edgeflock.server.checkpoint import Checkpoints, Saved
from edgeflock.server.events import (
    Announce,
    Broken,
    CommitRound,
    Committed,
    Diverged,
    Done,
    Effect,
    Ended,
    EndingKind,
    Event,
    Exit,
    Folded,
    FoldRound,
    Outcome,
    Persist,
    Persisted,
    Phase,
    PrepareRound,
    Publish,
    RoundOpened,
    RoundPrepared,
    SpaceMissing,
    Ticked,
    UpdateReceived,
)
from edgeflock.server.journal import FULL, Journal, JournalBroken, read_only
from edgeflock.server.learner import Learner
from edgeflock.server.opened import Opened
from edgeflock.server.pools import started_pool
from edgeflock.server.records import Row
from edgeflock.server.rounds import RoundMachine
from edgeflock.server.scoring import Scoring
from edgeflock.server.sessions import Sessions
from edgeflock.server.spool import Entry, Spool

log = structlog.get_logger()
T = TypeVar("T")

CLOSED = "the round was closed while your update was on its way: ask for the verdict"
_LAST_WORDS = 2  # outcomes that a client is told again and again


class Engine:
    """One run in motion."""

    def __init__(
        self,
        machine: RoundMachine,
        journal: Journal,
        learner: Learner,
        checkpoints: Checkpoints,
        spool: Spool,
        scoring: Scoring,
        *,
        epoch: int,
        keep_every: int,
        outcomes: dict[int, dict[int, Outcome]],
        samples: dict[int, int],
    ) -> None:
        self.machine, self.journal, self.learner = machine, journal, learner
        self.checkpoints, self.spool, self.scoring = checkpoints, spool, scoring
        self.epoch = epoch
        self.sessions = Sessions()
        self.samples = samples  # roster index -> n_i
        self.outcomes = outcomes  # the last two of each client: by index, then by round
        self.opened: Opened | None = None  # the open round
        self.ended: asyncio.Future[Ended | None] = asyncio.get_running_loop().create_future()
        self.heard: set[str] = set()  # client ids that were told how the run ended
        self.hearing = asyncio.Event()
        self._keep_every = keep_every
        self._personal: dict[int, asyncio.Future[Broadcast]] = {}
        self._late_costs: deque[tuple[int, int, Row]] = deque()  # filled here, emptied by the journal
        self._arithmetic = started_pool(1, "arithmetic")
        self._files = started_pool(4, "spool")
        self._queue: deque[Event] = deque()
        self._handling = False
        self._folding_ahead = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._opened_at = self._closed_at = time.monotonic()

    # ------------------------------------------------------------------------- events and effects

    def post(self, event: Event) -> None:
        """Give the machine an event and start what it decides; only on the event loop."""
        self._queue.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._queue:
                for effect in self.machine.handle(self._queue.popleft()):
                    self._execute(effect)
        finally:
            self._handling = False
        self._set_timer()

    def _execute(self, effect: Effect) -> None:
        match effect:
            case Persist():
                self._start(self._persist(effect), effect)
            case PrepareRound():
                self._start(self._prepare(effect), effect)
            case FoldRound():
                self._start(self._fold(effect), effect)
            case CommitRound():
                self._start(self._commit(effect), effect)
            case Publish():
                self.sessions.publish()
            case Announce(name=name, fields=fields):
                log.info(name, **fields)
                self.journal.note(name, **fields)
            case Exit(ending=ending):
                if not self.ended.done():
                    self.ended.set_result(ending)
            case _:
                assert_never(effect)

    def _start(self, work: Coroutine[Any, Any, None], effect: Effect | None = None) -> None:
        task = asyncio.create_task(self._guard(work, effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Coroutine[Any, Any, None], effect: Effect | None) -> None:
        """A failed effect is an event."""
        try:
            await work
        except JournalBroken as error:
            self._failed(effect, str(error), error.no_space)
        except OSError as error:
            self._failed(effect, in_words(error), error.errno in FULL)
        except NonFinite as error:
            self.post(Diverged(self.machine.round, str(error), time.monotonic()))
        except EdgeflockError as error:
            self._failed(effect, str(error), False)
        except Exception as error:  # without an event the run would wait for ever
            log.exception("effect_failed", effect=type(effect).__name__)
            self._failed(effect, f"this is a bug, {type(error).__name__}: {error}", False)

    def _failed(self, effect: Effect | None, reason: str, no_space: bool) -> None:
        now = time.monotonic()
        if no_space and effect is not None:
            self.post(SpaceMissing(effect, f"no space left on the disk ({reason})", now))
        else:
            self.post(Broken(reason, now))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (wake := self.machine.wake_at) is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, wake - time.monotonic()), self._tick)

    def _tick(self) -> None:
        self.post(Ticked(time.monotonic()))

    async def compute(self, work: Callable[..., T], *arguments: object) -> T:
        """Run in the thread that owns the state."""
        return await asyncio.get_running_loop().run_in_executor(self._arithmetic, partial(work, *arguments))

    async def write(self, work: Callable[..., T], *arguments: object) -> T:
        """Run in a thread for small disk operations."""
        return await asyncio.get_running_loop().run_in_executor(self._files, partial(work, *arguments))

    # ------------------------------------------------------------------------------ persisting

    async def _persist(self, effect: Persist) -> None:
        for record in effect.records:
            if isinstance(record, Ended):
                await self._finish(record)
            if isinstance(record, RoundOpened) and (stop := await self.compute(self._stop, record)):
                self.post(Done(stop, time.monotonic()))
                return

        def transaction(connection: sqlite3.Connection) -> None:
            for record in effect.records:
                records.write(connection, self.epoch, record)
            self._write_late_costs(connection)

        await asyncio.wrap_future(self.journal.submit(transaction))
        for record in effect.records:
            if isinstance(record, Ended) and record.discarded:
                self._settle(record.round, record.discarded)
            self.post(Persisted(record, time.monotonic()))

    async def _finish(self, ending: Ended) -> None:
        """Before the end is said: the last evaluation is in the journal and the model is in its place."""
        await self.scoring.finish()
        if ending.kind is not EndingKind.FAILED:
            await self.compute(self._write_result)

    def _write_result(self) -> None:
        self.checkpoints.write_result(self.learner.state, self.learner.result())

    # ------------------------------------------------------------------------------- opening

    async def _prepare(self, effect: PrepareRound) -> None:
        self._opened_at = time.monotonic()
        if self.opened is not None:
            self.opened.close()
        self.opened, self._personal = None, {}
        round = self.learner.round(effect.round, effect.cohort, self.samples)
        self.opened, received = await self.compute(self._open, round)
        self.post(RoundPrepared(effect.round, received, time.monotonic()))
        if self.learner.prepares:
            await self.compute(self.learner.prepare, round)

    def _open(self, round: Round) -> tuple[Opened, tuple[tuple[int, bytes], ...]]:
        checkpoint = self.checkpoints.model_path(round.number - 1)
        work = self.learner.open(round, checkpoint, self.spool.packages(round.number))
        opened = Opened(work, self.spool.prepare(round.number, round.cohort, work.upload_limit))
        return opened, opened.restore()

    async def personal(self, index: int) -> Broadcast:
        """Return one client's package, formed when it is first asked for."""
        assert self.opened is not None
        if index not in self._personal:
            scratch = self.spool.packages(self.opened.number)
            made = asyncio.ensure_future(
                self.compute(self.learner.personal, self.opened.work, index, scratch)
            )
            self._personal[index] = made
            made.add_done_callback(partial(self._drop_failed, index))
        return await asyncio.shield(self._personal[index])  # others may wait for it when one has gone

    def _drop_failed(self, index: int, made: asyncio.Future[Broadcast]) -> None:
        """Who asks again after a full disk shall not get the old failure."""
        if not made.cancelled() and made.exception() and self._personal.get(index) is made:
            del self._personal[index]

    def entry(self, index: int) -> Entry | None:
        """Return the spool entry of a member; made now if the round was extended by it."""
        opened = self.opened
        if opened is None or index not in self.machine.tally.cohort:
            return None
        if index not in opened.entries:
            opened.entries |= self.spool.prepare(opened.number, (index,), opened.work.upload_limit)
        return opened.entries[index]

    # ------------------------------------------------------------------------------- folding

    def received(self, index: int, package: Package) -> None:
        """An update is complete and checked."""
        assert self.opened is not None
        self.opened.complete(index, package)
        self.post(UpdateReceived(self.opened.number, index, package.digest, time.monotonic()))
        if self.machine.phase is Phase.OPEN and not self._folding_ahead:
            self._folding_ahead = True
            self._start(self._fold_ahead())

    async def _fold_ahead(self) -> None:
        """Fold what is complete without a gap while the rest is on its way."""
        self._folding_ahead = False
        if self.opened is not None and self.machine.phase is Phase.OPEN:
            await self.compute(self.learner.advance, self.machine.tally.cohort, dict(self.opened.updates))

    async def _fold(self, effect: FoldRound) -> None:
        assert self.opened is not None
        self._closed_at = time.monotonic()
        self._end_uploads()
        rejected = await self.compute(self.learner.fold, effect.counted, dict(self.opened.updates))
        if rejected:
            clients = {self.machine.seats.names[index]: str(verdict) for index, verdict in rejected.items()}
            method = self.learner.method.name
            log.warning("updates_rejected", round=effect.round, method=method, clients=clients)
            self.journal.note("updates_rejected", round=effect.round, method=method, clients=clients)
        self.post(Folded(effect.round, rejected, time.monotonic()))

    def _end_uploads(self) -> None:
        """Nobody waits for the rest of what is too late."""
        for index in self.machine.tally.missing():
            session = self.sessions.by_id(self.machine.seats.names[index])
            if session is not None and session.upload is not None:
                session.upload.cancel(CLOSED)

    # ----------------------------------------------------------------------------- committing

    async def score_again(self, round: int) -> None:
        """Test the committed model if a crash came before its score was written down; call it first."""
        if round and not self.scoring.knows(round):
            await self.compute(self.scoring.take, round, self.learner)
            await self.scoring.started(round)

    async def _commit(self, effect: CommitRound) -> None:
        assert self.opened is not None
        folded_at = time.monotonic()
        round = replace(self.opened.work.round, costs=self._measured())
        metrics, saved, stop = await self.compute(self._step_and_save, round, effect)
        values = metrics | self._seconds(folded_at)
        rows = cost_rows(self.machine, self.sessions, self.opened.updates, self.opened.costs)
        line = canonical_line(self.machine, effect, values, rows)
        commit = Commit(effect, saved, values, rows, line, stop)
        await asyncio.wrap_future(self.journal.submit(partial(self._write_commit, commit)))
        log.info("round_committed", **line)
        self._settle(effect.round, effect.outcomes)
        await self.scoring.started(effect.round)
        self.post(Committed(effect.round, time.monotonic(), stop))
        await self.write(self._prune, effect.round)

    def _write_commit(self, commit: Commit, connection: sqlite3.Connection) -> None:
        commit.write(connection, self.epoch)
        self._write_late_costs(connection)

    def _measured(self) -> dict[str, float]:
        """What the method may steer by: seconds of the round so far, and of its slowest client's training."""
        assert self.opened is not None
        training = [cost["train_s"] for cost in self.opened.costs.values()]
        return {"round_s": self._closed_at - self._opened_at, "train_s": max(training, default=0.0)}

    def _seconds(self, folded_at: float) -> dict[str, float]:
        parts = {
            "open_s": self._closed_at - self._opened_at,
            "fold_s": folded_at - self._closed_at,
            "commit_s": time.monotonic() - folded_at,
        }
        return {name: round(value, 6) for name, value in parts.items()}

    def _step_and_save(self, round: Round, effect: CommitRound) -> tuple[dict[str, float], Saved, str]:
        metrics = self.learner.step(round)
        saved = self.learner.save(self.checkpoints, round.number)
        self.scoring.take(round.number, self.learner)
        return metrics, saved, self._stop(effect.next) if effect.next is not None else ""

    def _stop(self, opening: RoundOpened) -> str:
        """Return why the method wants no such round: a function of the committed state."""
        following = self.learner.round(opening.round, opening.cohort, self.samples)
        return self.learner.plan(following).stop

    def _prune(self, round: int) -> None:
        """Remove the checkpoints that no recovery and no reader needs (DESIGN rule 4: r - 1 stays)."""
        keep = {0, round, round - 1, *self.scoring.wanted()}
        keep.update(number for number in self.checkpoints.kept() if self._kept_for_good(number))
        self.checkpoints.prune(keep, upto=round)

    def _kept_for_good(self, round: int) -> bool:
        return bool(self._keep_every) and round % self._keep_every == 0

    # ------------------------------------------------------------------------------- the end

    def _settle(self, round: int, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            mine = self.outcomes.setdefault(outcome.index, {})
            mine[round] = outcome
            if len(mine) > _LAST_WORDS:
                del mine[min(mine)]

    def settled(self, index: int, round: int) -> Outcome | None:
        """Return the final word on a member's update of a settled round, from memory or the journal."""
        if (known := self.outcomes.get(index, {}).get(round)) is not None:
            return known
        with contextlib.closing(read_only(self.journal.path)) as connection:
            found = records.read_outcomes(connection, self.epoch, [round])[round]
        return next((item for item in found if item.index == index), None)

    def note_cost(self, round: int, index: int, row: Row) -> None:
        """Take what a client reports of a round that is over; the next decision writes it down."""
        self._late_costs.append((round, index, row))
        if self.machine.ending is not None:
            self.journal.submit(self._write_late_costs, urgent=False)

    def _write_late_costs(self, connection: sqlite3.Connection) -> None:
        while self._late_costs:
            round, index, row = self._late_costs.popleft()
            records.write_cost(connection, self.epoch, round, index, row)

    def told(self, client_id: str) -> None:
        """A client has the view that says how the run ended."""
        self.heard.add(client_id)
        self.hearing.set()

    def broken(self, error: OSError) -> None:
        """A disk that fails an upload has failed the server: the next start sees what is sound."""
        self.post(Broken(in_words(error), time.monotonic()))

    async def close(self) -> None:
        """Let what is being written be written; give threads and files back."""
        if self._timer is not None:
            self._timer.cancel()
        for session in self.sessions:
            if session.upload is not None:
                session.upload.cancel()
        if pending := list(self._tasks):
            await asyncio.wait(pending)
        await self.scoring.close()
        if self.opened is not None:
            self.opened.close()
        self._arithmetic.shutdown()
        self._files.shutdown()


def in_words(error: OSError) -> str:
    return f"{error.filename or 'the run directory'}: {error.strerror or error}"
