"""Bookkeeping: what a run has used, whether a limit is reached, and when what is counted is written down."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import structlog

from edgeflock.common.energy import Share
from edgeflock.common.errors import JournalBroken
from edgeflock.common.sensors import Sensors
from edgeflock.server.core.events import LimitReached
from edgeflock.server.core.run import RunMachine
from edgeflock.server.costs import catalogue
from edgeflock.server.costs.budget import Budget, Spent, shown
from edgeflock.server.costs.catalogue import RESULT_BYTES
from edgeflock.server.costs.ledger import Kept, Ledger, MemberCosts
from edgeflock.server.costs.rows import Costs, RoundRows, Row
from edgeflock.server.costs.time_line import COMMIT, EVALUATE, OPEN, PAUSED, SELECT, RoundTimes
from edgeflock.server.costs.traffic import TrafficBook
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.journal.journal import Journal
from edgeflock.server.learning.learner import Learner

log = structlog.get_logger()
KEEP_S = 5.0  # of what the open round costs, a kill may lose so much
WATCH_S = 2.0  # the same where there are budgets, and how often the CPU time is looked at
_BY_CLIENTS = catalogue.names(catalogue.BY_CLIENT, origin=catalogue.Origin.CLIENT)
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_UNMEASURED = "no client states its energy: the budget of energy ends nothing, see fl-client --watts"


class Process:
    """What this process itself takes: CPU time, joules, memory."""

    def __init__(self, sensors: Sensors | None = None) -> None:
        self._share = Share(sensors or Sensors())
        self._before_s = self._counted_s = time.process_time()

    @property
    def counted_cpu_s(self) -> float:
        """The CPU seconds of this life up to the last `taken`."""
        return self._counted_s - self._before_s

    @property
    def cpu_s(self) -> float:
        """The CPU seconds of this life."""
        return time.process_time() - self._before_s

    @property
    def peak_rss_bytes(self) -> float:
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT)

    def taken(self) -> dict[str, float]:
        """Return CPU seconds, and joules where a sensor tells them, since the last call."""
        before, self._counted_s = self._counted_s, time.process_time()
        cpu_s = self._counted_s - before
        energy_j = self._share.take(cpu_s)
        return {"server_cpu_s": cpu_s} | ({} if energy_j is None else {"energy_j": energy_j})


class Spending:
    """What the run has used of its budgets."""

    def __init__(
        self,
        budget: Budget,
        traffic: TrafficBook,
        learner: Learner,
        process: Process,
        time_line: RoundTimes,
    ) -> None:
        self.budget = budget
        self._traffic, self._learner, self._process = traffic, learner, process
        self._time_line = time_line

    def used(self) -> dict[str, float]:
        """Return what the run has used until now, over all its lives."""
        moved, cpu_s = self._traffic.moved, self._process.cpu_s
        return self.budget.used(seconds=self._time_line.seconds, moved=moved, server_cpu_s=cpu_s)

    def used_with(self, open_round: OpenRound) -> dict[str, float]:
        """Return the same with what clients have stated of the open round, which its commit will charge."""
        more = {} if self._central else self.budget.uncharged(open_round.number, open_round.costs)
        return {name: amount + more.get(name, 0.0) for name, amount in self.used().items()}

    def simulated(self) -> Mapping[str, float]:
        """Return the time that is used by the simulated clock, where it counts."""
        return self._learner.simulated()

    def spent(self) -> Spent:
        return Spent(self.used(), self.simulated(), self.budget.limits)

    def counted(self) -> Spent:
        """Return the same as the ledger has counted it: what is written of both is one number."""
        used = self.budget.used(
            seconds=self._time_line.counted_s,
            moved=self._traffic.moved,
            server_cpu_s=self._process.counted_cpu_s,
        )
        return Spent(used, self.simulated(), self.budget.limits)

    @property
    def testing(self) -> bool:
        """Whether the round at hand is a test of clients' own models and nothing else."""
        return self._traffic.testing

    @property
    def running(self) -> bool:
        """Whether there is a round, whose time counts."""
        return self._time_line.running

    def reached(self) -> str:
        """Return why the round at hand ends now; empty if all is within the limits."""
        return self.budget.reached(self.used(), self.simulated())

    def settle(self, round: int, rows: Mapping[int, Row], members: Collection[int]) -> None:
        """Charge a round that is committed or discarded: it was paid. The CPU time of a run without clients
        is the server's own."""
        self.budget.settle(round, {} if self._central else rows, members)

    @property
    def _central(self) -> bool:
        return self._learner.method.central


