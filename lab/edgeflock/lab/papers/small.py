"""The quick version of a paper's grid: fewer rows, cases and seeds, other options; for minutes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeflock.common.command.options import unknown
from edgeflock.common.errors import BadValue
from edgeflock.lab.grid.rows import flat, is_own, own_of

_KEYS = ("seeds", "minutes", "methods", "cases", "run", "case", "method", "grid")


def small(table: Mapping[str, Any], quick: Mapping[str, Any], where: str = "[quick]") -> dict[str, Any]:
    """Return a grid's table as [quick] has it: `methods` and `cases` are those that stay, the tables `run`,
    `case` (every case), `method` and `grid` go over those of the file."""
    for key in quick:
        if key not in _KEYS:
            raise unknown(f"key in {where}", key, _KEYS)
    found = dict(table)
    grid = {**flat(table.get("grid", {})), **flat(_table(quick, "grid", where))}
    if "methods" in quick:
        grid["method"] = _kept(quick["methods"], grid.get("method", []), f"methods in {where}")
    kept = _names(grid, table.get("method", {}))
    found["grid"] = _of_rows(grid, kept)
    found["run"] = {**table.get("run", {}), **_table(quick, "run", where)}
    found["method"] = _methods(table.get("method", {}), _table(quick, "method", where), grid)
    if "case" in table:
        names = [case.get("name") for case in table["case"]]
        stay = _kept(quick.get("cases", names), names, f"cases in {where}")
        over = flat(_table(quick, "case", where))
        cases = [flat(case) for case in table["case"] if case.get("name") in stay]
        found["case"] = [_of_rows({**case, **over}, kept) for case in cases]
    return found


def _names(grid: Mapping[str, Any], methods: Mapping[str, Any]) -> set[str]:
    """Return what NAME.OPTION can be of: the rows that stay, and their methods; nothing says that all do."""
    rows = grid.get("method", [])
    return {name for row in rows for name in (row, methods.get(row, {}).get("name", row))}


def _of_rows(table: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """Return a table without the options of rows that do not stay."""
    return {
        key: value for key, value in table.items() if not is_own(key) or own_of(key)[0] in names or not names
    }


def _methods(methods: Mapping[str, Any], over: Mapping[str, Any], grid: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of the rows that stay."""
    made = {name: {**methods.get(name, {}), **over.get(name, {})} for name in {**methods, **over}}
    return {name: made[name] for name in made if name in grid.get("method", made)}


def _table(quick: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = quick.get(key, {})
    if not isinstance(value, dict):
        raise BadValue(f"{key} in {where}", value, f"a table, [quick.{key}]")
    return value


def _kept(names: Any, known: list[Any], label: str) -> list[Any]:
    if not isinstance(names, list) or not names or not all(name in known for name in names):
        raise BadValue(label, names, f"some of {', '.join(map(str, known))}")
    return names
