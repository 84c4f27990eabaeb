"""The files of a comparison: tables for people and for machines, and the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgeflock.common.command import extras
from edgeflock.common.command.units import counted
from edgeflock.lab.compare import figures, picture, tables
from edgeflock.lab.compare.figure_spec import FigureSpec
from edgeflock.lab.findings.findings import Findings
from edgeflock.lab.findings.groups import Record, cell_records, curve_records, summary_records

PICTURE = "comparison"
FIGURES = "figures"  # the folder of those that were asked for


def write(found: Findings, out: Path, asked: Sequence[FigureSpec] = ()) -> str:
    """Write all files; return which, in a sentence."""
    blocks = found.blocks()
    verdict = ["## Verdict", "", *(f"- {one}" for one in found.verdicts), ""]
    notes = [f"{note}\n" for note in found.notes()]
    markdown = ["\n".join(verdict), *map(tables.as_markdown, blocks), *notes]
    (out / "comparison.md").write_text("\n".join(markdown), "utf-8")
    latex = ["% \\usepackage{booktabs,graphicx}", *map(tables.as_latex, blocks)]
    (out / "comparison.tex").write_text("\n".join(latex), "utf-8")
    lacking = picture.draw(found, out / PICTURE)
    missing = figures.write(found, asked, out / FIGURES)
    records = {
        "cells": cell_records(found.results, found.grid),
        "summary": summary_records(found.groups, found.grid),
        "curves": curve_records(found.results, found.grid),
    }
    parquet = _write_records(out, records)
    texts, kinds = "md,tex" if lacking else "md,tex,svg,png", "{csv,parquet}" if parquet else "csv"
    hints = [lacking, *missing, "" if parquet else f"Parquet {extras.needs('pyarrow')}"]
    files = f"comparison.{{{texts}}} and {{{','.join(records)}}}.{kinds} in {out}"
    files += f", {counted(len(asked) - len(missing), 'more picture')} in {out / FIGURES}" if asked else ""
    return "; ".join(["Written: " + files, *filter(None, hints)])


def _write_records(out: Path, records: Mapping[str, Sequence[Record]]) -> bool:
    """Write the files for machines; return whether Parquet could be written, too."""
    parquet = True
    for name, rows in records.items():
        tables.write_csv(out / f"{name}.csv", rows)
        parquet = tables.write_parquet(out / f"{name}.parquet", rows) and parquet
    return parquet
