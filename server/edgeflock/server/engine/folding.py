"""Folding: the updates of the open round become sums, ahead while it is open, for good when it is closed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import structlog

from edgeflock.common.payload.package import Package
from edgeflock.server.core.effects import FoldRound
from edgeflock.server.core.events import Folded, UpdateReceived
from edgeflock.server.core.phases import Phase
from edgeflock.server.costs.ledger import Ledger
from edgeflock.server.engine.audience import Audience
from edgeflock.server.engine.loop import Drive
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.journal.journal import Journal
from edgeflock.server.learning.learner import Learner

log = structlog.get_logger()


@dataclass
class Folding:
    """What becomes of complete updates until the round is committed."""

    drive: Drive
    journal: Journal
    learner: Learner
    audience: Audience
    ledger: Ledger

    def receive(self, opened: OpenRound, seat: int, package: Package) -> None:
        """An update is complete and checked."""
        opened.complete(seat, package)
        self.drive.post(UpdateReceived(opened.number, seat, package.digest, time.monotonic()))
        if self._still_open(opened) and not opened.folding_ahead:
            opened.folding_ahead = True
            self.drive.start(self._fold_ahead(opened))

    def _still_open(self, opened: OpenRound) -> bool:
        machine = self.drive.machine
        return machine.phase is Phase.OPEN and machine.round == opened.number

    async def _fold_ahead(self, opened: OpenRound) -> None:
        """Fold what is complete without a gap while the rest is on its way."""
        prepared = await _prepared(opened)
        opened.folding_ahead = False
        if prepared and self._still_open(opened):
            began, cohort = time.monotonic(), self.drive.machine.current.cohort
            await self.drive.compute(self.learner.advance, cohort, dict(opened.updates))
            self.ledger.line.add(opened.number, "fold_busy", time.monotonic() - began)

    async def fold(self, effect: FoldRound, opened: OpenRound) -> None:
        """Fold the counted set."""
        opened.closed_at = time.monotonic()
        self._end_uploads()
        if not await _prepared(opened):
            return
        rejected = await self.drive.compute(self.learner.fold, effect.counted, dict(opened.updates))
        if rejected:
            names, method = self.drive.machine.roster.names, self.learner.method.name
            clients = {names[seat]: str(verdict) for seat, verdict in rejected.items()}
            log.warning("updates_rejected", round=effect.round, method=method, clients=clients)
            self.journal.note("updates_rejected", round=effect.round, method=method, clients=clients)
        self.drive.post(Folded(effect.round, rejected, time.monotonic()))

    def _end_uploads(self) -> None:
        """Nobody waits for the rest of what is too late."""
        machine = self.drive.machine
        self.audience.let_go(machine.roster.names[seat] for seat in machine.current.missing())


async def _prepared(opened: OpenRound) -> bool:
    """Wait for S0, which the fold may need; why it failed is told by the effect that started it."""
    if opened.preparing is None:
        return True
    if not opened.preparing.done():
        await asyncio.wait([opened.preparing])
    return opened.preparing.exception() is None and opened.preparing.result()
