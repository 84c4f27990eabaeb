"""The ledger: what a run costs, from counters of the open round to rows of the journal; on the event loop."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from edgeflock.common.energy import Share
from edgeflock.common.sensors import Sensors
from edgeflock.server.core.run import RunMachine
from edgeflock.server.costs import time_line
from edgeflock.server.costs.rows import STATED, Bundles, Pending, RoundRows, Row
from edgeflock.server.costs.time_line import TimeLine
from edgeflock.server.costs.traffic import TrafficBook
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.learning.learner import Learner

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
Kept = Mapping[int, tuple[Row, Bundles]]  # by seat: the row and the bytes by bundle


class Ledger:
    """Every number comes here first. Nothing is forgotten before a transaction holds it."""

    def __init__(
        self, machine: RunMachine, traffic: TrafficBook, learner: Learner, sensors: Sensors | None = None
    ) -> None:
        self.line = TimeLine()
        self.evaluating = False  # a test of the model holds everything up
        self._machine, self._traffic, self._learner = machine, traffic, learner
        self._late: dict[tuple[int, int], Row] = {}
        self._kept: Kept = {}  # of the open round, written by the lives before
        self._closed: RoundRows | None = None  # of the round that is being committed
        self._noted = 0  # payload that the journal holds of the open round
        self._share = Share(sensors or Sensors())
        self._cpu_s = time.process_time()

    # ------------------------------------------------------------------------------- the time line

    def follow(self) -> None:
        """The machine has moved, maybe."""
        doing = time_line.doing(self._machine)
        if doing is None:
            self.line.leave()
        else:
            name, round = doing
            self.line.enter(time_line.EVALUATE if self.evaluating else name, round)

    @contextlib.contextmanager
    def blocked(self) -> Iterator[None]:
        """Within this everything waits for a test of the model."""
        self.evaluating = True
        self.follow()
        try:
            yield
        finally:
            self.evaluating = False
            self.follow()

    # ------------------------------------------------------------------------------- the round's rows

    def resume(self, kept: Kept, opened: OpenRound) -> None:
        """Go on with the books of a round that a life before has left open; what it spooled was counted by
        it, or is counted now."""
        self._kept = kept
        for seat, entry in opened.entries.items():
            row, _ = kept.get(seat, ({}, {}))
            missing = entry.held - int(row.get("bytes_up") or 0)
            if missing > 0 and (package := opened.described(seat)) is not None:
                traffic = self._traffic.of(self._machine.roster.names[seat])
                traffic.received(0, missing, package, entry.held - missing)
            if seat in opened.updates and row:
                opened.state(seat, {name: row[name] for name in STATED if name in row})

    def books(self, opened: OpenRound) -> RoundRows:
        """Return the rows of the open round as they are now."""
        rows: dict[int, Row] = {}
        bundles: dict[int, Bundles] = {}
        fresh: dict[int, Row] = {}
        for seat in self._machine.current.cohort:
            traffic = self._traffic.of(self._machine.roster.names[seat])
            counted = traffic.counted()
            rows[seat] = fresh[seat] = self._row(opened, seat, counted)
            bundles[seat] = dict(traffic.bundles)
            if seat in self._kept:
                kept, before = self._kept[seat]
                whole = {name: amount + int(kept.get(name) or 0) for name, amount in counted.items()}
                rows[seat] = self._row(opened, seat, whole)
                fresh[seat] = {**rows[seat], **counted}
                bundles[seat] = Counter(before) + traffic.bundles
        return RoundRows(opened.number, rows, bundles, fresh)

    def _row(self, opened: OpenRound, seat: int, counted: Mapping[str, int]) -> Row:
        """Return what was counted, what the client stated, and what follows from its update: bytes that came
        twice, operations."""
        update, stated = opened.updates.get(seat), opened.costs.get(seat, {})
        if update is None:
            return {**stated, **counted, "resent_bytes": 0}
        held, steps = (int(update.package.scalars[name]) for name in ("samples", "steps"))
        resent = max(0, counted["bytes_up"] - update.package.size_bytes)
        row = {"samples": held, "steps": steps, **stated, **counted, "resent_bytes": resent}
        samples = stated.get("samples_done")
        if isinstance(samples, int):
            row |= self._learner.operations(steps=steps, samples=samples, held=held)
        return row

    def close_round(self, opened: OpenRound) -> tuple[RoundRows, bool]:
        """Return the final rows of a round, and whether this is the first time: a full disk may ask again."""
        if self._closed is not None and self._closed.round == opened.number:
            return self._closed, False
        self._closed = self.books(opened)
        for seat in self._closed.rows:
            self._traffic.of(self._machine.roster.names[seat]).forget()
        self._kept, self._noted = {}, self.moved
        return self._closed, True

    def open_books(self, opened: OpenRound | None) -> RoundRows | None:
        """Return the rows of the round at hand, unless its commit will write them or has."""
        if opened is None or not self._at_hand(opened):
            return None
        self._noted = self.moved
        return self.books(opened)

    def grown(self, opened: OpenRound | None) -> bool:
        """Whether there is something that no transaction holds: late reports, or bytes of the open round."""
        return bool(self._late) or (
            opened is not None and self._at_hand(opened) and self.moved != self._noted
        )

    def _at_hand(self, opened: OpenRound) -> bool:
        closed = self._closed is not None and self._closed.round == opened.number
        return not closed and opened.number == self._machine.round > self._machine.committed

    @property
    def moved(self) -> int:
        """Payload since the last commit, both ways, in this life."""
        return self._traffic.moved

    # ------------------------------------------------------------------------------- what comes later

    def add_late(self, round: int, seat: int, row: Row) -> None:
        """Take what a client reports of a round that is over."""
        self._late[round, seat] = {**self._late.get((round, seat), {}), **row}

    @contextlib.contextmanager
    def writing(self) -> Iterator[Pending]:
        """Hand out what is due; if the transaction within fails, it stays due."""
        self.line.now()
        pending = Pending(dict(self._late), self.line.take())
        try:
            yield pending
        except BaseException:
            self.line.give_back(pending.seconds)
            raise
        self._late = {key: row for key, row in self._late.items() if pending.late.get(key) is not row}

    def server_use(self, round: int, *, tested_s: float) -> dict[str, float]:
        """Count CPU and energy of this process since the last call; return what is no sum.

        `tested_s` of the commit were a test of other models.
        """
        self.line.move(round, time_line.COMMIT, time_line.EVALUATE, tested_s)
        self.charge(round)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
        return {"server_peak_rss_bytes": float(peak)}

    def charge(self, round: int) -> None:
        """Count CPU and energy of this process since the last call."""
        before, self._cpu_s = self._cpu_s, time.process_time()
        self.line.add(round, "server_cpu_s", self._cpu_s - before)
        energy_j = self._share.take(self._cpu_s - before)
        if energy_j is not None:
            self.line.add(round, "energy_j", energy_j)
