"""What `fl-lab compare` prints in the end: one table, the verdict and what next, or all tables."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import click

from edgeflock.common.command.units import counted
from edgeflock.common.scores import ACCURACY
from edgeflock.lab.compare import files, tables
from edgeflock.lab.compare.figure_spec import FigureSpec
from edgeflock.lab.findings.blocks import HEADINGS, Block, known_costs, met
from edgeflock.lab.findings.findings import Findings
from edgeflock.lab.findings.groups import Figure, Group, ends
from edgeflock.lab.findings.quantity import middle, quantity
from edgeflock.lab.findings.verdict import SettingVerdict
from edgeflock.lab.grid.grid import Grid
from edgeflock.lab.plots.names import elided
from edgeflock.server.console.onward import command

LINES, COLUMNS = 24, 80
_LEAST_ROWS = 3
_NAME = 24  # characters
_LONGEST = 6  # lines of a sentence
_SETTINGS = 3  # verdicts that are printed


def tell(found: Findings, out: Path, *, width: int, full: bool, figures: Sequence[FigureSpec] = ()) -> None:
    """Write the files, and print the tables: one screen of that width, or all of them."""
    written = files.write(found, out, figures)
    onward = command("fl-lab", "report", out)
    if not full:
        click.echo(screen(found, out, onward, width))
        return
    click.echo("\n" + "\n\n".join(map(tables.as_text, found.blocks())) + "\n")
    for line in (*found.notes(), written, *(f"verdict: {one}" for one in found.verdicts), f"next: {onward}"):
        click.echo(line)


def screen(found: Findings, out: Path, onward: str, width: int) -> str:
    """Return the end of a comparison, in at most `LINES` lines of that width."""
    below = [
        *_verdict(found.verdicts, width),
        *(line for note in found.urgent() for line in _wrapped(note, width)),
        *_wrapped(f"every table: {out / 'comparison.md'} (or --full); CSV and pictures beside it", width),
        f"next: {onward}",
    ]
    rows = max(_LEAST_ROWS, LINES - len(below) - 5)  # title, heads, two empty lines, the prompt
    return "\n".join(["", tables.as_text(overview(found.groups, found.grid, width, rows)), "", *below])


def _verdict(verdicts: Sequence[SettingVerdict], width: int) -> list[str]:
    lines = [line for one in verdicts[:_SETTINGS] for line in _wrapped(f"verdict: {one}", width)]
    more = len(verdicts) - _SETTINGS
    return [*lines, f"verdict: {counted(more, 'more setting')} in comparison.md"] if more > 0 else lines


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
        max_lines=_LONGEST,
        placeholder=" ... (comparison.md)",
    )


def overview(found: Sequence[Group], grid: Grid, width: int, rows: int) -> Block:
    """Return one table of all groups: as many columns as fit the width, and so many rows."""
    target = next(reversed(met(found, grid)), None)
    seeds = counted(max((group.cells for group in found), default=0), "seed")
    whose = "" if grid.figure == ACCURACY else f" of {grid.figure.name}"
    title = f"Mean ± deviation{whose} over {seeds}"
    shown = list(found)
    if len(found) > rows:
        shown = shown[: rows - 1]
        title += f"; the first {rows - 1} of {len(found)}"
    elif target is not None:
        title += f"; to {target:g}: the median"
    names = elided([group.name for group in shown], _NAME)
    columns = _fitting(_columns(shown, target, known_costs(found), grid), max(map(len, names)), width)
    lines = zip(names, *(cells for _, _, cells in columns), strict=True)
    return Block(title, ("", *(head for _, head, _ in columns)), tuple(lines))


_Column = tuple[int, str, list[str]]  # what goes first where there is no room for all; head, cells


def _columns(
    found: Sequence[Group], target: float | None, known: frozenset[str], grid: Grid
) -> list[_Column]:
    """Return the columns from left to right, each with its rank: the smallest stay."""
    costs = [name for name in HEADINGS if name in known and (target is not None or name != "rounds")]
    final, best = ends(grid)
    figures: list[tuple[int, str, Figure]] = [(0, "final", (None, final)), (5, "best", (None, best))]
    figures += [
        (
            2 + number,
            f"{HEADINGS[name]}{f' to {target:g}' if name == costs[0] and target else ''}",
            (target, name),
        )
        for number, name in enumerate(costs)
    ]
    columns = [(rank, head, [_cell(group, figure) for group in found]) for rank, head, figure in figures]
    if target is None:
        return columns
    came = [f"{len(group.values.get((target, 'rounds'), {}))}/{group.cells}" for group in found]
    return [*columns, (1, f"reached {target:g}", came)]


def _cell(group: Group, figure: Figure) -> str:
    if figure[0] is None:
        return quantity(figure[1], group.spreads.get(figure))
    return middle(figure[1], group.middles.get(figure), alone=True)


def _fitting(columns: Sequence[_Column], name: int, width: int) -> list[_Column]:
    """Return the columns that fit beside the names, the most important ones first."""
    room, kept = width - 2 - name, set[int]()
    for place in sorted(range(len(columns)), key=lambda place: columns[place][0]):
        _, head, cells = columns[place]
        wide = 2 + max(map(len, (head, *cells)))
        if wide <= room:
            room -= wide
            kept.add(place)
    return [column for place, column in enumerate(columns) if place in kept]
