"""Tables as files and text: aligned columns, Markdown, LaTeX, CSV, Parquet."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from edgeflock.common.command import extras
from edgeflock.lab import markdown
from edgeflock.lab.findings.blocks import Block
from edgeflock.lab.findings.groups import Record

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"$<$",  # in a font's old encoding it is another letter
    ">": r"$>$",
    "|": r"$|$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def as_text(block: Block) -> str:
    """Return a block with aligned columns, for a terminal."""
    lines = [block.columns, *block.rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(block.columns))]
    aligned = [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(pairs)
        )
        for pairs in (list(zip(line, widths, strict=True)) for line in lines)
    ]
    return "\n".join([block.title, *(f"  {line.rstrip()}" for line in aligned)])


def as_markdown(block: Block) -> str:
    """Return a block as a Markdown table below a heading."""
    lines = [block.columns, ["---", *("---:" for _ in block.columns[1:])], *block.rows]
    return "\n".join([f"## {block.title}", "", *map(markdown.row, lines), ""])


def as_latex(block: Block) -> str:
    """Return a block as a LaTeX table, as wide as the page at most; it needs booktabs and graphicx."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join(_escaped(cell) for cell in cells) + r" \\"

    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_escaped(block.title)}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{l{'r' * (len(block.columns) - 1)}}}",
            r"\toprule",
            line(block.columns),
            r"\midrule",
            *map(line, block.rows),
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
            "",
        ]
    )


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def write_csv(path: Path, records: Sequence[Record]) -> None:
    """Write records with a header line; what is not known is empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]) if records else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)


def write_parquet(path: Path, records: Sequence[Record]) -> bool:
    """Write records as Parquet if pyarrow is there; return whether it is."""
    if not extras.installed("pyarrow"):
        return False
    import pyarrow
    import pyarrow.parquet

    names = list(records[0]) if records else []
    columns = {name: [record[name] for record in records] for name in names}
    table = pyarrow.table({name: pyarrow.array(values, _type(values)) for name, values in columns.items()})
    pyarrow.parquet.write_table(table, path)
    return True


def _type(values: Sequence[object]) -> str:
    """Return the type of a column: that of what is known of it, else a number's."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, str) for value in known):
        return "string"
    return "int64" if known and all(isinstance(value, int) for value in known) else "float64"
