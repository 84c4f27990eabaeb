"""The engine: executes the round machine's effects, each where it belongs.

The event loop only decides and speaks. Arithmetic and checkpoints run in one thread, spool writes in a few,
evaluation in another, SQLite in the journal's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

import structlog

from edgeflock.common.package import Package
from edgeflock.methods.base import Round
from edgeflock.server import cost_rows, records
from edgeflock.server.books import Commit, canonical_line
from edgeflock.server.broadcast import Broadcast
from edgeflock.server.budget import Budget
from edgeflock.server.checkpoint import Checkpoints, Saved
from edgeflock.server.client_scores import ClientScores
from edgeflock.server.cost_rows import Row
from edgeflock.server.drive import Drive, in_words
from edgeflock.server.events import (
    Announce,
    Broken,
    CommitRound,
    Committed,
    Done,
    Effect,
    Ended,
    EndingKind,
    Event,
    Exit,
    Folded,
    FoldRound,
    LimitReached,
    Outcome,
    Persist,
    Persisted,
    Phase,
    PrepareRound,
    Publish,
    Ready,
    RoundOpened,
    RoundPrepared,
    TargetReached,
    UpdateReceived,
)
from edgeflock.server.journal import Journal, JournalBroken, write_event
from edgeflock.server.learner import Learner
from edgeflock.server.leaving import WORDS
from edgeflock.server.ledger import Kept, Ledger
from edgeflock.server.limits import Limits
from edgeflock.server.opened import Opened
from edgeflock.server.rounds import RoundMachine
from edgeflock.server.scoring import Scoring
from edgeflock.server.sessions import Sessions
from edgeflock.server.spool import Entry, Spool
from edgeflock.server.target import Target
from edgeflock.server.verdicts import Verdicts

log = structlog.get_logger()
KEEP_S = 5.0  # of the open round's books, a kill may lose so much
CLOSED = "the round was closed while your update was on its way: ask for the verdict"


class Engine(Drive):
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
        budget: Budget | None = None,
        target: Target | None = None,
    ) -> None:
        super().__init__(machine)
        self.journal, self.learner = journal, learner
        self.checkpoints, self.spool, self.scoring = checkpoints, spool, scoring
        self.epoch = epoch
        self.sessions = Sessions()
        self.samples = samples  # roster index -> n_i
        self.budget, self.target = budget or Budget(), target or Target()
        self.limits = Limits(
            self.budget,
            used=self._used,
            own=lambda: self.learner.half.used(self.learner.state),
            tell=lambda reason: self.post(LimitReached(reason, time.monotonic())),
            note=self._note_used,
        )
        scoring.listener = self._scored
        self._unmeasured = False  # it is said that a budget has nothing to count
        self._cpu_before_s = time.process_time()
        self.verdicts = Verdicts(outcomes, journal.path, epoch)
        self.opened: Opened | None = None  # the open round
        self.ended: asyncio.Future[Ended | None] = asyncio.get_running_loop().create_future()
        self.heard: set[str] = set()  # client ids that were told how the run ended
        self.hearing = asyncio.Event()
        self._keep_every = keep_every
        self._personal: dict[int, asyncio.Future[Broadcast]] = {}
        self.ledger = Ledger(machine, self.sessions, learner)
        scoring.busy = lambda round, seconds: self.ledger.line.add(round, "evaluate_busy", seconds)
        self._first = True  # no round was prepared in this life yet
        self._keeping: asyncio.TimerHandle | None = None
        self._preparing: asyncio.Future[bool] | None = None  # S0 of the open round
        self._folding_ahead = False

    def post(self, event: Event) -> None:
        super().post(event)
        self.ledger.follow()

    def execute(self, effect: Effect) -> None:
        match effect:
            case Persist():
                self.start(self._persist(effect), effect)
            case PrepareRound():
                self.start(self._prepare(effect), effect)
            case FoldRound():
                self.start(self._fold(effect), effect)
            case CommitRound():
                self.start(self._commit(effect), effect)
            case Publish():
                self.sessions.publish()
            case Announce(name=name, fields=fields):
                log.info(name, **fields)
                if name not in WORDS:  # these went with their decisions
                    self.journal.note(name, **fields)
            case Exit(ending=ending):
                if not self.ended.done():
                    self.ended.set_result(ending)
            case _:
                assert_never(effect)

    def ready(self, client_id: str, index: int, samples: int, classes: Sequence[int] = ()) -> None:
        """A member has its data, so many samples of each class, and waits for tasks."""
        self.samples[index] = samples
        statement = "UPDATE seats SET samples = ? WHERE idx = ?"
        self.journal.submit(lambda connection: connection.execute(statement, (samples, index)))
        told = {"classes": list(classes)} if classes else {}
        self.journal.note("client_ready", client=client_id, index=index, samples=samples, **told)
        self.post(Ready(index, time.monotonic()))

    # ------------------------------------------------------------------------------ persisting

    async def _persist(self, effect: Persist) -> None:
        for record in effect.records:
            if isinstance(record, Ended):
                await self._finish(record)
            if isinstance(record, RoundOpened) and (
                stop := await self.compute(self._wants_no, record, self._used())
            ):
                self.post(Done(stop, time.monotonic()))
                return

        ending = any(isinstance(record, Ended) for record in effect.records)
        used = self._used() if ending else {}
        told = {"run_ended": self._told(used)} if ending else {}
        words = [word for record in effect.records for word in self.machine.words(record)]
        books = self.ledger.open_books(self.opened) if ending else None  # a round that is discarded was paid

        def transaction(connection: sqlite3.Connection) -> None:
            for record in effect.records:
                records.write(connection, self.epoch, record)
            pending.write(connection, self.epoch)
            records.write_used(connection, used)
            if books is not None:
                books.write(connection, self.epoch)
            for word in words:
                write_event(connection, word.name, word.fields | told.get(word.name, {}))

        with self.ledger.writing() as pending:
            await asyncio.wrap_future(self.journal.submit(transaction))
        for record in effect.records:
            if isinstance(record, Ended) and record.discarded:
                self.verdicts.add(record.round, record.discarded)
            self.post(Persisted(record, time.monotonic()))

    async def _finish(self, ending: Ended) -> None:
        """Before the end is said: the last evaluation is in the journal and the model is in its place."""
        self._rest()
        if ending.discarded and self.opened is not None and not self.machine.rules.central:
            self.budget.settle(ending.round, self.opened.lost())
        with self.ledger.blocked():
            await self.scoring.finish()
        if ending.kind is not EndingKind.FAILED:
            await self.compute(self._write_result)

    def _write_result(self) -> None:
        self.checkpoints.write_result(self.learner.result_state(), self.learner.result())

    # ------------------------------------------------------------------------------- opening

    async def _prepare(self, effect: PrepareRound) -> None:
        began = time.monotonic()
        self.budget.begin(began)
        self.limits.begin()
        if self.opened is not None:
            self.opened.close()
        self.opened, self._personal = None, {}
        roster = await self._roster(effect.round)
        round = self.learner.round(effect.round, effect.cohort, roster, closing=effect.closing)
        self.opened, received = await self.compute(self._open, round, began)
        assert self.opened is not None
        await self._resume_books(self.opened)
        self.opened.allow(self.budget, self._used(), spare=self.machine.spare)
        self._preparing = None
        if self.learner.prepares(round):
            self._preparing = asyncio.ensure_future(self.prepare(self.learner.prepare, round))
        self.post(RoundPrepared(effect.round, received, time.monotonic()))
        self._keep_books()
        if self._preparing is not None:
            began = time.monotonic()
            await self._preparing
            self.ledger.line.add(effect.round, "prepare_busy", time.monotonic() - began)

    async def _resume_books(self, opened: Opened) -> None:
        """The first round of a life may be one that another has left open."""
        if self._first:
            read = partial(cost_rows.read_costs, epoch=self.epoch, round=opened.number)
            kept: Kept = await asyncio.wrap_future(self.journal.submit(read))
            self.ledger.resume(kept, opened)
        self._first = False

    async def _roster(self, round: int) -> dict[int, int]:
        """Return who was ready when the round was opened, as the journal has it: the same after a restart."""
        read = partial(records.read_roster, epoch=self.epoch, round=round)
        roster: dict[int, int] = await asyncio.wrap_future(self.journal.submit(read))
        return roster

    def _open(self, round: Round, began: float) -> tuple[Opened, tuple[tuple[int, bytes], ...]]:
        checkpoint = self.checkpoints.model_path(round.number - 1)
        work = self.learner.open(round, checkpoint, self.spool.packages(round.number))
        work = replace(work, scores=self.scoring.wishes(round.number, last=round.closing))
        opened = Opened(work, self.spool.prepare(round.number, round.cohort, work.upload_limit), began)
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
        self._personal.pop(index, None)  # its file is closed; who asks again gets the same once more
        self.post(UpdateReceived(self.opened.number, index, package.digest, time.monotonic()))
        if self.machine.phase is Phase.OPEN and not self._folding_ahead:
            self._folding_ahead = True
            self.start(self._fold_ahead())

    async def _fold_ahead(self) -> None:
        """Fold what is complete without a gap while the rest is on its way."""
        prepared = await self._prepared()
        self._folding_ahead = False
        if prepared and self.opened is not None and self.machine.phase is Phase.OPEN:
            began, number = time.monotonic(), self.opened.number
            await self.compute(self.learner.advance, self.machine.tally.cohort, dict(self.opened.updates))
            self.ledger.line.add(number, "fold_busy", time.monotonic() - began)

    async def _prepared(self) -> bool:
        """Wait for S0, which the fold may need; why it failed is told by the effect that started it."""
        if self._preparing is None:
            return True
        if not self._preparing.done():
            await asyncio.wait([self._preparing])
        return self._preparing.exception() is None and self._preparing.result()

    async def _fold(self, effect: FoldRound) -> None:
        assert self.opened is not None
        self.opened.closed_at = time.monotonic()
        self._end_uploads()
        if not await self._prepared():
            return
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

    async def score_again(self, round: int, *, last: bool = False) -> None:
        """Test the committed model if a crash came before its score was written down; call it first."""
        if round and not self.scoring.knows(round):
            await self.compute(partial(self.scoring.take, round, self.learner, last=last))
            await self.scoring.started(round)

    async def _commit(self, effect: CommitRound) -> None:
        assert self.opened is not None
        if self.target and await self.reached(effect.round - 1):
            return  # the event that ends the run is there already
        round = replace(self.opened.work.round, costs=self.opened.measured() | self._used())
        metrics, saved, stop = await self.compute(self._step_and_save, round, effect)
        books, first = self.ledger.close_round(self.opened)
        if first:
            self._settle(effect.round, books.fresh)
        metrics |= self.ledger.server_use(effect.round, tested_s=self.scoring.took_s)
        used = self._used()
        scores = ClientScores.of(self.opened.scores, effect.outcomes)
        with self.ledger.writing() as pending:
            line = canonical_line(
                self.machine, effect, metrics, self.ledger.line.of(effect.round), books.rows
            )
            line |= self._told(used)
            commit = Commit(
                effect, saved, metrics, books, pending, line, stop, round.closing, round.costs, used, scores
            )
            await asyncio.wrap_future(self.journal.submit(partial(commit.write, epoch=self.epoch)))
        log.info(commit.name, **line)
        scores.say(effect.round)
        self.verdicts.add(effect.round, effect.outcomes)
        with self.ledger.blocked() if self.scoring.blocking else contextlib.nullcontext():
            await self.scoring.started(effect.round)
        self._rest()
        last = effect.next is None or bool(stop)
        reached = await self.reached(effect.round) if last and not self.machine.draining else ""
        self.post(Committed(effect.round, time.monotonic(), stop, reached))
        self._scored(effect.round)
        await self.write(self._prune, effect.round)

    def _step_and_save(self, round: Round, effect: CommitRound) -> tuple[dict[str, float], Saved, str]:
        metrics = self.learner.step(round)
        saved = self.learner.save(self.checkpoints, round.number)
        self.scoring.take(round.number, self.learner, last=round.closing)
        stop = self._wants_no(effect.next, round.costs) if effect.next is not None else ""
        return metrics, saved, stop

    def _rest(self) -> None:
        """No round is at hand."""
        self.budget.rest(time.monotonic())
        self.limits.rest()

    # ------------------------------------------------------------------------- target and budgets

    async def reached(self, round: int) -> str:
        """Return why the run ends with a committed round, once its evaluation is in the journal."""
        if not self.target:
            return ""
        with self.ledger.blocked():
            await self.scoring.settled(round)
        return self.target.reached(round, self.scoring.accuracies.get(round))

    def _scored(self, round: int) -> None:
        """The journal holds how a round's model does; if its commit is not told of yet, that comes first."""
        if reason := self.target.reached(round, self.scoring.accuracies.get(round)):
            self.post(TargetReached(round, reason, time.monotonic()))

    def _settle(self, round: int, rows: Mapping[int, Row]) -> None:
        """Charge a committed round; the CPU time of a run without clients is the server's own."""
        self.budget.settle(round, {} if self.machine.rules.central else rows)
        if "energy" in self.budget.limits and not self.budget.energy_j and not self._unmeasured:
            self._unmeasured = True
            reason = "no client states its energy: the budget of energy ends nothing, see fl-client --watts"
            log.warning("budget_unmeasured", round=round, reason=reason)
            self.journal.note("budget_unmeasured", round=round, reason=reason)

    def _note_used(self, used: Mapping[str, float]) -> None:
        books = self.ledger.open_books(self.opened)

        def transaction(connection: sqlite3.Connection) -> None:
            records.write_used(connection, used)
            if books is not None:
                books.write(connection, self.epoch)

        self.journal.submit(transaction, urgent=False)

    def _keep_books(self) -> None:
        """Write the books of the open round every few seconds, so that a kill loses no more of them."""
        if self._keeping is not None:
            self._keeping.cancel()
        self._keeping = asyncio.get_running_loop().call_later(KEEP_S, self._keep_books)
        if self.ledger.grown(self.opened):
            self._note_used(self._used())

    async def _write_rest(self) -> None:
        """Write what no decision will take along any more."""
        with contextlib.suppress(JournalBroken), self.ledger.writing() as pending:
            written = self.journal.submit(partial(pending.write, epoch=self.epoch), urgent=False)
            await asyncio.wrap_future(written)

    def _wants_no(self, opening: RoundOpened, used: Mapping[str, float]) -> str:
        """Return why there is no such round: the method wants none, or the budgets leave no room."""
        closing = bool(opening.closing)
        following = self.learner.round(opening.round, opening.cohort, self.samples, closing=closing)
        if (stop := self.learner.wants_no(following)) or closing or not self.budget.limits:
            return stop
        counted = {**used, **self.learner.half.used(self.learner.state)}
        if self.opened is not None and (name := self.opened.used_up):
            return self.budget.short(used, name)
        expected = self.learner.expected_bytes(following)
        return self.budget.beyond(counted, expected, steered=self.learner.plan(following).steered)

    def _used(self) -> dict[str, float]:
        """What the run has used until now, over all its lives."""
        moved = self.sessions.moved
        server_cpu_s = time.process_time() - self._cpu_before_s
        return self.budget.used(time.monotonic(), moved=moved, server_cpu_s=server_cpu_s)

    def budget_shares(self) -> dict[str, list[float]]:
        """Return used and limit of every budget that is set, as of now."""
        return self.budget.told({**self._used(), **self.learner.half.used(self.learner.state)})

    def _told(self, used: Mapping[str, float]) -> dict[str, object]:
        """What the line of a round says of the budgets."""
        if not self.budget.limits:
            return {}
        return {"budget": self.budget.told({**used, **self.learner.half.used(self.learner.state)})}

    def _prune(self, round: int) -> None:
        """Remove the checkpoints that no recovery and no reader needs (DESIGN rule 4: r - 1 stays)."""
        keep = {0, round, round - 1, *self.scoring.wanted()}
        keep.update(number for number in self.checkpoints.kept() if self._kept_for_good(number))
        self.checkpoints.prune(keep, upto=round)

    def _kept_for_good(self, round: int) -> bool:
        return bool(self._keep_every) and round % self._keep_every == 0

    # ------------------------------------------------------------------------------- the end

    def note_cost(self, round: int, index: int, row: Row) -> None:
        """Take what a client reports of a round that is over; the next decision writes it down."""
        self.budget.correct(round, index, row)
        self.ledger.add_late(round, index, row)
        if self.machine.ending is not None:
            self.start(self._write_rest())

    def told(self, client_id: str) -> None:
        """A client has the view that says how the run ended."""
        self.heard.add(client_id)
        self.hearing.set()

    def broken(self, error: OSError) -> None:
        """A disk that fails an upload has failed the server: the next start sees what is sound."""
        self.post(Broken(in_words(error), time.monotonic()))

    async def close(self) -> None:
        """Let what is being written be written; give threads and files back."""
        for session in self.sessions:
            if session.upload is not None:
                session.upload.cancel()
        self.learner.hurry()
        if self._keeping is not None:
            self._keeping.cancel()
        await self.settle()
        await self.scoring.close()
        self._rest()
        self._note_used(self._used())
        await self._write_rest()
        if self.opened is not None:
            self.opened.close()
        self.shut_threads()
