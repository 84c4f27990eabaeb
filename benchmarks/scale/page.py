"""The tables of scale as text: on a terminal and between two marks of a page, from the JSON of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- scale: begin, written by `make bench-scale` -->", "<!-- scale: end -->"


def write(page: Path, results: Mapping[str, Any]) -> None:
    """Put the tables of all that was measured between the page's marks."""
    text = page.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no lines {BEGIN!r} and {END!r} between which the tables would go")
    page.write_text(f"{before}{begin}\n\n{markdown(results)}\n{end}{after}", "utf-8")


def markdown(results: Mapping[str, Any]) -> str:
    """Return all tables, each with where and when it was taken."""
    return "\n".join("\n".join(_section(name, found)) for name, found in results.items())


def _section(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    taken = found["machine"]
    yield f"### {found['title']}\n"
    if found["about"]:
        yield f"{found['about']}\n"
    if found["rows"]:
        yield _line(found["columns"])
        yield _line("---" for _ in found["columns"])
        yield from (_line(map(figure, row)) for row in found["rows"])
        yield ""
    yield from (f"- {_verdict(held)}" for held in found["held"])
    if found["held"]:
        yield ""
    yield from (f"{sentence}\n" for sentence in found["skipped"])
    yield (
        f"`python -m benchmarks.scale {name}`, {taken['at'][:10]}, commit `{taken['commit']}`, "
        f"{taken['cores']} cores, load {taken['load'][0]:.1f} before and {taken['load'][1]:.1f} after.\n"
    )


def _verdict(held: Mapping[str, Any]) -> str:
    word = "held" if held["held"] else "**not held**"
    return f"{held['name']}: {figure(held['measured'])} (wanted {held['target']}): {word}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def figure(value: str | float) -> str:
    """Return a number with three digits that count, thousands apart."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
