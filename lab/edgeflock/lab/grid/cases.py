"""Cases of a grid: options that vary together under a name, and what is asked of their runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from edgeflock.common.errors import BadValue, UsageError
from edgeflock.lab.grid.options import METHOD, SEED, text_of, values_of
from edgeflock.lab.grid.rows import MethodRow, applies, check_rows, flat, is_own, options_of, own_of, part

CASE = "case"
_NAME = "name"


@dataclass(frozen=True)
class Case:
    """What a case says: options for all rows, those of single methods, and what is asked."""

    name: str
    options: Mapping[str, Any]  # of fl-server and fl-lab run, checked
    own: Mapping[str, Any]  # NAME.OPTION: value, not checked
    asked: Mapping[str, Any]  # not checked
    where: str

    def of(self, row: MethodRow) -> dict[str, Any]:
        """Return what it says for a row alone: options, and what is asked of its runs."""
        mine = (key for key in self.own if applies(key, row, self.own))
        return {own_of(key)[1]: self.own[key] for key in mine}

    def options_of(self, row: MethodRow) -> dict[str, Any]:
        """Return the options for a row alone."""
        return options_of(row.method, part(self.of(row))[1], self.where)

    def asked_of(self, row: MethodRow) -> dict[str, Any]:
        """Return what is asked of a row's runs, that for it alone over that for all."""
        return {**self.asked, **row.asked, **part(self.of(row))[0]}


def read_cases(tables: Any, where: str) -> dict[str, Case]:
    """Return the cases of a file by their names; nothing where there are none."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadValue(f"{CASE} in {where}", tables, f"tables, [[{CASE}]]")
    found: dict[str, Case] = {}
    for number, table in enumerate(tables, 1):
        case = _case(table, f"[[{CASE}]] {number} of {where}")
        if case.name in found:
            raise BadValue(f"name in [[{CASE}]] {number} of {where}", case.name, "every name once")
        found[case.name] = case
    return found


def _case(table: Mapping[str, Any], where: str) -> Case:
    if _NAME not in table:
        raise UsageError(f"{where} has no name: every case is called something")
    name = text_of(table[_NAME], f"{_NAME} in {where}")
    asked, rest = part(flat({key: table[key] for key in table if key != _NAME}))
    for key in (SEED, METHOD):
        if key in rest:
            raise UsageError(f"{key} in {where}: every case has the same ones, in [grid] or [run]")
    own = {key: value for key, value in rest.items() if is_own(key)}
    options = values_of({key: value for key, value in rest.items() if key not in own}, where)
    return Case(name, options, own, asked, where)


def check_cases(cases: Collection[Case], rows: Collection[MethodRow], axes: Collection[str]) -> None:
    """Refuse what stands in a case and elsewhere, and what is for a method that the grid does not run."""
    for case in cases:
        check_rows(case.own, rows, case.where)
        for key in (*case.options, *case.own):
            if key in axes:
                raise UsageError(f"{key} stands in [grid] and in {case.where}: give it once")
        for row in rows:
            if twice := sorted(case.options.keys() & row.options.keys() - {"set"}):
                other = f"[method.{row.name}]: give it once, or as {row.name}.{twice[0]} in the case"
                raise UsageError(f"{twice[0]} stands in {case.where} and in {other}")
