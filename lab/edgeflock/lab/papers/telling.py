"""What fl-lab paper prints and writes: the paper's table beside ours, claims, the verdict, small files."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import click

from edgeflock.common.command.units import counted
from edgeflock.common.errors import UsageError
from edgeflock.lab.compare import tables
from edgeflock.lab.papers import kept, shelf
from edgeflock.lab.papers.drawing import draw
from edgeflock.lab.papers.holding import AskedRuns, HeldPaper
from edgeflock.lab.papers.judging.sheet import Sheet
from edgeflock.lab.papers.kept import Circumstances
from edgeflock.lab.papers.paper import Paper
from edgeflock.lab.papers.shown import blocks, claim_lines, rulings, summary

_FILE = 110  # columns where no terminal is
_READING = (
    "Accuracies are percent, the mean with its 95% t interval; costs are medians with the exact interval of "
    "the seeds, of three their least and largest."
)


def tell(paper: Paper, path: Path, held: HeldPaper, asked: AskedRuns, *, keep: bool) -> int:
    """Print what came of a paper's runs, write its files, and return the exit code."""
    folder = asked.out / shelf.RESULTS
    written = kept.write(folder, paper.name, held.about, held.sheet)
    drawn = draw(held.found, folder, paper.name, paper.where)
    _print(paper, held.sheet, held.about)
    click.echo("; ".join([f"written: {', '.join(map(str, (*written, *drawn.paths)))}", *drawn.lacking]))
    if keep:
        home = shelf.results_of(path)
        kept.copy(folder, home, paper.name)
        click.echo(f"kept in {home}: make papers renews docs/papers.md")
    for failure in held.about.failures:
        click.echo(f"failed: {failure}", err=True)
    return 1 if held.about.failures else 0


def show(paper: Paper, path: Path) -> int:
    """Print the kept result of a paper."""
    found = kept.read(shelf.results_of(path), paper)
    if found is None:
        raise UsageError(f"{paper.name} is not tried: there is no result of it in {shelf.results_of(path)}")
    _print(paper, found.sheet, found.about)
    return 0


def _print(paper: Paper, found: Sheet, about: Circumstances) -> None:
    click.echo(f"\n{paper.title}, {paper.source}: {paper.shows}")
    for line in _tables(paper, found, quick=about.quick):
        click.echo(line)
    verdicts = rulings(paper, found, quick=about.quick)
    parts = ("", *_circumstances(about), "", *_deviations(paper), "", "Claims", *claim_lines(verdicts))
    for part in parts:
        click.echo(textwrap.fill(part, _width(), subsequent_indent="    ", break_on_hyphens=False))
    click.echo(f"\nverdict: {summary(verdicts, len(about.seeds), quick=about.quick)}")


def _tables(paper: Paper, found: Sheet, *, quick: bool) -> Sequence[str]:
    return [f"\n{tables.as_text(block)}" for block in blocks(paper, found, quick=quick)]


def _circumstances(about: Circumstances) -> Sequence[str]:
    runs = f"{counted(about.cells, 'run')} of {about.of}, seeds {about.span}"
    return [f"{runs}, commit {about.commit}, {about.date}.", _READING]


def _deviations(paper: Paper) -> Sequence[str]:
    return ["Not as in the paper", *(f"  {one.what}: {one.why}" for one in paper.deviations)]


def _width() -> int:
    """Return how wide the terminal is; what goes into a file is not cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _FILE
