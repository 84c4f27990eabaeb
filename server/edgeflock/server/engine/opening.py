"""Opening: whether there is another round, the open round made from the machine's decision, its packages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edgeflock.methods.kit.base import Round
from edgeflock.server.core.decisions import RoundOpened
from edgeflock.server.core.effects import PrepareRound
from edgeflock.server.engine.bookkeeping import Accounts
from edgeflock.server.engine.loop import Drive
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.engine.scoring import Scoring
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.files.packages import Broadcast
from edgeflock.server.files.spool import Entry, Spool
from edgeflock.server.journal.journal import Journal
from edgeflock.server.learning.learner import Learner

Received = tuple[tuple[int, bytes], ...]  # seat and digest of what the spool holds already


@dataclass
class Opening:
    """What it takes to open a round."""

    drive: Drive
    journal: Journal
    learner: Learner
    checkpoints: Checkpoints
    spool: Spool
    scoring: Scoring
    accounts: Accounts
    samples: Mapping[int, int]  # by seat, as of now
    _first: bool = field(default=True, init=False)  # of this life: another may have left it open

    def wants_no(self, wanted: RoundOpened, used: Mapping[str, float], before: OpenRound | None) -> str:
        """Return why there is no such round: the method wants none, or the budgets leave no room."""
        closing, budget = bool(wanted.last), self.accounts.budget
        following = self.learner.round(wanted.round, wanted.cohort, self.samples, closing=closing)
        if (stop := self.learner.wants_no(following)) or not budget.limits:
            return stop
        if closing:  # room for it was kept, but for what nobody foresaw: it would be cut at once
            return budget.reached(used, self.accounts.own())
        if before is not None and before.used_up:
            return budget.short(used, before.used_up)
        expected = self.learner.expected_bytes(following)
        steered = self.learner.plan(following).steered
        return budget.beyond(self.accounts.counted(used), expected, steered=steered)

    async def open(self, effect: PrepareRound, began: float) -> tuple[OpenRound, Received]:
        """Return the open round with its allowances, and what the spool holds of it; S0 is on its way."""
        ask, number = self.journal.ask, effect.round  # the same after a restart
        roster = await asyncio.wrap_future(ask(lambda past: past.roster(number)))
        kept = await asyncio.wrap_future(ask(lambda past: past.costs(number))) if self._first else None
        round = self.learner.round(effect.round, effect.cohort, roster, closing=effect.last)
        opened, received = await self.drive.compute(self._open, round, effect.added, began)
        if kept is not None:
            self.accounts.ledger.resume(kept, opened)
            self._first = False
        spare = self.drive.machine.current.spare
        opened.allow(self.accounts.budget, self.accounts.used_with(opened), spare=spare)
        if self.learner.prepares(round):
            opened.prepare(self._prepare(round))
        return opened, received

    def _open(self, round: Round, added: tuple[int, ...], began: float) -> tuple[OpenRound, Received]:
        checkpoint = self.checkpoints.model_path(round.number - 1)
        work = self.learner.open(round, checkpoint, self.spool.packages(round.number))
        work = replace(work, scores=self.scoring.wishes(round.number, last=round.closing))
        opened = OpenRound(
            work, self.spool.prepare(round.number, (*round.cohort, *added), work.upload_limit), began
        )
        return opened, opened.restore()

    async def _prepare(self, round: Round) -> bool:
        began = time.monotonic()
        prepared = await self.drive.prepare(self.learner.prepare, round)
        self.accounts.ledger.line.add(round.number, "prepare_busy", time.monotonic() - began)
        return prepared

    # ------------------------------------------------------------------------------- member by member

    async def personal(self, opened: OpenRound, seat: int) -> Broadcast:
        """Return one client's package, formed when it is first asked for."""
        scratch = self.spool.packages(opened.number)
        return await opened.personal(
            seat, lambda: self.drive.compute(self.learner.personal, opened.work, seat, scratch)
        )

    async def entry(self, opened: OpenRound, seat: int) -> Entry:
        """Return the spool entry of a member; made now if the round was extended by it.

        In the thread that opens rounds: what a later one does to the spool comes after this.
        """
        return await opened.entry(seat, lambda: self.drive.compute(self._add, opened, seat))

    def _add(self, opened: OpenRound, seat: int) -> Entry:
        return self.spool.prepare(opened.number, (seat,), opened.work.upload_limit)[seat]
