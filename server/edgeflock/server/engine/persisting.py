"""Persisting: decisions become durable before anybody hears of them; the end takes along all that is due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from edgeflock.server.core.decisions import Ended, EndingKind, RoundOpened
from edgeflock.server.core.effects import Announce, Persist
from edgeflock.server.core.events import Done, Persisted
from edgeflock.server.core.run import RunMachine
from edgeflock.server.engine.means import Means
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.engine.opening import wants_no

_END = "run_ended"


async def persist(
    means: Means, machine: RunMachine, opened: OpenRound | None, effect: Persist
) -> tuple[Persisted, ...] | Done:
    """Make decisions durable; the opening of a round that is not wanted after all is none."""
    for record in effect.records:
        if isinstance(record, RoundOpened) and (stop := await _not_wanted(means, record, opened)):
            return Done(stop, time.monotonic())
        if isinstance(record, Ended):
            await _finish(means, record, opened)
    said = [one for record in effect.records for one in machine.announcements(record)]
    if any(isinstance(record, Ended) for record in effect.records):
        await _write_last(means, machine, opened, effect, said)
    else:
        await asyncio.wrap_future(means.journal.decide(effect.records, said))
    return tuple(Persisted(record, time.monotonic()) for record in effect.records)


async def _not_wanted(means: Means, wanted: RoundOpened, before: OpenRound | None) -> str:
    used = means.bookkeeping.spending.used()
    return await means.threads.compute(wants_no, means, wanted, used, before)


# --------------------------------------------------------------------------------- the end


async def _finish(means: Means, ending: Ended, opened: OpenRound | None) -> None:
    """Before the end is said: the model is in its place."""
    bookkeeping = means.bookkeeping
    if ending.discarded and opened is not None:  # it was paid
        lost = opened.lost()
        bookkeeping.spending.settle(opened.number, lost, lost)
    if ending.kind is not EndingKind.FAILED:
        await means.threads.compute(_write_result, means)
    bookkeeping.charge(ending.round or 1)


def _write_result(means: Means) -> None:
    means.files.checkpoints.write_result(means.learner.result_state(), means.learner.result())


async def _write_last(
    means: Means, machine: RunMachine, opened: OpenRound | None, effect: Persist, said: Sequence[Announce]
) -> None:
    """Write the end, and with it all that no transaction holds yet."""
    bookkeeping = means.bookkeeping
    with bookkeeping.unwritten(bookkeeping.rest(machine, opened)) as costs:
        spent = costs.spent.fields()
        last = [replace(one, fields=one.fields | spent) if one.name == _END else one for one in said]
        await asyncio.wrap_future(means.journal.decide(effect.records, last, costs))
    for record in effect.records:
        if isinstance(record, Ended) and record.discarded:
            means.verdicts.add(record.round, record.discarded)
