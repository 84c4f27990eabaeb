"""What a grid has found, put together once: results, groups over seeds, verdicts, tables and notes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeflock.lab.findings import notes
from edgeflock.lab.findings.blocks import Block, every_run, over_seeds, said
from edgeflock.lab.findings.groups import Group, groups
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.findings.verdict import SettingVerdict, verdicts
from edgeflock.lab.grid.grid import Grid


@dataclass(frozen=True)
class Findings:
    """A grid, what came of its cells, and what follows from that."""

    grid: Grid
    results: Sequence[CellResult]
    groups: Sequence[Group]
    verdicts: Sequence[SettingVerdict]

    @property
    def several(self) -> bool:
        """Whether any group has several seeds: means are worth something then."""
        return any(group.cells > 1 for group in self.groups)

    def every_run(self) -> list[Block]:
        """Return the tables with a row for every run."""
        return every_run(self.results, self.groups, self.grid)

    def over_seeds(self) -> list[Block]:
        """Return the tables of means, medians and differences over seeds, what the methods say at the end."""
        return [*over_seeds(self.groups, self.grid), *said(self.results, self.groups)]

    def blocks(self) -> list[Block]:
        """Return the tables: every run where there are several seeds, then those over seeds."""
        return [*(self.every_run() if self.several else []), *self.over_seeds()]

    def notes(self) -> list[str]:
        """Return in sentences what the tables cannot say."""
        return notes.notes(self.results, self.grid)

    def urgent(self) -> list[str]:
        """Return those of the notes that must be said where there is room for little."""
        return notes.urgent(self.results, self.grid)


def findings(results: Sequence[CellResult], grid: Grid) -> Findings:
    """Return what the results of a grid's cells say together."""
    return Findings(grid, results, groups(results, grid), verdicts(results, grid))
