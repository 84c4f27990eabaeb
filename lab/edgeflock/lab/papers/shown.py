"""A paper's table beside ours, the claims with their words, and the verdict: blocks and sentences. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from edgeflock.common.command.units import counted
from edgeflock.lab.findings.blocks import Block
from edgeflock.lab.findings.bounded import Bounded
from edgeflock.lab.findings.quantity import DASH
from edgeflock.lab.papers.judging.apart import Apart, apart, bounded_text, interval_text, level_of
from edgeflock.lab.papers.judging.claims import ClaimVerdict, judged, narrowed, verdict
from edgeflock.lab.papers.judging.paper_table import PaperTable
from edgeflock.lab.papers.judging.rules import Word
from edgeflock.lab.papers.judging.sheet import NumberPlace, Sheet, rows_of
from edgeflock.lab.papers.paper import Paper


def blocks(paper: Paper, found: Sheet, *, quick: bool = False) -> list[Block]:
    """Return every table of a paper beside ours, one for each of its cases that are run."""
    rows = rows_of(paper.grid([0], quick=quick))
    made = [
        _block(table, case, rows[case], found)
        for table in paper.tables
        for case in table.cases
        if case in rows
    ]
    return [block for block in made if block.rows]


def _block(table: PaperTable, case: str, rows: Sequence[str], found: Sheet) -> Block:
    known = [row for row in rows if found.at(_spot(table, case, row)) or case in table.paper.get(row, {})]
    ratio = table.ratio if table.ratio in known else ""
    heads = ["", "paper", "here", "seeds"]
    heads += [f"paper / {ratio}", f"here / {ratio}"] if ratio else []
    lines = tuple(_line(table, case, row, ratio, found) for row in known)
    return Block(": ".join(filter(None, (table.title, case))), tuple(heads), lines)


def _spot(table: PaperTable, case: str, row: str) -> NumberPlace:
    return NumberPlace(case, row, table.quantity.text)


def _line(table: PaperTable, case: str, row: str, ratio: str, found: Sheet) -> tuple[str, ...]:
    numbers, cost = found.at(_spot(table, case, row)), table.quantity.is_cost
    paper = table.paper.get(row, {}).get(case)
    here = level_text(level_of(numbers, cost=cost), share=table.quantity.is_share)
    cells = [row, paper_text(paper), here, str(len(numbers) or DASH)]
    if not ratio:
        return tuple(cells)
    base = table.paper.get(ratio, {}).get(case)
    theirs = f"{paper.low / base.low:.2f}" if paper and base and paper.exact and base.exact else DASH
    mine = apart(numbers, found.at(_spot(table, case, ratio)), cost=True) if row != ratio else None
    return (*cells, theirs if row != ratio else "1", "1" if row == ratio else str(mine) if mine else DASH)


def paper_text(value: Bounded | None) -> str:
    """Return a value of the paper as it prints it."""
    if value is None:
        return DASH
    return f"{value.low:g}" if value.exact else f"> {value.low:g}"


def level_text(found: Apart | None, *, share: bool) -> str:
    """Return where a row stands, with its interval; one seed has none."""
    if found is None:
        return DASH
    shown = _percent if share else _number
    value = bounded_text(found.value, shown)
    return f"{value} {interval_text(found.low, found.high, shown)}" if found.interval else value


def _percent(value: float) -> str:
    return f"{value:.2f}"


def _number(value: float) -> str:
    """Return a number with the digits that it is worth."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}"


def rulings(paper: Paper, found: Sheet, *, quick: bool = False) -> list[ClaimVerdict]:
    """Return the verdict on every claim; in the quick version about the rows and cases that it runs."""
    if not quick:
        return [judged(claim, found) for claim in paper.claims]
    rows = rows_of(paper.grid([0], quick=True))
    return [judged(narrowed(claim, rows), found) for claim in paper.claims]


def claim_lines(verdicts: Sequence[ClaimVerdict]) -> list[str]:
    """Return every claim with its word and what that stands on."""
    return [
        f"  {one.word}{' (aside)' if one.claim.aside else ''}: {one.claim.says} ({one.ground})"
        if one.word != Word.NOT_TRIED
        else f"  {one.word}: {one.claim.says}"
        for one in verdicts
    ]


def summary(verdicts: Sequence[ClaimVerdict], seeds: int, *, quick: bool) -> str:
    """Return the verdict in a sentence."""
    word, main = verdict(verdicts), [one for one in verdicts if not one.claim.aside]
    good = sum(one.word == Word.REPRODUCED for one in main)
    ground = f"{good} of {counted(len(main), 'claim')} reproduced, {counted(seeds, 'seed')}"
    if quick:
        return f"the quick version, no verdict on the paper; its own words would be: {word} ({ground})"
    return f"{word} ({ground})"
