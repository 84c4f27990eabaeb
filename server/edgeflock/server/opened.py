"""The open round as the shell holds it: its work, its spool, the updates that are complete."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from edgeflock.common.package import Package
from edgeflock.server.budget import credible
from edgeflock.server.fold import SpooledUpdate
from edgeflock.server.learner import RoundWork
from edgeflock.server.spool import Entry
from edgeflock.server.summary import Score
from edgeflock.server.uploads import package_of, scores_of


@dataclass
class Opened:
    """One open round."""

    work: RoundWork
    entries: dict[int, Entry]  # by roster index
    began: float  # when it was decided to open it
    updates: dict[int, SpooledUpdate] = field(default_factory=dict)  # complete and checked
    costs: dict[int, dict[str, float]] = field(default_factory=dict)  # as the clients stated them
    scores: dict[int, dict[str, Score]] = field(default_factory=dict)  # of clients' own models
    closed_at: float = 0.0

    @property
    def number(self) -> int:
        return self.work.round.number

    def complete(self, index: int, package: Package) -> None:
        """An update is in the spool, whole and checked."""
        entry = self.entries[index]
        entry.finish()
        self.updates[index] = SpooledUpdate(index, package, entry.data_path, self.work.layouts)
        self.scores[index] = scores_of(entry.header)

    def restore(self) -> tuple[tuple[int, bytes], ...]:
        """Take the updates that a previous process had received; return index and digest of each."""
        found = []
        for index, entry in self.entries.items():
            package = package_of(entry.header, self.number) if entry.header else None
            if package and entry.held == package.size_bytes and entry.running == package.crc32c:
                self.complete(index, package)
                found.append((index, package.digest))
        return tuple(found)

    def measured(self) -> dict[str, float]:
        """What the method may steer by: seconds of the round so far, and of its slowest client's training;
        CPU seconds of all clients' training."""
        training = [credible(cost["train_s"]) for cost in self.costs.values()]
        return {
            "round_s": self.closed_at - self.began,
            "train_s": max(training, default=0.0),
            "train_cpu_s": sum(credible(cost["cpu_s"]) for cost in self.costs.values()),
        }

    def seconds(self, folded_at: float) -> dict[str, float]:
        """How long its parts took, now that the state has moved."""
        parts = {
            "open_s": self.closed_at - self.began,
            "fold_s": folded_at - self.closed_at,
            "commit_s": time.monotonic() - folded_at,
        }
        return {name: round(value, 6) for name, value in parts.items()}

    def close(self) -> None:
        for entry in self.entries.values():
            entry.retire()
