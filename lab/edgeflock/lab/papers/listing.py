"""The list of papers: what each shows, its runs, how long they take, its data, the state of its results."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from edgeflock.common.command.units import counted
from edgeflock.common.errors import EdgeflockError
from edgeflock.lab.compare.time_left import rough
from edgeflock.lab.papers import kept, shelf
from edgeflock.lab.papers.judging.rules import Word
from edgeflock.lab.papers.needs import absent
from edgeflock.lab.papers.paper import Paper, read_paper
from edgeflock.lab.papers.shown import rulings, summary

_WIDTH = 80


def lines(data_root: Path | None) -> Iterator[str]:
    """Yield a paragraph for every paper that comes with edgeflock."""
    for name in shelf.names():
        path = shelf.find(name)
        try:
            yield from _of(read_paper(path), path, data_root)
        except EdgeflockError as error:
            yield f"{name}: cannot be read: {error}"


def _of(paper: Paper, path: Path, data_root: Path | None) -> Iterator[str]:
    grid = paper.grid([0])
    runs = counted(len(grid.runs) * paper.seeds, "run")
    missing = absent(grid, data_root)
    took = f"about {rough(60 * paper.minutes)} on two cores"
    yield f"{paper.name}: {paper.title}, {paper.source}"
    parts = (
        f"{paper.shows}; {runs}, {took}{', on the testbed, as root' if paper.testbed else ''}",
        f"data: {'; '.join(missing) or 'here'}{f'; {paper.needs}' if paper.needs else ''}",
        f"result: {state(paper, path)}",
    )
    for part in parts:
        yield from textwrap.wrap(part, _WIDTH, initial_indent="  ", subsequent_indent="    ")


def state(paper: Paper, path: Path) -> str:
    """Return what the kept result of a paper says, or why there is none."""
    try:
        found = kept.read(shelf.results_of(path), paper)
    except EdgeflockError as error:
        return str(error)
    if found is None:
        return str(Word.NOT_TRIED)
    about = found.about
    return f"{summary(rulings(paper, found.sheet), len(about.seeds), quick=about.quick)}, {about.date}"
