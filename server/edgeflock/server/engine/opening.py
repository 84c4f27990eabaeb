"""Opening: a round that is decided becomes one that clients can take part in; whether there is one at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgeflock.methods.kit.base import Round
from edgeflock.server.core.decisions import RoundOpened
from edgeflock.server.core.effects import PrepareRound
from edgeflock.server.core.run import RunMachine
from edgeflock.server.engine.means import Means
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.files.packages import Broadcast
from edgeflock.server.files.spool import Arrival, SpoolEntry


def wants_no(means: Means, wanted: RoundOpened, used: Mapping[str, float], before: OpenRound | None) -> str:
    """Return why there is no such round: the method wants none, or the budgets leave no room."""
    learner, spending = means.learner, means.bookkeeping.spending
    budget, closing = spending.budget, bool(wanted.last)
    following = learner.round(wanted.round, wanted.cohort, means.samples, closing=closing)
    if (stop := learner.wants_no(following)) or not budget.limits:
        return stop
    if closing:  # room for it was kept, but for what nobody foresaw: it would be cut at once
        return budget.reached(used, spending.simulated())
    if before is not None and before.used_up:
        return budget.short(used, before.used_up)
    expected, steered = learner.expected(following), learner.plan(following).steered
    return budget.beyond({**used, **spending.simulated()}, expected, steered=steered)


async def open_round(means: Means, machine: RunMachine, effect: PrepareRound, *, first: bool) -> OpenRound:
    """Return the open round with its allowances and what the spool holds of it; S0 is on its way.

    The first round of a life may go on with what another one has left.
    """
    began = time.monotonic()
    means.bookkeeping.begin(effect.round, testing=effect.last and means.learner.closing_tests)
    ask, number = means.journal.ask, effect.round  # the same after a restart
    roster = await asyncio.wrap_future(ask(lambda past: past.roster(number)))
    kept = await asyncio.wrap_future(ask(lambda past: past.costs(number))) if first else None
    round = means.learner.round(number, effect.cohort, roster, closing=effect.last)
    opened = await means.threads.compute(_open, means, round, effect.added, began)
    if kept is not None:
        means.bookkeeping.resume(kept, opened, machine.roster.names, cut=means.cut)
    spending = means.bookkeeping.spending
    opened.allow(spending.budget, spending.used_with(opened), spare=machine.current.spare)
    if means.learner.prepares(round):
        opened.prepare(_prepare(means, round))
    return opened


def _open(means: Means, round: Round, added: tuple[int, ...], began: float) -> OpenRound:
    checkpoint, spool = means.files.checkpoints.model_path(round.number - 1), means.files.spool
    work = means.learner.open(round, checkpoint, spool.packages(round.number))
    work = replace(work, scores=means.scoring.tests.wishes(round.number, last=round.closing))
    entries = spool.prepare(round.number, (*round.cohort, *added), work.upload_limit)
    opened = OpenRound(work, entries, began)
    opened.restore()
    return opened


async def _prepare(means: Means, round: Round) -> bool:
    began = time.monotonic()
    prepared = await means.threads.prepare(means.learner.prepare, round)
    means.bookkeeping.time_line.add(round.number, "prepare_busy", time.monotonic() - began)
    return prepared


async def prepared(opened: OpenRound) -> bool:
    """Wait for S0, which the fold may need; return whether it is there: why not, its own effect tells."""
    if opened.preparing is None:
        return True
    if not opened.preparing.done():
        await asyncio.wait([opened.preparing])
    return opened.preparing.exception() is None and opened.preparing.result()


async def release(means: Means, unreleased: Sequence[Arrival]) -> None:
    """Give the files of updates that were not completed back."""
    await means.threads.write(_release, unreleased)


def _release(unreleased: Sequence[Arrival]) -> None:
    for arrival in unreleased:
        arrival.release()


# --------------------------------------------------------------------------------- member by member


async def personal(means: Means, opened: OpenRound, seat: int) -> Broadcast:
    """Return one client's package, formed when it is first asked for."""
    scratch = means.files.spool.packages(opened.number)
    return await opened.personal(
        seat, lambda: means.threads.compute(means.learner.personal, opened.work, seat, scratch)
    )


async def entry(means: Means, opened: OpenRound, seat: int) -> SpoolEntry:
    """Return the spool entry of a member; made now if the round was extended by it.

    In the thread that opens rounds: what a later one does to the spool comes after this.
    """
    return await opened.entry(seat, lambda: means.threads.compute(_add, means, opened, seat))


def _add(means: Means, opened: OpenRound, seat: int) -> SpoolEntry:
    return means.files.spool.prepare(opened.number, (seat,), opened.work.upload_limit)[seat]
