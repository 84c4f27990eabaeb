"""What a grid has found: tables on the terminal and as files, and sentences about what they cannot say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from edgeflock.common.errors import EdgeflockError
from edgeflock.lab import farm, history, tables
from edgeflock.lab.comparison import (
    Record,
    Result,
    blocks,
    cell_records,
    curve_records,
    groups,
    summary_records,
)
from edgeflock.lab.grid import Cell, Grid
from edgeflock.lab.outcome import outcome, overlap

_READING = (
    "± is the standard deviation over seeds. Seconds are those of the server's rounds, without the start of "
    "processes; bytes are payload, both ways."
)


def gather(grid: Grid, out: Path, failures: Mapping[str, str]) -> list[Result]:
    """Return what came of every cell; `failures` are sentences by the cell's folder."""
    return [_result(grid, out, cell, failures.get(cell.folder, "")) for cell in grid.cells]


def _result(grid: Grid, out: Path, cell: Cell, failure: str) -> Result:
    folder = farm.run_dir(out, cell)
    if not failure:
        try:
            found = outcome(history.read(folder), grid.measure, grid.targets, cell.config.rounds)
            return Result(cell, found, run_dir=str(folder))
        except EdgeflockError as error:
            failure = str(error)
    return Result(cell, None, failure, str(folder))


def tell(results: Sequence[Result], grid: Grid, out: Path) -> None:
    """Print the tables and write the files."""
    found = groups(results, grid)
    shown = blocks(found, grid)
    notes = [*_silent(results, grid.measure), *_missed(results, grid), *_shared(results), _READING]
    click.echo("\n" + "\n\n".join(map(tables.as_text, shown)) + "\n")
    for note in notes:
        click.echo(note)
    markdown = [*map(tables.as_markdown, shown), *(f"{note}\n" for note in notes)]
    (out / "comparison.md").write_text("\n".join(markdown), "utf-8")
    latex = ["% \\usepackage{booktabs}", *map(tables.as_latex, shown)]
    (out / "comparison.tex").write_text("\n".join(latex), "utf-8")
    records = {
        "cells": cell_records(results, grid.targets),
        "summary": summary_records(found, grid.targets),
        "curves": curve_records(results),
    }
    click.echo(_write(out, records))


def _write(out: Path, records: Mapping[str, Sequence[Record]]) -> str:
    """Write the files for machines; return the sentence about all files."""
    parquet = True
    for name, rows in records.items():
        tables.write_csv(out / f"{name}.csv", rows)
        parquet = tables.write_parquet(out / f"{name}.parquet", rows) and parquet
    kinds = "{csv,parquet}" if parquet else "csv"
    lacking = "" if parquet else "; for Parquet: pip install 'edgeflock[parquet]'"
    return f"Written: comparison.{{md,tex}} and {{{','.join(records)}}}.{kinds} in {out}{lacking}"


def _silent(results: Sequence[Result], measure: str) -> list[str]:
    """Say which methods have no accuracy of the model that counts, and which they have."""
    silent = {r.cell.method: r.outcome.models for r in results if r.outcome and r.outcome.final is None}
    return [
        f"{name} has no accuracy of {measure!r}, "
        + (f"--measure can be {', '.join(models)}." if models else "no model was evaluated (eval_every).")
        for name, models in silent.items()
    ]


def _missed(results: Sequence[Result], grid: Grid) -> list[str]:
    """Say where a mean is one of those runs alone that reached a target."""
    found: list[str] = []
    for target in grid.targets:
        reached = [bool(result.outcome and result.outcome.reached[target]) for result in results]
        if not all(reached):
            found.append(
                f"{reached.count(False)} of {len(reached)} runs did not reach {target:g}: "
                "means and differences are of those that did."
            )
    return found


def _shared(results: Sequence[Result]) -> list[str]:
    """Say it if cells have disturbed each other; their journals know when they ran."""
    ran = [life for result in results if result.outcome for life in result.outcome.lives]
    return (
        ["Some cells ran at the same time and shared the machine: seconds are longer for it."]
        if overlap(ran)
        else []
    )
