"""Committing: a new state and its rows become durable together; then its score, the target, the clearing."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace
from functools import partial

import structlog

from edgeflock.methods.kit.base import Round
from edgeflock.server.core.effects import Announce, CommitRound
from edgeflock.server.core.events import Committed, TargetReached
from edgeflock.server.costs.rows import Costs
from edgeflock.server.costs.target import Target
from edgeflock.server.engine.bookkeeping import Accounts
from edgeflock.server.engine.books import canonical_line
from edgeflock.server.engine.client_scores import ClientScores
from edgeflock.server.engine.loop import Drive
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.engine.opening import Opening
from edgeflock.server.engine.scoring import Scoring
from edgeflock.server.engine.verdicts import Verdicts
from edgeflock.server.files.checkpoints import Checkpoints, Saved
from edgeflock.server.journal.journal import Commit, Journal
from edgeflock.server.learning.learner import Learner

log = structlog.get_logger()


@dataclass
class Committing:
    """What it takes to commit a round."""

    drive: Drive
    journal: Journal
    learner: Learner
    checkpoints: Checkpoints
    scoring: Scoring
    opening: Opening
    accounts: Accounts
    verdicts: Verdicts
    target: Target
    keep_every: int  # rounds whose checkpoint stays for good; 0: none

    async def commit(self, effect: CommitRound, opened: OpenRound) -> None:
        """Make the round count; the machine hears of it when it does."""
        if self.target and await self.reached(effect.round - 1):
            return  # the event that ends the run is there already
        stop = await self._write(effect, opened)
        self.verdicts.add(effect.round, effect.outcomes)
        with self.accounts.ledger.blocked() if self.scoring.blocking else contextlib.nullcontext():
            await self.scoring.started(effect.round)
        self.accounts.rest()
        last = effect.next is None or bool(stop)
        reached = await self.reached(effect.round) if last and not self.drive.machine.draining else ""
        self.drive.post(Committed(effect.round, time.monotonic(), stop, reached))
        self.scored(effect.round)
        await self.drive.write(self._prune, effect.round)

    async def _write(self, effect: CommitRound, opened: OpenRound) -> str:
        """Write state, costs and the next opening; return why there is none after all."""
        ledger = self.accounts.ledger
        round = replace(opened.work.round, costs=opened.measured() | self.accounts.used_with(opened))
        metrics, saved, stop = await self.drive.compute(self._step_and_save, round, effect, opened)
        books, first = ledger.close_round(opened)
        if first:
            self.accounts.settle(effect.round, books.fresh)
        metrics |= ledger.server_use(effect.round, tested_s=self.scoring.took_s)
        used = self.accounts.used()
        scores = ClientScores.of(opened.scores, effect.outcomes)
        with ledger.writing() as pending:
            spent = ledger.line.of(effect.round)
            line = canonical_line(self.drive.machine, effect, metrics, spent, books.rows)
            line |= self.accounts.told(used)
            done = Announce("closing_committed" if round.closing else "round_committed", line)
            said = scores.announcements(effect.round)
            commit = Commit(
                round=effect.round,
                digests=(saved.model.digest, saved.state_digest),
                outcomes=effect.outcomes,
                next=None if stop else effect.next,
                values=metrics,
                measured=round.costs,
                costs=Costs(pending, books, used, self.accounts.own()),
                conduct=effect.conduct,
                evaluations=scores.summaries(),
                scores=scores.by_seat,
                announcements=(*said, *effect.announcements, done),
            )
            await asyncio.wrap_future(self.journal.commit(commit))
        for one in (done, *said):
            log.info(one.name, **one.fields)
        return stop

    def _step_and_save(
        self, round: Round, effect: CommitRound, opened: OpenRound
    ) -> tuple[dict[str, float], Saved, str]:
        metrics = self.learner.step(round)
        saved = self.learner.save(self.checkpoints, round.number)
        self.scoring.take(round.number, self.learner, last=round.closing)
        if effect.next is None:
            return metrics, saved, ""
        return metrics, saved, self.opening.wants_no(effect.next, round.costs, opened)

    def _prune(self, round: int) -> None:
        """Remove the checkpoints that no recovery and no reader needs (DESIGN rule 4: r - 1 stays)."""
        keep = {0, round, round - 1, *self.scoring.wanted()}
        keep.update(number for number in self.checkpoints.kept() if self._kept_for_good(number))
        self.checkpoints.prune(keep, upto=round)

    def _kept_for_good(self, round: int) -> bool:
        return bool(self.keep_every) and round % self.keep_every == 0

    # ------------------------------------------------------------------------------- scores and target

    async def score_again(self, round: int, *, last: bool = False) -> None:
        """Test the committed model if a crash came before its score was written down; call it first."""
        if round and not self.scoring.knows(round):
            await self.drive.compute(partial(self.scoring.take, round, self.learner, last=last))
            await self.scoring.started(round)

    async def reached(self, round: int) -> str:
        """Return why the run ends with a committed round, once its evaluation is in the journal."""
        if not self.target:
            return ""
        with self.accounts.ledger.blocked():
            await self.scoring.settled(round)
        return self.target.reached(round, self.scoring.accuracies.get(round))

    def scored(self, round: int) -> None:
        """The journal holds how a round's model does; if its commit is not told of yet, that comes first."""
        if reason := self.target.reached(round, self.scoring.accuracies.get(round)):
            self.drive.post(TargetReached(round, reason, time.monotonic()))
