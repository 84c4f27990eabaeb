"""A table of a paper's file: one quantity by row and case, with the paper's own values. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgeflock.common.command.options import unknown
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.lab.findings.bounded import Bounded, exactly, more_than
from edgeflock.lab.papers.judging.quantity_name import QuantityName, read_quantity

_KEYS = ("title", "quantity", "ratio", "case", "paper")


@dataclass(frozen=True)
class PaperTable:
    """One quantity by row and case, and what the paper has of it."""

    title: str
    quantity: QuantityName
    ratio: str  # the row to which the others have a ratio; empty: none is shown
    cases: tuple[str, ...]
    paper: Mapping[str, Mapping[str, Bounded]]  # by row and case


def read_table(table: Any, rows: Mapping[str, Sequence[str]], where: str) -> PaperTable:
    """Return a table of a file, checked against the rows and cases of its grid."""
    if not isinstance(table, dict):
        raise BadValue(where, table, "a table, [[table]]")
    for key in table:
        if key not in _KEYS:
            raise unknown(f"key in {where}", key, _KEYS)
    for key in ("title", "quantity"):
        if not isinstance(table.get(key), str):
            raise UsageError(f"{where} has no {key}")
    cases = _cases(table.get("case", list(rows)), rows, where)
    known = {row for case in cases for row in rows[case]}
    values = table.get("paper", {})
    if not isinstance(values, dict):
        raise BadValue(f"paper in {where}", values, "a table of rows, [table.paper]")
    for name in (*values, *([table["ratio"]] if "ratio" in table else [])):
        if name not in known:
            raise unknown(f"row in {where}, which the grid does not run", name, known)
    return PaperTable(
        title=table["title"],
        quantity=read_quantity(table["quantity"], f"quantity in {where}"),
        ratio=str(table.get("ratio", "")),
        cases=cases,
        paper={row: _values(value, cases, f"{row} in {where}") for row, value in values.items()},
    )


def _cases(given: Any, rows: Mapping[str, Sequence[str]], where: str) -> tuple[str, ...]:
    cases = given if isinstance(given, list) else [given]
    for case in cases:
        if case not in rows:
            raise BadValue(f"case in {where}", case, f"a case of the grid: {', '.join(rows)}")
    return tuple(cases)


def _values(value: Any, cases: Sequence[str], label: str) -> dict[str, Bounded]:
    """Return the paper's value of every case: a list in their order, or one value where there is one."""
    values = value if isinstance(value, list) else [value]
    if len(values) != len(cases):
        raise BadValue(label, value, f"{len(cases)} values, one of each case: {', '.join(cases)}")
    return {case: _value(one, label) for case, one in zip(cases, values, strict=True) if one != ""}


def _value(value: Any, label: str) -> Bounded:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return exactly(float(value))
    try:
        if isinstance(value, str) and value.startswith(">"):
            return more_than(float(value[1:]))
    except ValueError:
        pass
    raise BadValue(label, value, 'a number, ">100" for one that was not reached, or "" for none')
