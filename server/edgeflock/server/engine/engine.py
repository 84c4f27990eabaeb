"""The engine: a table that says which effect of the machine is which function, and what runs beside.

The event loop only decides and speaks. Arithmetic and checkpoints run in one thread, spool writes in a few,
evaluation in another, SQLite in the journal's own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Protocol, assert_never

import structlog

from edgeflock.common import garbage
from edgeflock.common.payload.description import Description
from edgeflock.server.core.decisions import Ended
from edgeflock.server.core.effects import (
    Announce,
    CommitRound,
    Effect,
    Exit,
    FoldRound,
    Persist,
    PrepareRound,
    Publish,
    TestModel,
)
from edgeflock.server.core.events import (
    Committed,
    Event,
    Folded,
    LimitReached,
    RoundPrepared,
    Started,
    Tested,
    TestFailed,
    UpdateReceived,
)
from edgeflock.server.core.phases import Phase
from edgeflock.server.core.run import RunMachine
from edgeflock.server.engine.bookkeeping import within
from edgeflock.server.engine.committing import commit_round, prune
from edgeflock.server.engine.folding import fold_ahead, fold_round
from edgeflock.server.engine.loop import Loop, Work
from edgeflock.server.engine.means import Means
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.engine.opening import open_round, prepared, release
from edgeflock.server.engine.persisting import persist

log = structlog.get_logger()

_BEFORE = (Phase.IDLE, Phase.GATHERING)  # the rounds


class Audience(Protocol):
    """Everybody who listens to a run; made by whoever brings them."""

    def publish(self, clients: Iterable[str] | None = None, *, offered: bool = False) -> None:
        """Something in what these see has changed, or everybody; `offered`: for who keeps a model, too."""
        ...

    def let_go(self, clients: Iterable[str]) -> None:
        """Nobody waits any more for what is on its way from these."""
        ...


class Engine:
    """One run in motion."""

    def __init__(self, machine: RunMachine, means: Means, audience: Audience) -> None:
        self.machine, self.means, self._audience = machine, means, audience
        self.opened: OpenRound | None = None  # the open round, or the one that was open last
        self.ended: asyncio.Future[Ended | None] = asyncio.get_running_loop().create_future()
        self._loop = Loop(machine, means.bookkeeping.time_line, self._carry_out)
        self._opened = asyncio.Event()  # a round has been opened, or none will be
        self._closing = False
        self._first = True  # the round to be opened is the first of this life
        self._said: object = None  # what everybody was told last
        self._best: object = None  # the best model as it was when somebody was told last

    async def begin(self, started: Started) -> None:
        """Go on from what the run directory holds."""
        means = self.means
        self._loop.start(self._keep())
        if means.bookkeeping.spending.budget.limits:
            self._loop.start(means.bookkeeping.watch.reached())
        self.post(replace(started, now=time.monotonic()))

    def post(self, event: Event) -> None:
        """Give the machine an event and start what it decides; only on the event loop."""
        self._loop.post(event)

    async def until(self, done: Callable[[], bool]) -> bool:
        """Wait until the machine is where that holds; return whether it is, or decides nothing any more."""
        return await self._loop.until(done)

    # ------------------------------------------------------------------------------- effects

    def _carry_out(self, effect: Effect) -> Work | None:
        """Begin what the machine wants done: return what takes longer than a moment."""
        match effect:
            case Persist():
                return persist(self.means, self.machine, self.opened, effect)
            case PrepareRound():
                return self._open(effect)
            case FoldRound():
                return self._fold(effect)
            case CommitRound():
                return self._commit(effect)
            case TestModel():
                return self._test(effect)
            case Publish(seats=seats):
                self._publish(seats)
            case Announce(name=name, fields=fields, written=written):
                log.info(name, **fields)
                if not written:
                    self.means.journal.note(name, **fields)
            case Exit(ending=ending):
                if not self.ended.done():
                    self.ended.set_result(ending)
            case _:
                assert_never(effect)
        return None

    def _publish(self, seats: Collection[int] | None) -> None:
        """Wake whoever has news: what is the same for all wakes all, a round only those who have to do with
        it. A client without a task hears nothing of rounds: their cost does not grow with who is online."""
        machine, best = self.machine, self.machine.testing.best
        said = (machine.pause, machine.draining, machine.ending, machine.phase in _BEFORE)
        judged, names = self.means.verdicts.news(), machine.roster.names
        whom = None if seats is None or said != self._said else [names[seat] for seat in {*seats, *judged}]
        self._audience.publish(whom, offered=best != self._best)
        self._said, self._best = said, best

    @property
    def _open_round(self) -> OpenRound:
        assert self.opened is not None  # what is folded or committed was opened before
        return self.opened

    async def _open(self, effect: PrepareRound) -> RoundPrepared:
        self._let_go()
        self.opened = None
        self.opened = opened = await open_round(self.means, self.machine, effect, first=self._first)
        if self._first:  # everybody is here who will be
            garbage.settle(self.machine.rules.clients)
        self._first = False
        self._opened.set()
        if opened.preparing is not None:
            self._loop.start(_s0(opened.preparing), effect)  # why it fails is told by this effect
        received = tuple((seat, update.package.digest) for seat, update in opened.updates.items())
        return RoundPrepared(effect.round, received, time.monotonic())

    def _let_go(self) -> None:
        """Take no more bytes for the round that was open last."""
        if self.opened is not None and (unreleased := self.opened.close()):
            self._loop.start(release(self.means, unreleased))

    async def _fold(self, effect: FoldRound) -> Folded | None:
        machine = self.machine  # nobody waits for the rest of what is too late
        self._audience.let_go(machine.roster.names[seat] for seat in machine.current.missing())
        return await fold_round(self.means, machine, self._open_round, effect)

    async def _commit(self, effect: CommitRound) -> Committed:
        committed = await commit_round(self.means, self.machine, self._open_round, effect)
        kept = self.machine.testing.kept
        self._loop.start(prune(self.means, effect.round, kept))  # begins when the commit is told
        return committed

    async def _test(self, effect: TestModel) -> Tested | TestFailed:
        means = self.means
        return await means.scoring.test(effect, means.learner, means.files.checkpoints, means.journal)

    # ------------------------------------------------------------------------------- beside the effects

    async def _keep(self) -> None:
        """Write what is counted every few seconds of a round: a kill loses no more of it."""
        bookkeeping = self.means.bookkeeping
        while not self._closing:
            self._opened.clear()
            if not await within(self._opened, bookkeeping.pause_s):
                await bookkeeping.note(self.machine, self.opened)

    async def _fold_ahead(self, opened: OpenRound) -> None:
        ready = await prepared(opened)
        opened.end_ahead()
        if ready and self._is_open(opened):
            await fold_ahead(self.means, opened, self.machine.current.cohort)

    def _is_open(self, opened: OpenRound) -> bool:
        return self.machine.phase is Phase.OPEN and self.machine.round == opened.number

    def accompany(self, work: Work) -> None:
        """Run something beside the effects; it must end before `close`, and its failure ends the process."""
        self._loop.start(work)

    # ------------------------------------------------------------------------------- what comes from outside

    def received(self, seat: int, described: Description) -> None:
        """An update is complete and checked."""
        opened = self._open_round
        opened.complete(seat, described)
        self.post(UpdateReceived(opened.number, seat, described.package.digest, time.monotonic()))
        if self._is_open(opened) and opened.begin_ahead():
            self._loop.start(self._fold_ahead(opened))

    def admits(self, size: int = 0) -> bool:
        """Whether so many bytes may pass, none: whether those that have passed were not too many."""
        watch = self.means.bookkeeping.watch
        if reason := watch.beyond(size):
            self.post(LimitReached(reason, time.monotonic()))
        return not watch.over

    # ------------------------------------------------------------------------------- the end

    async def close(self) -> None:
        """Let what is being written be written; give threads and files back."""
        means, bookkeeping = self.means, self.means.bookkeeping
        self._audience.let_go(self.machine.roster.names.values())
        means.learner.hurry()
        self._closing = True
        self._opened.set()
        bookkeeping.watch.close()
        self._let_go()
        await self._loop.settle()
        bookkeeping.charge(self.machine.round or 1)
        await bookkeeping.write_last(self.machine, self.opened)
        means.threads.shut()


async def _s0(preparing: asyncio.Future[bool]) -> None:
    await preparing
