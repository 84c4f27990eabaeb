"""Folding: the updates of the open round become sums, ahead while it is open, for good when it is closed."""

from __future__ import annotations

import time
from collections.abc import Collection

import structlog

from edgeflock.server.core.effects import FoldRound
from edgeflock.server.core.events import Folded
from edgeflock.server.core.run import RunMachine
from edgeflock.server.costs.time_line import EXAM, OPEN
from edgeflock.server.engine.means import Means
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.engine.opening import prepared

log = structlog.get_logger()


async def fold_ahead(means: Means, opened: OpenRound, cohort: Collection[int]) -> None:
    """Fold what is complete without a gap while the rest is on its way."""
    began = time.monotonic()
    await means.threads.compute(means.learner.advance, cohort, opened.updates)  # which only grow
    means.bookkeeping.time_line.add(opened.number, "fold_busy", time.monotonic() - began)


async def fold_round(
    means: Means, machine: RunMachine, opened: OpenRound, effect: FoldRound
) -> Folded | None:
    """Fold the counted set; None if S0 failed, of which its own effect tells."""
    if machine.current.answered:  # else it was the deadline that was waited for
        means.bookkeeping.time_line.move(opened.number, OPEN, EXAM, opened.exam_s())
    if not await prepared(opened):
        return None
    rejected = await means.threads.compute(means.learner.fold, effect.counted, dict(opened.updates))
    if rejected:
        names, method = machine.roster.names, means.learner.method.name
        clients = {names[seat]: str(verdict) for seat, verdict in rejected.items()}
        log.warning("updates_rejected", round=effect.round, method=method, clients=clients)
        means.journal.note("updates_rejected", round=effect.round, method=method, clients=clients)
    return Folded(effect.round, rejected, time.monotonic())
