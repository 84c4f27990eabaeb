"""The engine: executes the round machine's effects, each where it belongs.

The event loop only decides and speaks. Arithmetic and checkpoints run in one thread, spool writes in a few,
evaluation in another, SQLite in the journal's own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

import structlog

from edgeflock.common.payload.package import Package
from edgeflock.server.core.decisions import Ended, EndingKind, Outcome, RoundOpened
from edgeflock.server.core.effects import (
    Announce,
    CommitRound,
    Effect,
    Exit,
    FoldRound,
    Persist,
    PrepareRound,
    Publish,
)
from edgeflock.server.core.events import Broken, Done, Event, Persisted, Ready, RoundPrepared
from edgeflock.server.core.run import RunMachine
from edgeflock.server.costs.budget import Budget
from edgeflock.server.costs.ledger import Ledger
from edgeflock.server.costs.rows import Costs
from edgeflock.server.costs.target import Target
from edgeflock.server.costs.traffic import TrafficBook
from edgeflock.server.engine.audience import Audience
from edgeflock.server.engine.bookkeeping import Accounts
from edgeflock.server.engine.committing import Committing
from edgeflock.server.engine.folding import Folding
from edgeflock.server.engine.loop import Drive, in_words
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.engine.opening import Opening
from edgeflock.server.engine.scoring import Scoring
from edgeflock.server.engine.verdicts import Verdicts
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.files.spool import Spool
from edgeflock.server.journal.journal import Journal
from edgeflock.server.learning.learner import Learner

log = structlog.get_logger()


class Engine(Drive):
    """One run in motion."""

    def __init__(
        self,
        machine: RunMachine,
        journal: Journal,
        learner: Learner,
        checkpoints: Checkpoints,
        spool: Spool,
        scoring: Scoring,
        *,
        audience: Audience,
        traffic: TrafficBook,
        keep_every: int,
        outcomes: dict[int, dict[int, Outcome]],
        samples: dict[int, int],
        budget: Budget | None = None,
        target: Target | None = None,
    ) -> None:
        super().__init__(machine)
        self.journal, self.learner = journal, learner
        self.samples = samples  # seat -> n_i
        self.audience, self.traffic = audience, traffic
        self.verdicts = verdicts = Verdicts(outcomes, journal)
        self.opened: OpenRound | None = None  # the open round
        self.ended: asyncio.Future[Ended | None] = asyncio.get_running_loop().create_future()
        self._checkpoints, self._scoring = checkpoints, scoring
        self.ledger = ledger = Ledger(machine, traffic, learner)
        budget, target = budget or Budget(), target or Target()
        self.accounts = accounts = Accounts(
            self, journal, learner, traffic, ledger, budget, at_hand=lambda: self.opened
        )
        self.opening = opening = Opening(
            self, journal, learner, checkpoints, spool, scoring, accounts, samples
        )
        self._folding = Folding(self, journal, learner, audience, ledger)
        self.committing = Committing(
            self,
            journal,
            learner,
            checkpoints,
            scoring,
            opening,
            accounts,
            verdicts,
            target,
            keep_every,
        )
        scoring.listener = self.committing.scored
        scoring.busy = lambda round, seconds: ledger.line.add(round, "evaluate_busy", seconds)

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
                self.start(self._folding.fold(effect, self._at_hand), effect)
            case CommitRound():
                self.start(self.committing.commit(effect, self._at_hand), effect)
            case Publish():
                self.audience.publish()
            case Announce(name=name, fields=fields, written=written):
                log.info(name, **fields)
                if not written:
                    self.journal.note(name, **fields)
            case Exit(ending=ending):
                if not self.ended.done():
                    self.ended.set_result(ending)
            case _:
                assert_never(effect)

    @property
    def _at_hand(self) -> OpenRound:
        assert self.opened is not None  # what is folded or committed was opened before
        return self.opened

    # ------------------------------------------------------------------------------- what clients do

    def ready(self, client_id: str, seat: int, samples: int, classes: Sequence[int] = ()) -> None:
        """A member has its data, so many samples of each class, and waits for tasks."""
        self.samples[seat] = samples
        self.journal.ready(seat, samples)
        told = {"classes": list(classes)} if classes else {}
        self.journal.note("client_ready", client=client_id, seat=seat, samples=samples, **told)
        self.post(Ready(seat, time.monotonic()))

    def received(self, seat: int, package: Package) -> None:
        """An update is complete and checked."""
        self._folding.receive(self._at_hand, seat, package)

    def broken(self, error: OSError) -> None:
        """A disk that fails an upload has failed the server: the next start sees what is sound."""
        self.post(Broken(in_words(error), time.monotonic()))

    # ------------------------------------------------------------------------------- decisions

    async def _persist(self, effect: Persist) -> None:
        for record in effect.records:
            if isinstance(record, Ended):
                await self._finish(record)
            if isinstance(record, RoundOpened) and (
                stop := await self.compute(self.opening.wants_no, record, self.accounts.used(), self.opened)
            ):
                self.post(Done(stop, time.monotonic()))
                return

        if any(isinstance(record, Ended) for record in effect.records):
            used = self.accounts.used()
            with self.accounts.due(used) as costs:  # a round that is discarded was paid
                await self._write(effect, costs, **self.accounts.told(used))
        else:
            await self._write(effect)
        for record in effect.records:
            if isinstance(record, Ended) and record.discarded:
                self.verdicts.add(record.round, record.discarded)
            self.post(Persisted(record, time.monotonic()))

    async def _write(self, effect: Persist, costs: Costs | None = None, **told: object) -> None:
        """Make decisions durable, in one transaction with what is said of them; `told` is of the end."""
        said = [
            replace(one, fields=one.fields | told) if one.name == "run_ended" else one
            for record in effect.records
            for one in self.machine.announcements(record)
        ]
        await asyncio.wrap_future(self.journal.decide(effect.records, said, costs))

    async def _prepare(self, effect: PrepareRound) -> None:
        began = time.monotonic()
        self.accounts.begin(began)
        if self.opened is not None:
            self.opened.close()
        self.opened = None
        self.opened, received = await self.opening.open(effect, began)
        preparing = self.opened.preparing
        self.post(RoundPrepared(effect.round, received, time.monotonic()))
        self.accounts.keep()
        if preparing is not None:
            await preparing  # why S0 failed is told by this effect

    # ------------------------------------------------------------------------------- the end

    async def _finish(self, ending: Ended) -> None:
        """Before the end is said: the last evaluation is in the journal and the model is in its place."""
        self.accounts.rest()
        if ending.discarded and self.opened is not None:
            self.accounts.settle_lost(self.opened)
        with self.ledger.blocked():
            await self._scoring.finish()
        if ending.kind is not EndingKind.FAILED:
            await self.compute(self._write_result)
        self.ledger.charge(ending.round or 1)

    def _write_result(self) -> None:
        self._checkpoints.write_result(self.learner.result_state(), self.learner.result())

    async def close(self) -> None:
        """Let what is being written be written; give threads and files back."""
        self.audience.let_go(self.machine.roster.names.values())
        self.learner.hurry()
        await self.settle()
        await self._scoring.close()
        await self.accounts.close()
        if self.opened is not None:
            self.opened.close()
        self.shut_threads()
