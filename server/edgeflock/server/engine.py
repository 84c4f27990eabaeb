"""The engine: feeds the round machine with events and executes its effects, each where it belongs.

The event loop only decides and speaks. Arithmetic and checkpoints run in one thread, spool writes in a few,
evaluation in another, SQLite in the journal's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar, assert_never

import structlog

from edgeflock.common.errors import EdgeflockError
from edgeflock.common.package import Package
from edgeflock.server import records
from edgeflock.server.broadcast import Broadcast
from edgeflock.server.checkpoint import Checkpoints, Saved
from edgeflock.server.events import (
    Announce,
    Broken,
    CommitRound,
    Committed,
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
    RoundPrepared,
    SpaceMissing,
    Ticked,
    UpdateReceived,
    Verdict,
)
from edgeflock.server.fold import SpooledUpdate
from edgeflock.server.journal import Journal, JournalBroken, read_only, write_event
from edgeflock.server.learner import Learner, RoundWork
from edgeflock.server.rounds import RoundMachine
from edgeflock.server.scoring import Scoring
from edgeflock.server.sessions import Sessions
from edgeflock.server.spool import Entry, Spool
from edgeflock.server.uploads import package_of

log = structlog.get_logger()
T = TypeVar("T")

_FULL = (errno.ENOSPC, errno.EDQUOT)


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
        outcomes: dict[int, list[Outcome]],
        samples: dict[int, int],
    ) -> None:
        self.machine, self.journal, self.learner = machine, journal, learner
        self.checkpoints, self.spool, self.scoring = checkpoints, spool, scoring
        self.epoch = epoch
        self.sessions = Sessions()
        self.samples = samples  # roster index -> n_i
        self.outcomes = outcomes  # of the last two settled rounds
        self.work: RoundWork | None = None  # of the open round
        self.entries: dict[int, Entry] = {}  # the open round's spool
        self.updates: dict[int, SpooledUpdate] = {}  # the complete ones of it
        self.costs: dict[int, dict[str, float]] = {}  # of the open round, by roster index
        self.ended: asyncio.Future[Ended | None] = asyncio.get_running_loop().create_future()
        self.heard: set[str] = set()  # client ids that were told how the run ended
        self.hearing = asyncio.Event()
        self._keep_every = keep_every
        self._personal: dict[int, asyncio.Future[Broadcast]] = {}
        self._arithmetic = ThreadPoolExecutor(1, "arithmetic")
        self._files = ThreadPoolExecutor(4, "spool")
        self._queue: deque[Event] = deque()
        self._handling = False
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
            self._failed(
                effect, f"{error.strerror}: {error.filename or 'run directory'}", error.errno in _FULL
            )
        except EdgeflockError as error:
            self._failed(effect, str(error), False)

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

        def transaction(connection: Any) -> None:
            for record in effect.records:
                records.write(connection, self.epoch, record)

        await asyncio.wrap_future(self.journal.submit(transaction))
        for record in effect.records:
            if isinstance(record, Ended) and record.discarded:
                self.outcomes[record.round] = list(record.discarded)
            self.post(Persisted(record, time.monotonic()))

    async def _finish(self, ending: Ended) -> None:
        """Before the end is said: the last evaluation is in the journal and the model is in its place."""
        await self.scoring.finish()
        if ending.kind is not EndingKind.FAILED:
            await self.compute(
                lambda: self.checkpoints.write_result(self.learner.state, self.learner.result())
            )

    # ------------------------------------------------------------------------------- the round

    async def _prepare(self, effect: PrepareRound) -> None:
        self.work, self.updates, self._personal = None, {}, {}
        self.costs = {}
        self._opened_at = time.monotonic()
        round = self.learner.round(effect.round, effect.cohort, self.samples)
        scratch = self.spool.root / f"{effect.round:06d}.packages"
        checkpoint = self.checkpoints.model_path(effect.round - 1)
        work = await self.compute(self.learner.open, round, checkpoint, scratch)
        self.entries = await self.write(self.spool.prepare, effect.round, effect.cohort, work.upload_limit)
        self.work = work
        received = tuple(self._restore(index, entry, work) for index, entry in self.entries.items())
        known = tuple(item for item in received if item is not None)
        self.post(RoundPrepared(effect.round, known, time.monotonic()))
        await self.compute(self.learner.prepare, round)

    def _restore(self, index: int, entry: Entry, work: RoundWork) -> tuple[int, bytes] | None:
        """Take an update that a previous process had received."""
        package = package_of(entry.header) if entry.header else None
        if package is None or entry.held != package.size_bytes or entry.running != package.crc32c:
            return None
        entry.finish()
        self.updates[index] = self._spooled(index, package, entry, work)
        return index, package.digest

    def _spooled(self, index: int, package: Package, entry: Entry, work: RoundWork) -> SpooledUpdate:
        return SpooledUpdate(index, package, entry.data_path, self.learner.update_layouts(work.round))

    async def personal(self, index: int) -> Broadcast:
        """Return one client's package, formed when it is first asked for."""
        assert self.work is not None
        if index not in self._personal:
            scratch = self.spool.root / f"{self.work.round.number:06d}.packages"
            made = asyncio.ensure_future(self.compute(self.learner.personal, self.work, index, scratch))
            self._personal[index] = made
        return await self._personal[index]

    def add_member(self, index: int) -> Entry | None:
        """Return the spool entry of a member; made now if the round was extended by it."""
        if index not in self.entries and self.work is not None and index in self.machine.cohort:
            made = self.spool.prepare(self.work.round.number, (index,), self.work.upload_limit)
            self.entries.update(made)
        return self.entries.get(index)

    def received(self, index: int, package: Package) -> None:
        """An update is complete and checked."""
        assert self.work is not None
        self.entries[index].finish()
        self.updates[index] = self._spooled(index, package, self.entries[index], self.work)
        number = self.work.round.number
        self.post(UpdateReceived(number, index, package.digest, time.monotonic()))
        if self.machine.phase is Phase.OPEN:
            cohort, updates = self.machine.cohort, dict(self.updates)
            self._start(self.compute(self.learner.advance, cohort, updates))

    async def _fold(self, effect: FoldRound) -> None:
        self._closed_at = time.monotonic()
        rejected = await self.compute(self.learner.fold, effect.counted, dict(self.updates))
        if rejected:
            fields = {self.machine.seats[index]: str(verdict) for index, verdict in rejected.items()}
            log.warning(
                "updates_rejected", round=effect.round, method=self.learner.method.name, clients=fields
            )
            self.journal.note("updates_rejected", round=effect.round, clients=fields)
        self.post(Folded(effect.round, rejected, time.monotonic()))

    async def _commit(self, effect: CommitRound) -> None:
        assert self.work is not None
        folded_at = time.monotonic()
        round = self.work.round
        metrics, saved = await self.compute(self._step_and_save, round)
        stop = await self.compute(self._stop_reason, effect)
        times = {
            "open_s": self._closed_at - self._opened_at,
            "fold_s": folded_at - self._closed_at,
            "commit_s": time.monotonic() - folded_at,
        }
        costs = self._take_costs()
        fields = self._canonical(effect, metrics, times, costs)
        transaction = partial(self._write_commit, effect, saved, metrics | times, costs, fields, stop)
        await asyncio.wrap_future(self.journal.submit(transaction))
        log.info("round_committed", **fields)
        self.outcomes[effect.round] = list(effect.outcomes)
        self.outcomes.pop(effect.round - 2, None)
        score = self.scoring.started(effect.round)
        if score is not None and self.scoring.blocking:
            await score
        self.post(Committed(effect.round, time.monotonic(), stop))
        await self.write(self._clean, effect.round)

    def _step_and_save(self, round: Any) -> tuple[dict[str, float], Saved]:
        metrics = self.learner.step(round)
        saved = self.learner.save(self.checkpoints, round.number)
        self.scoring.take(round.number, self.learner)
        return metrics, saved

    def _stop_reason(self, effect: CommitRound) -> str:
        if effect.next is None:
            return ""
        return self.learner.plan(self.learner.round(effect.next.round, effect.next.cohort, self.samples)).stop

    def _write_commit(
        self,
        effect: CommitRound,
        saved: Saved,
        values: dict[str, float],
        costs: dict[int, dict[str, float | int | None]],
        fields: dict[str, object],
        stop: str,
        connection: Any,
    ) -> None:
        """The transaction that makes a round count, and opens the next."""
        epoch, round = self.epoch, effect.round
        records.write_commit(connection, epoch, round, saved.model.digest, saved.state_digest)
        records.write_outcomes(connection, epoch, round, effect.outcomes)
        records.write_round_costs(connection, epoch, round, values)
        for index, row in costs.items():
            records.write_cost(connection, epoch, round, index, row)
        if effect.next is not None and not stop:
            records.write(connection, epoch, effect.next)
        write_event(connection, "round_committed", fields)

    def _canonical(
        self,
        effect: CommitRound,
        metrics: dict[str, float],
        times: dict[str, float],
        costs: dict[int, dict[str, float | int | None]],
    ) -> dict[str, object]:
        """The one line that says everything of a round."""
        missed = [item for item in effect.outcomes if item.verdict is not Verdict.COUNTED]
        return {
            "round": effect.round,
            "counted": len(effect.outcomes) - len(missed),
            "not_counted": {self.machine.seats[item.index]: str(item.verdict) for item in missed},
            **metrics,
            **{name: round(value, 6) for name, value in times.items()},
            "seconds": round(sum(times.values()), 6),
            "bytes_down": sum(int(row["bytes_down"] or 0) for row in costs.values()),
            "bytes_up": sum(int(row["bytes_up"] or 0) for row in costs.values()),
        }

    def _take_costs(self) -> dict[int, dict[str, float | int | None]]:
        """Close the round's books: what the server measured, and what came in the headers."""
        rows: dict[int, dict[str, float | int | None]] = {}
        for index in self.machine.cohort:
            session = self.sessions.by_id(self.machine.seats[index])
            counted = session.take_bytes() if session is not None else {"bytes_down": 0, "bytes_up": 0}
            update = self.updates.get(index)
            size = update.package.size_bytes if update is not None else 0
            resent = max(0, counted["bytes_up"] - size) if update is not None else 0
            rows[index] = {**counted, "resent_bytes": resent, **self.costs.get(index, {})}
        return rows

    def _clean(self, round: int) -> None:
        """Remove what no recovery and no reader needs (DESIGN rule 4: state r - 1 stays)."""
        keep = {0, round, round - 1, *self.scoring.wanted()}
        keep.update(number for number in self.checkpoints.kept() if self._kept_for_good(number))
        self.checkpoints.prune(keep)

    def _kept_for_good(self, round: int) -> bool:
        return bool(self._keep_every) and round % self._keep_every == 0

    # ------------------------------------------------------------------------------- the end

    def settled(self, index: int, round: int) -> Outcome | None:
        """Return the final word on a member's update of a settled round, from memory or the journal."""
        known = self.outcomes.get(round)
        if known is None:
            with contextlib.closing(read_only(self.journal.path)) as connection:
                known = records.read_outcomes(connection, self.epoch, [round])[round]
        return next((item for item in known if item.index == index), None)

    def told(self, client_id: str) -> None:
        """A client has the view that says how the run ended."""
        self.heard.add(client_id)
        self.hearing.set()

    def give_up(self) -> None:
        """The time to drain is over: leave the round as it is, the journal and the spool hold it."""
        if not self.ended.done():
            self.ended.set_result(None)

    async def close(self) -> None:
        """Let what is being written be written; give threads and files back."""
        if self._timer is not None:
            self._timer.cancel()
        pending = list(self._tasks)
        if pending:
            await asyncio.wait(pending)
        await self.scoring.finish()
        for session in self.sessions:
            if session.upload is not None:
                session.upload.cancel()
        for entry in self.entries.values():
            entry.close()
        self._arithmetic.shutdown()
        self._files.shutdown()
