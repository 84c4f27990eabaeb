"""What a grid has found: tables on the terminal and as files, and sentences about what they cannot say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from edgeflock.common.command import extras
from edgeflock.common.errors import EdgeflockError
from edgeflock.lab.compare import farm
from edgeflock.lab.compare.grid import Cell, Grid
from edgeflock.lab.findings import picture, tables
from edgeflock.lab.findings.blocks import Block, blocks
from edgeflock.lab.findings.comparison import (
    Group,
    Record,
    Result,
    cell_records,
    curve_records,
    groups,
    summary_records,
)
from edgeflock.lab.findings.outcome import outcome, overlap
from edgeflock.lab.findings.screen import screen
from edgeflock.lab.findings.verdict import Verdict, verdicts
from edgeflock.lab.history.history import COMPLETED, History
from edgeflock.lab.report import ledger
from edgeflock.lab.report.ledger import STATED
from edgeflock.methods.kit import registry
from edgeflock.server.console.onward import command
from edgeflock.server.journal.feed import JOURNAL

PICTURE = "comparison"
_MUCH = 0.1  # a share of seconds that is worth a sentence
_READING = (
    "± is the standard deviation over seeds. Seconds are those of the server's rounds, without the start of "
    "processes; bytes are payload, both ways."
)


def gather(grid: Grid, out: Path, failures: Mapping[str, str]) -> list[Result]:
    """Return what came of every cell; `failures` are sentences by the cell's folder."""
    return [_result(grid, out, cell, failures.get(cell.folder, "")) for cell in grid.cells]


def _result(grid: Grid, out: Path, cell: Cell, failure: str) -> Result:
    folder = farm.run_dir(out, cell)
    if not failure and not (folder / JOURNAL).is_file():
        failure = "its run has not begun"
    if failure:
        return Result(cell, None, failure, str(folder))
    try:
        history, books = ledger.read(folder)
    except EdgeflockError as error:
        return Result(cell, None, str(error), str(folder))
    if failure := _unfinished(history, cell):
        return Result(cell, None, failure, str(folder))
    found = outcome(history, grid.measure, grid.targets, cell.config.rounds)
    return Result(cell, found, run_dir=str(folder), history=history, ledger=books)


def _unfinished(history: History, cell: Cell) -> str:
    """Return why a run has no outcome yet, nothing if it has one."""
    ending, asked = history.ending, cell.config.rounds
    if ending is None or (ending.kind == COMPLETED and history.config.rounds < asked):
        return f"its run is not over: {len(history.training)} of {asked} rounds are committed"
    return "" if ending.kind == COMPLETED else f"its run ended as {ending.kind}: {ending.reason}"


def tell(results: Sequence[Result], grid: Grid, out: Path, *, width: int, full: bool) -> None:
    """Write the files, and print the tables: one screen of that width, or all of them."""
    found, words = groups(results, grid), verdicts(results, grid)
    shown, told = blocks(results, found, grid), notes(results, grid)
    written = _write(results, found, grid, out, shown, words, told)
    onward = command("fl-lab", "report", out)
    if not full:
        urgent = [*_silent(results, grid.measure), *_shared(results)]
        click.echo(screen(found, grid, words, urgent, out, onward, width))
        return
    click.echo("\n" + "\n\n".join(map(tables.as_text, shown)) + "\n")
    for line in (
        *told,
        written,
        *(f"verdict: {one}" for one in words),
        f"next: {onward}",
    ):
        click.echo(line)


def notes(results: Sequence[Result], grid: Grid) -> list[str]:
    """Return in sentences what the tables cannot say."""
    return [
        *_silent(results, grid.measure),
        *_missed(results, grid),
        *_shared(results),
        *_tested(results),
        *_by_servers(results),
        *_energy(results),
        _READING,
    ]


def _write(
    results: Sequence[Result],
    found: Sequence[Group],
    grid: Grid,
    out: Path,
    shown: Sequence[Block],
    words: Sequence[Verdict],
    told: Sequence[str],
) -> str:
    """Write all files; return which, in a sentence."""
    verdict = ["## Verdict", "", *(f"- {one}" for one in words), ""]
    markdown = ["\n".join(verdict), *map(tables.as_markdown, shown), *(f"{note}\n" for note in told)]
    (out / "comparison.md").write_text("\n".join(markdown), "utf-8")
    latex = ["% \\usepackage{booktabs,graphicx}", *map(tables.as_latex, shown)]
    (out / "comparison.tex").write_text("\n".join(latex), "utf-8")
    lacking = picture.draw(results, found, grid, out / PICTURE)
    records = {
        "cells": cell_records(results, grid.targets),
        "summary": summary_records(found, grid.targets),
        "curves": curve_records(results),
    }
    parquet = _write_records(out, records)
    texts, kinds = "md,tex" if lacking else "md,tex,svg,png", "{csv,parquet}" if parquet else "csv"
    hints = [lacking, "" if parquet else f"Parquet {extras.needs('pyarrow')}"]
    files = f"comparison.{{{texts}}} and {{{','.join(records)}}}.{kinds} in {out}"
    return "; ".join(["Written: " + files, *filter(None, hints)])


def _write_records(out: Path, records: Mapping[str, Sequence[Record]]) -> bool:
    """Write the files for machines; return whether Parquet could be written, too."""
    parquet = True
    for name, rows in records.items():
        tables.write_csv(out / f"{name}.csv", rows)
        parquet = tables.write_parquet(out / f"{name}.parquet", rows) and parquet
    return parquet


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
        if not any(reached):
            found.append(f"No run reached {target:g}.")
        elif not all(reached):
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


def _tested(results: Sequence[Result]) -> list[str]:
    """Say whose seconds are to a good part those of tests: a method that has many models is slow to test."""
    shares: dict[str, list[float]] = {}
    for result in results:
        if result.outcome:
            shares.setdefault(result.cell.method, []).append(result.outcome.tests)
    means = {method: sum(found) / len(found) for method, found in shares.items()}
    return [
        f"{share:.0%} of the seconds of {method} went into testing its models, while no round was open."
        for method, share in means.items()
        if share >= _MUCH
    ]


def _by_servers(results: Sequence[Result]) -> list[str]:
    """Say whose operations are not all in the tables."""
    names = dict.fromkeys(r.cell.method for r in results if registry.load(r.cell.config.method).public_data)
    if not names:
        return []
    verb = "train" if len(names) > 1 else "trains"
    return [f"FLOPs are the clients': {', '.join(names)} {verb} on the server, too, which is not in them."]


def _energy(results: Sequence[Result]) -> list[str]:
    """Say where energy comes from if no sensor tells it, or why its column is not there."""
    known = {
        name for r in results if r.outcome for name, value in r.outcome.total.items() if value is not None
    }
    sources = frozenset[str]().union(*(result.ledger.sources for result in results if result.ledger))
    if STATED in sources:
        partly = " in part" if sources != {STATED} else ""
        return [f"Energy is{partly} a model, not measured: seconds times the watts that clients state."]
    if not known or "energy_j" in known:
        return []
    return ["Energy is not known: no client has a sensor that can be read, and none was told its watts."]