class Watch:
    """The watch over the budgets while a round is at hand; a limit that is reached is said once."""

    def __init__(self, spending: Spending) -> None:
        self._spending, self._budget = spending, spending.budget
        self._woken = asyncio.Event()
        self.over = False  # it is said, or nobody listens: nothing more passes

    async def reached(self) -> LimitReached | None:
        """Look at time, CPU and energy until a limit is reached; None: `close` came first."""
        while not self.over:
            if self._spending.running and (reason := self._spending.reached()):
                self.over = True
                return LimitReached(reason, time.monotonic())
            self._woken.clear()
            await within(self._woken, self._left_s())
        return None

    def look(self) -> None:
        """A round is being opened."""
        self._woken.set()

    def close(self) -> None:
        self.over = True
        self._woken.set()

    def _left_s(self) -> float:
        time_s = self._budget.limits.get("time")
        if time_s is None or "time" in self._spending.simulated():
            return WATCH_S
        return min(WATCH_S, max(0.0, time_s - self._spending.used()["time"]))

    def beyond(self, size: int = 0) -> str:
        """Return why the round ends if so many bytes more pass; empty if it does not, or it was said before.

        With none it is about those that have passed.
        """
        limit = None if self._spending.testing else self._budget.limits.get("bytes")
        if self.over or limit is None or (used := self._spending.used()["bytes"]) + size <= limit:
            return ""
        self.over = True
        more = f", and a message has {shown('bytes', size)}" if size else ""
        return f"the budget of bytes is used up: {shown('bytes', used)} of {shown('bytes', limit)}{more}"

    def bytes_left(self) -> float:
        limit = self._budget.limits.get("bytes")
        return float("inf") if limit is None else limit - self._spending.used()["bytes"]


