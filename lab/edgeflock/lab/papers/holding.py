"""A paper's runs held, and what came of them: numbers, circumstances, tables and claims as text."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from edgeflock.lab.compare import files
from edgeflock.lab.compare.comparison import Comparison, spare
from edgeflock.lab.findings.findings import Findings, findings
from edgeflock.lab.findings.results import CellResult, gather
from edgeflock.lab.grid.grid import Grid
from edgeflock.lab.papers.judging.sheet import Sheet, sheet
from edgeflock.lab.papers.kept import Circumstances, settings_digest
from edgeflock.lab.papers.paper import Paper


@dataclass(frozen=True)
class AskedRuns:
    """How a paper's runs are to be held."""

    seeds: tuple[int, ...]
    quick: bool
    out: Path
    jobs: int | None
    data_root: Path | None


@dataclass(frozen=True)
class HeldPaper:
    """What came of a paper's runs."""

    found: Findings
    sheet: Sheet
    about: Circumstances


def hold(paper: Paper, asked: AskedRuns) -> HeldPaper:
    """Run what is not finished of a paper's grid, and return what came of all of it."""
    table = _placed(paper.table(asked.seeds, quick=asked.quick), asked.data_root)
    grid = paper.grid_of(table)
    if paper.testbed:
        _hold_on_devices(paper, asked, table)
    else:
        Comparison(grid, asked.out, asked.jobs or spare(grid.cells)).run(table)
    found = findings(gather(grid, asked.out, {}), grid)
    files.write(found, asked.out)
    return HeldPaper(found, sheet(found.results, grid, paper.quantities()), _about(paper, asked, grid, found))


def _hold_on_devices(paper: Paper, asked: AskedRuns, table: dict[str, Any]) -> None:
    """Run what is not finished on the testbed, which tells of itself what it has counted."""
    from edgeflock.lab.testbed.holding import Trial
    from edgeflock.lab.testbed.plan import make_plan

    trial = Trial(make_plan({**table, **paper.testbed}, paper.where), asked.out)
    trial.run()
    trial.tell()


def _placed(table: dict[str, Any], data_root: Path | None) -> dict[str, Any]:
    """Return a grid's table with its data sets where they are."""
    if data_root is None:
        return table
    return {**table, "run": {**table.get("run", {}), "data_root": str(data_root.absolute())}}


def _about(paper: Paper, asked: AskedRuns, grid: Grid, found: Findings) -> Circumstances:
    runs = {result.cell.folder: result for result in found.results}.values()
    return Circumstances(
        settings=settings_digest(paper, quick=asked.quick),
        seeds=asked.seeds,
        quick=asked.quick,
        commit=commit(),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        torch=version("torch").partition("+")[0],
        cells=sum(result.outcome is not None for result in runs),
        of=len(runs),
        seconds=round(sum(_seconds(result) for result in runs)),
        failures=tuple(f"{result.cell.name}: {result.failure}" for result in runs if result.outcome is None),
        cautions=tuple(found.notes()),
    )


def _seconds(result: CellResult) -> float:
    return sum(end - begin for begin, end in result.outcome.lives) if result.outcome else 0.0


def commit() -> str:
    """Return the commit of the checkout that runs, with `+` if something is changed; else the version."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=10", "--dirty=+"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return version("edgeflock")
    return done.stdout.strip() if done.returncode == 0 else version("edgeflock")


def seeds_of(text: str | None, usual: int) -> Sequence[int]:
    """Return seeds from `3` (0, 1, 2) or `10-12`; nothing is the usual number."""
    if text is None:
        return range(usual)
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))
