"""The open round as the shell holds it: its work, its spool, the updates that are complete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edgeflock.common.payload.package import Package
from edgeflock.common.scores import Score
from edgeflock.server.costs.budget import STATED, Budget, credible
from edgeflock.server.files.packages import Broadcast
from edgeflock.server.files.spool import Entry
from edgeflock.server.journal.costs import Row
from edgeflock.server.learning.fold import SpooledUpdate
from edgeflock.server.learning.work import RoundWork
from edgeflock.server.service.checks import package_of, scores_of


@dataclass
class Opened:
    """One open round."""

    work: RoundWork
    entries: dict[int, Entry]  # by seat
    began: float  # when it was decided to open it
    updates: dict[int, SpooledUpdate] = field(default_factory=dict)  # complete and checked
    costs: dict[int, Row] = field(default_factory=dict)  # as the clients stated them
    scores: dict[int, dict[str, Score]] = field(default_factory=dict)  # of clients' own models
    closed_at: float = 0.0
    used_up: str = ""  # a resource of which a client had too little for all its steps
    personal: dict[int, asyncio.Future[Broadcast]] = field(default_factory=dict)  # packages asked for
    preparing: asyncio.Future[bool] | None = None  # S0, which the fold waits for
    folding_ahead: bool = False

    @property
    def number(self) -> int:
        return self.work.round.number

    def complete(self, seat: int, package: Package) -> None:
        """An update is in the spool, whole and checked."""
        entry = self.entries[seat]
        entry.finish()
        self.updates[seat] = SpooledUpdate(seat, package, entry.data_path, self.work.layouts)
        self.scores[seat] = scores_of(entry.header)

    def drop_failed(self, seat: int, formed: asyncio.Future[Broadcast]) -> None:
        """Who asks for its package again after a full disk shall not get the old failure."""
        if not formed.cancelled() and formed.exception() and self.personal.get(seat) is formed:
            del self.personal[seat]

    def described(self, seat: int) -> Package | None:
        """Return what the spool holds of a member, whole or not."""
        header = self.entries[seat].header
        return package_of(header, self.number) if header else None

    def restore(self) -> tuple[tuple[int, bytes], ...]:
        """Take the updates that a previous process had received; return seat and digest of each."""
        found = []
        for seat, entry in self.entries.items():
            package = self.described(seat)
            if package and entry.held == package.size_bytes and entry.running == package.crc32c:
                self.complete(seat, package)
                found.append((seat, package.digest))
        return tuple(found)

    def allow(self, budget: Budget, used: Mapping[str, float], *, spare: int) -> None:
        """Share what is left of the budgets among those who will train; so many may still come."""
        trainers = len(self.entries) - len(self.updates) + spare
        self.work = replace(self.work, allowances=budget.allowances(used, trainers))

    def lost(self) -> dict[int, dict[str, float | int | None]]:
        """Return what everybody has stated by now, of a round that is discarded."""
        columns = [column for _, column in STATED]
        stated = {seat: self.costs.get(seat, {}) for seat in self.entries}
        return {seat: {name: row.get(name) for name in columns} for seat, row in stated.items()}

    def measured(self) -> dict[str, float]:
        """What the method may steer by: seconds of the round so far, and of its slowest client's training;
        CPU seconds and joules of all clients' training."""
        training = [credible(cost.get("train_s")) for cost in self.costs.values()]
        return {
            "round_s": self.closed_at - self.began,
            "train_s": max(training, default=0.0),
            "train_cpu_s": sum(credible(cost.get("cpu_s")) for cost in self.costs.values()),
            "train_energy_j": sum(credible(cost.get("energy_j")) for cost in self.costs.values()),
        }

    def close(self) -> None:
        for entry in self.entries.values():
            entry.retire()