class Bookkeeping:
    """Ledger, budgets and journal kept in step; lives on the event loop."""

    def __init__(
        self, ledger: Ledger, traffic: TrafficBook, budget: Budget, learner: Learner, journal: Journal
    ) -> None:
        self._process = Process()
        self.ledger, self.time_line, self.traffic = ledger, ledger.time_line, traffic
        self.spending = Spending(budget, traffic, learner, self._process, ledger.time_line)
        self.watch = Watch(self.spending)
        self._budget, self._learner, self._journal = budget, learner, journal
        self._noted = 0  # payload that the journal holds of the open round
        self._unmeasured = False  # it is said that a budget has nothing to count

    # ------------------------------------------------------------------------------- round by round

    def begin(self, round: int, *, testing: bool) -> None:
        """A round is being opened, which may be a test of clients' own models and nothing else."""
        self.traffic.test(testing)
        if testing:
            self.time_line.exams.add(round)
        self.watch.look()

    def resume(self, kept: Kept, open_round: OpenRound, names: Mapping[int, str], *, cut: bool) -> None:
        """Go on with the rows of a round that a life before has left open; what it spooled was counted by
        it, or is counted now. A life that was cut off has counted more than it has written."""
        self.ledger.resume(kept, cut=cut)
        for seat, entry in open_round.entries.items():
            row, _ = kept.get(seat, ({}, {}))
            missing = entry.held - int(row.get("bytes_up") or 0)
            if missing > 0 and (package := open_round.described(seat)) is not None:
                self.traffic.of(names[seat]).received(0, missing, package, entry.held - missing)
            if seat in open_round.updates and row:
                open_round.state(seat, {name: row[name] for name in _BY_CLIENTS if name in row})

    def close_round(self, machine: RunMachine, open_round: OpenRound) -> RoundRows:
        """Return the final rows of a round; the first time, they are charged."""
        number = open_round.number
        rows, first = self.ledger.close(number, self._members(machine, open_round))
        if first:
            self._noted = self.traffic.moved
            self.spending.settle(number, rows.fresh, machine.current.cohort)
            self._say_unmeasured(number)
        return rows

    def _say_unmeasured(self, round: int) -> None:
        if self._budget.unmeasured() and not self._unmeasured:
            self._unmeasured = True
            log.warning("budget_unmeasured", round=round, reason=_UNMEASURED)
            self._journal.note("budget_unmeasured", round=round, reason=_UNMEASURED)

    def server_use(self, round: int, *, tested_s: float) -> dict[str, float]:
        """Count CPU and energy of this process since the last call; return what is no sum.

        `tested_s` of the commit were a test of other models.
        """
        self.time_line.move(round, COMMIT, EVALUATE, tested_s)
        self.charge(round)
        return {"server_peak_rss_bytes": self._process.peak_rss_bytes}

    def round_s(self, round: int) -> float:
        """Return the seconds of a round before it was closed, as far as this life knows them."""
        self.time_line.now()
        line = self.time_line.of(round)
        return sum(line.get(name, 0.0) for name in (SELECT, OPEN, PAUSED))

    def sent_result(self, round: int, size: int) -> None:
        """Count what devices fetch to keep: no cost of a round, no budget's, no other figure's."""
        self.time_line.add(round, RESULT_BYTES.name, size)

    def charge(self, round: int) -> None:
        """Count CPU and energy of this process since the last call."""
        for name, amount in self._process.taken().items():
            self.time_line.add(round, name, amount)

    def add_late(self, round: int, seat: int, row: Row) -> bool:
        """Take what a client reports of a round that is over, if it was one of its last; the next commit or
        note writes it down."""
        counts = self._budget.correct(round, seat, row)
        if counts:
            self.ledger.add_late(round, seat, {**row, **self._operations(row)})
        return counts

    def _members(self, machine: RunMachine, open_round: OpenRound) -> dict[int, MemberCosts]:
        names = machine.roster.names
        found = {seat: self._member(open_round, seat, names[seat]) for seat in machine.current.cohort}
        for client_id in self.traffic.moving():  # what came too late for its round is paid in this one
            seat = machine.roster.seat_had(client_id)
            if seat is not None and seat not in found:
                found[seat] = MemberCosts(self.traffic.of(client_id))
        return found

    def _member(self, open_round: OpenRound, seat: int, client_id: str) -> MemberCosts:
        traffic, stated = self.traffic.of(client_id), open_round.costs.get(seat, {})
        update = open_round.updates.get(seat)
        package = None if update is None else update.package
        return MemberCosts(traffic, stated, package, self._operations(stated))

    def _operations(self, stated: Row) -> Row:
        """Return what follows from the passes and steps that a client states, if it does."""
        names = ("steps", "samples_done", "samples", "forward_samples", "backward_samples")
        steps, samples, held, forward, backward = (int(stated.get(name) or 0) for name in names)
        if not (samples or forward):
            return {}
        return self._learner.operations(
            steps=steps, samples=samples, held=held, forward=forward, backward=backward
        )

    # ------------------------------------------------------------------------------- the journal

    @contextlib.contextmanager
    def unwritten(self, rows: RoundRows | None = None) -> Iterator[Costs]:
        """Hand out what no transaction holds, and those rows; if the one within fails, it stays due."""
        with self.ledger.writing() as pending:
            yield Costs(pending, rows, self.spending.counted())

    def open_rows(self, machine: RunMachine, open_round: OpenRound | None) -> RoundRows | None:
        """Return the rows of the round at hand, unless its commit will write them or has."""
        if open_round is None or self.ledger.has_closed(open_round.number):
            return None
        self._noted = self.traffic.moved
        return self.ledger.rows(open_round.number, self._members(machine, open_round))

    async def note(self, machine: RunMachine, open_round: OpenRound | None) -> None:
        """Write what is due, if anything is."""
        if self.grown(open_round) or (self._budget.limits and self.spending.running):
            self.charge(machine.round or 1)
            await self.write(machine, open_round)

    def grown(self, open_round: OpenRound | None) -> bool:
        """Whether there is something that no transaction holds: late reports, or bytes of the open round."""
        at_hand = open_round is not None and not self.ledger.has_closed(open_round.number)
        return self.ledger.has_late or (at_hand and self.traffic.moved != self._noted)

    def rest(self, machine: RunMachine, open_round: OpenRound | None) -> RoundRows | None:
        """Return the rows that the end has to write: of the round at hand, or what came after its commit."""
        rows = self.open_rows(machine, open_round)
        if rows is not None or open_round is None:
            return rows
        had = [(machine.roster.seat_had(name), name) for name in self.traffic.moving()]
        seats = {seat: name for seat, name in had if seat is not None}
        return self.ledger.after({seat: self.traffic.of(name) for seat, name in seats.items()})

    async def write(self, machine: RunMachine, open_round: OpenRound | None) -> None:
        """Write what is due; a journal that is broken is met by the next decision, which handles it."""
        await self._keep(self.open_rows(machine, open_round))

    async def write_last(self, machine: RunMachine, open_round: OpenRound | None) -> None:
        """Write all that no transaction holds: this life ends, and nothing of its books is missing."""
        await self._keep(self.rest(machine, open_round), whole=True)

    async def _keep(self, rows: RoundRows | None, *, whole: bool = False) -> None:
        with contextlib.suppress(JournalBroken), self.unwritten(rows) as costs:
            await asyncio.wrap_future(self._journal.keep(replace(costs, whole=whole)))

    @property
    def pause_s(self) -> float:
        """How long to wait from one note to the next."""
        return WATCH_S if self._budget.limits else KEEP_S


async def within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, at most so long; return whether it came."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False
