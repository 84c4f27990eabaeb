"""The accounts: what the run has used of its budgets, and when that and the open books are written down."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

import structlog

from edgeflock.common.errors import JournalBroken
from edgeflock.server.core.events import LimitReached
from edgeflock.server.costs.budget import Budget
from edgeflock.server.costs.ledger import Ledger
from edgeflock.server.costs.rows import Costs, Row
from edgeflock.server.costs.traffic import TrafficBook
from edgeflock.server.engine.limits import Limits
from edgeflock.server.engine.loop import Drive
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.journal.journal import Journal
from edgeflock.server.learning.learner import Learner

log = structlog.get_logger()
KEEP_S = 5.0  # of the open round's books, a kill may lose so much
_UNMEASURED = "no client states its energy: the budget of energy ends nothing, see fl-client --watts"


class Accounts:
    """Budget, ledger and journal kept in step; lives on the event loop."""

    def __init__(
        self,
        drive: Drive,
        journal: Journal,
        learner: Learner,
        traffic: TrafficBook,
        ledger: Ledger,
        budget: Budget,
        *,
        at_hand: Callable[[], OpenRound | None],
    ) -> None:
        self.budget = budget
        self.limits = Limits(
            budget,
            used=self.used,
            own=self.own,
            tell=lambda reason: drive.post(LimitReached(reason, time.monotonic())),
            note=self._note,
        )
        self._drive, self._journal, self._learner = drive, journal, learner
        self._traffic, self.ledger = traffic, ledger
        self._at_hand = at_hand
        self._cpu_before_s = time.process_time()
        self._unmeasured = False  # it is said that a budget has nothing to count
        self._keeping: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------- what is used

    def used(self) -> dict[str, float]:
        """What the run has used until now, over all its lives."""
        moved = self._traffic.moved
        server_cpu_s = time.process_time() - self._cpu_before_s
        return self.budget.used(time.monotonic(), moved=moved, server_cpu_s=server_cpu_s)

    def used_with(self, opened: OpenRound) -> dict[str, float]:
        """Return the same with what clients have stated of the open round, which its commit will charge."""
        central = self._drive.machine.rules.central
        more = {} if central else self.budget.uncharged(opened.number, opened.costs)
        return {name: amount + more.get(name, 0.0) for name, amount in self.used().items()}

    def own(self) -> Mapping[str, float]:
        """Return what the method itself counts, where it does: FedADM's simulated clock."""
        return self._learner.half.used(self._learner.state)

    def counted(self, used: Mapping[str, float]) -> dict[str, float]:
        """Return the same with the method's own count in place of ours, where it keeps one."""
        return {**used, **self.own()}

    def shares(self, used: Mapping[str, float] | None = None) -> dict[str, list[float]]:
        """Return used and limit of every budget that is set, as of now unless told otherwise."""
        return self.budget.told(self.counted(self.used() if used is None else used))

    def told(self, used: Mapping[str, float]) -> dict[str, object]:
        """What the line of a round says of the budgets."""
        return {"budget": self.shares(used)} if self.budget.limits else {}

    # ------------------------------------------------------------------------------- round by round

    def begin(self, now: float) -> None:
        """A round is being opened."""
        self.budget.begin(now)
        self.limits.begin()

    def rest(self) -> None:
        """No round is at hand."""
        self.budget.rest(time.monotonic())
        self.limits.rest()

    def settle(self, round: int, rows: Mapping[int, Row]) -> None:
        """Charge a committed round; the CPU time of a run without clients is the server's own."""
        self.budget.settle(round, {} if self._drive.machine.rules.central else rows)
        if "energy" in self.budget.limits and not self.budget.energy_j and not self._unmeasured:
            self._unmeasured = True
            log.warning("budget_unmeasured", round=round, reason=_UNMEASURED)
            self._journal.note("budget_unmeasured", round=round, reason=_UNMEASURED)

    def settle_lost(self, opened: OpenRound) -> None:
        """Charge a round that is discarded: it was paid."""
        if not self._drive.machine.rules.central:
            self.budget.settle(opened.number, opened.lost())

    def add_late(self, round: int, seat: int, row: Row) -> None:
        """Take what a client reports of a round that is over; the next commit or note writes it down.

        The books of a discarded round are written again at the end: it is stated in these, too.
        """
        self.budget.correct(round, seat, row)
        self.ledger.add_late(round, seat, row)
        opened = self._at_hand()
        if opened is not None and opened.number == round:
            opened.correct(seat, row)

    # ------------------------------------------------------------------------------- the journal

    def keep(self) -> None:
        """Write what is due every few seconds from now on: a kill loses no more of it."""
        if self._keeping is not None:
            self._keeping.cancel()
        self._keeping = asyncio.get_running_loop().call_later(KEEP_S, self._keep_on)

    def _keep_on(self) -> None:
        self.keep()
        if self.ledger.grown(self._at_hand()):
            self._note()

    def _note(self) -> None:
        self._drive.start(self._write())

    async def _write(self) -> None:
        with contextlib.suppress(JournalBroken), self.due(self.used()) as costs:
            await asyncio.wrap_future(self._journal.keep(costs))

    @contextlib.contextmanager
    def due(self, used: Mapping[str, float]) -> Iterator[Costs]:
        """Hand out what no commit has written: what is used, open books, late reports, the time line.

        If the transaction within fails, it stays due.
        """
        rows = self.ledger.open_books(self._at_hand())
        with self.ledger.writing() as pending:
            yield Costs(pending, rows, used, self.own())

    async def close(self) -> None:
        """Write all that is not written yet; nothing more comes."""
        if self._keeping is not None:
            self._keeping.cancel()
        self.rest()
        self.ledger.charge(self._drive.machine.round or 1)
        await self._write()
