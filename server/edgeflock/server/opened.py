"""The open round as the shell holds it: its work, its spool, the updates that are complete."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgeflock.common.package import Package
from edgeflock.server.fold import SpooledUpdate
from edgeflock.server.learner import RoundWork
from edgeflock.server.spool import Entry
from edgeflock.server.uploads import package_of


@dataclass
class Opened:
    """One open round."""

    work: RoundWork
    entries: dict[int, Entry]  # by roster index
    updates: dict[int, SpooledUpdate] = field(default_factory=dict)  # complete and checked
    costs: dict[int, dict[str, float]] = field(default_factory=dict)  # as the clients stated them

    @property
    def number(self) -> int:
        return self.work.round.number

    def complete(self, index: int, package: Package) -> None:
        """An update is in the spool, whole and checked."""
        entry = self.entries[index]
        entry.finish()
        self.updates[index] = SpooledUpdate(index, package, entry.data_path, self.work.layouts)

    def restore(self) -> tuple[tuple[int, bytes], ...]:
        """Take the updates that a previous process had received; return index and digest of each."""
        found = []
        for index, entry in self.entries.items():
            package = package_of(entry.header, self.number) if entry.header else None
            if package and entry.held == package.size_bytes and entry.running == package.crc32c:
                self.complete(index, package)
                found.append((index, package.digest))
        return tuple(found)

    def close(self) -> None:
        for entry in self.entries.values():
            entry.retire()
