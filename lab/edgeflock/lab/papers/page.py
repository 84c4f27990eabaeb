"""docs/papers.md and the README's summary: what papers/*.toml and papers/results say, and nothing else.

`python -m edgeflock.lab.papers.page FILE...` renews what stands between `<!-- papers -->`, or
`<!-- papers in short -->`, and `<!-- /papers -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgeflock.common.command.units import counted
from edgeflock.common.errors import EdgeflockError
from edgeflock.lab import markdown
from edgeflock.lab.papers import kept, shelf
from edgeflock.lab.papers.judging.claims import ClaimVerdict, verdict
from edgeflock.lab.papers.judging.rules import Word
from edgeflock.lab.papers.kept import Circumstances, KeptResult
from edgeflock.lab.papers.paper import Paper, read_paper
from edgeflock.lab.papers.shown import blocks, rulings

MARKED = re.compile(
    r"(<!-- (?P<what>papers|papers in short) -->\n)(?P<part>.*?)(<!-- /papers -->)", re.DOTALL
)


def renewed(text: str, root: Path | None = None) -> str:
    """Return a page with every marked part as papers and results have it."""
    papers = list(_papers(root or shelf.home()))

    def part(match: re.Match[str]) -> str:
        made = whole(papers) if match["what"] == "papers" else in_short(papers)
        return f"{match[1]}{made}{match[4]}"

    return MARKED.sub(part, text)


Entry = tuple[Paper, KeptResult | None, str]  # and why its result does not count


def _papers(root: Path) -> Iterator[Entry]:
    for path in sorted(root.glob("*.toml")):
        paper = read_paper(path)
        try:
            yield paper, kept.read(shelf.results_of(path), paper), ""
        except EdgeflockError as error:
            yield paper, None, str(error)


# ------------------------------------------------------------------------------------------- the summary


def in_short(papers: Sequence[Entry]) -> str:
    """Return a row for every paper's method: the word on each of its tables and figures."""
    rows: dict[str, list[str]] = {}
    for paper, found, _ in papers:
        link = f"[{_source(paper)}](docs/papers.md#{paper.name})"
        rows.setdefault(paper.title, []).append(f"{link} {_short(paper, found)}")
    return _table(
        ("", "its tables and figures here"), [(title, "; ".join(told)) for title, told in rows.items()]
    )


def _source(paper: Paper) -> str:
    return paper.source.partition(" (")[0]


def _short(paper: Paper, found: KeptResult | None) -> str:
    """Return the word on a paper's file, bold if it was tried, and of how many seeds it is."""
    if found is None:
        return str(Word.NOT_TRIED)
    word = verdict(rulings(paper, found.sheet))
    return f"**{word}**" + (" (one seed)" if len(found.about.seeds) == 1 else "")


def overview(papers: Sequence[Entry]) -> str:
    """Return a row for every file: what it shows, the word, and how much that rests on."""
    rows = [_row(paper, found) for paper, found, _ in papers]
    return _table(("", "shows", "claims reproduced", "seeds", "verdict"), rows)


def _row(paper: Paper, found: KeptResult | None) -> tuple[str, ...]:
    name = f"[{paper.title}, {_source(paper)}](#{paper.name})"
    if found is None:
        return name, paper.shows, "-", "-", _short(paper, found)
    main = [one for one in rulings(paper, found.sheet) if not one.claim.aside]
    good = sum(one.word == Word.REPRODUCED for one in main)
    return name, paper.shows, f"{good} of {len(main)}", str(len(found.about.seeds)), _short(paper, found)


# ------------------------------------------------------------------------------------------ every paper


def whole(papers: Sequence[Entry]) -> str:
    """Return a section for every paper, the summary first."""
    return overview(papers) + "".join("\n" + "\n".join(_section(*entry)) + "\n" for entry in papers)


def _section(paper: Paper, found: KeptResult | None, refused: str) -> Iterator[str]:
    yield f"## {paper.name}"
    yield ""
    yield f"{paper.title}, {paper.source}: {paper.shows}."
    if paper.note:
        yield paper.note
    yield ""
    yield from _how(paper)
    if found is None:
        yield f"**{Word.NOT_TRIED}**{f': {refused}' if refused else ''}."
        yield ""
        yield from (f"- {'Control' if one.aside else 'Claimed'}: {one.says}." for one in paper.claims)
        yield ""
    else:
        yield from _result(paper, found)
    yield from _deviations(paper)


def _how(paper: Paper) -> Iterator[str]:
    runs = len(paper.grid([0]).runs) * paper.seeds
    yield "```"
    yield f"fl-lab paper {paper.name} --data-root DIR"
    yield "```"
    yield ""
    told = f"{counted(runs, 'run')}, {counted(paper.seeds, 'seed')}, about {paper.minutes:g} min on two cores"
    yield f"{told}{f'; {paper.needs}' if paper.needs else ''}."
    yield ""


def _result(paper: Paper, found: KeptResult) -> Iterator[str]:
    verdicts = rulings(paper, found.sheet)
    yield f"**{verdict(verdicts)}**, {_circumstances(found.about)}."
    yield ""
    yield _table(("claim", "verdict", "on what it stands"), [_claim(one) for one in verdicts])
    for one in verdicts:
        if one.claim.found:
            yield f"{one.claim.says[:1].upper()}{one.claim.says[1:]}, {one.word}: {one.claim.found}"
            yield ""
    for block in blocks(paper, found.sheet):
        yield f"{block.title}\n\n{_table(block.columns, block.rows)}"
    for figure in found.figures:
        yield f"![{paper.shows}](../papers/{shelf.RESULTS}/{figure.name})"
        yield ""
    if found.about.failures:
        yield from (f"- No result: {failure}." for failure in found.about.failures)
        yield ""


def _circumstances(about: Circumstances) -> str:
    runs = f"{counted(about.cells, 'run')} of {about.of}, seeds {about.span}"
    took = f"{about.seconds / 3600:.1f} h of runs on {about.machine}, torch {about.torch}"
    return f"{runs}, {took}, commit `{about.commit}`, {about.date}, settings `{about.settings}`"


def _claim(one: ClaimVerdict) -> tuple[str, ...]:
    return one.claim.says, f"{one.word}{' (aside)' if one.claim.aside else ''}", one.ground


def _deviations(paper: Paper) -> Iterator[str]:
    if paper.deviations:
        yield "Not as in the paper:"
        yield ""
        yield from (f"- {one.what}: {one.why}." for one in paper.deviations)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(markdown.row(line) + "\n" for line in (head, ("---",) * len(head), *rows))


def main() -> None:
    """Renew the pages that are named."""
    markdown.renew_named_pages(renewed)


if __name__ == "__main__":
    main()
