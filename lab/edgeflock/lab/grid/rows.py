"""The rows of a grid: methods and variants of them, with their options, and which of these vary by row."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgeflock.common.errors import BadValue, UsageError
from edgeflock.common.plugins.loading import is_reference, named
from edgeflock.lab.grid.options import (
    METHOD,
    Choice,
    check_key,
    choices_of,
    is_known,
    label_of,
    text_of,
    values_of,
)

ASKED = ("target", "measure")  # what is asked of runs, beside their options
_LONGEST = 100  # a name of a row is that of a folder, too
_NAME = re.compile(rf"[A-Za-z0-9][\w.+-]{{0,{_LONGEST - 1}}}", re.ASCII)


@dataclass(frozen=True)
class MethodRow:
    """A method, or a variant of one under a name of its own."""

    name: str
    method: str
    options: Mapping[str, Any]  # of fl-server, those of the method among them as `set`
    said: frozenset[str]  # what its table says
    asked: Mapping[str, Any]  # as its table says, not checked


def row_of(name: str, table: Any, axes: Collection[str], where: str) -> MethodRow:
    """Return the row that a table [method.NAME] describes: its own options, and those of fl-server."""
    where = f"[method.{name}] of {where}"
    if not isinstance(table, dict):
        raise BadValue(f"method.{name}", table, f"a table, [method.{name}]")
    if is_reference(name):
        raise UsageError(
            f'{name} in {where} needs a name of its own: method = ["mine"], and [method.mine] with '
            f'name = "{name}"'
        )
    if not _NAME.fullmatch(name):
        raise BadValue(f"the name {where}", name, f"letters, digits and . _ + -, at most {_LONGEST}")
    asked, rest = part(table)
    method = text_of(rest.pop("name", name), f"name in {where}")
    found = options_of(method, rest, where)
    if twice := next((key for key in rest if key in axes or f"{name}.{key}" in axes), None):
        raise UsageError(f"{twice} stands in [grid] and in {where}: give it once")
    return MethodRow(name, method, {METHOD: method, **found}, frozenset(rest), asked)


def part(table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part what is asked of runs from their options; a target that is a table is one of these."""
    asked = {key: table[key] for key in ASKED if key in table and not isinstance(table[key], dict)}
    return asked, {key: value for key, value in table.items() if key not in asked}


def options_of(method: str, table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return options of a method as `set`, and those of fl-server beside it."""
    from edgeflock.methods.kit.registry import load  # brings torch

    own = set(load(named(method)).params.__dataclass_fields__)
    rest = {key: value for key, value in table.items() if key not in own}
    if METHOD in rest:
        raise UsageError(f"method in {where}: the method that it is one of is its name")
    for key in rest:
        check_key(key, where, own)
    found = {key: label_of(value) for key, value in table.items() if key in own}
    return {**values_of(rest, where), **({"set": found} if found else {})}


# ------------------------------------------------------------------- NAME.OPTION, in a grid or in a case


def is_own(key: str) -> bool:
    """Whether a key is that of an option of one method: fedtrip.mu."""
    return "." in key


def flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with NAME.OPTION as keys, which TOML reads as tables where they are not quoted."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and not is_known(key):
            found |= {f"{key}.{option}": entry for option, entry in value.items()}
        else:
            found[key] = value
    return found


def own_of(key: str) -> tuple[str, str]:
    """Return the row, or method, and the option of NAME.OPTION."""
    name, _, option = key.rpartition(".")
    return name, option


def applies(key: str, row: MethodRow, keys: Collection[str]) -> bool:
    """Whether NAME.OPTION is for a row: it is NAME, or of the method NAME and says nothing else itself."""
    name, option = own_of(key)
    if name == row.name:
        return True
    return name == row.method and option not in row.said and f"{row.name}.{option}" not in keys


def check_rows(keys: Iterable[str], rows: Collection[MethodRow], where: str) -> None:
    """Refuse a NAME.OPTION of a method that the grid does not run, or that a row has said itself."""
    names = list(dict.fromkeys(name for row in rows for name in (row.name, row.method)))
    for key in keys:
        name, option = own_of(key)
        if name not in names:
            raise BadValue(f"{key} in {where}", name, f"a method that the grid runs: {', '.join(names)}")
        if twice := next((row for row in rows if row.name == name and option in row.said), None):
            raise UsageError(
                f"{option} stands in [method.{twice.name}] and as {key} in {where}: give it once"
            )


def own_axis_of(key: str, values: Any, where: str) -> list[Choice]:
    """Return the values of an axis NAME.OPTION, not checked: they are the method's matter."""
    return choices_of(key, values, where, lambda value: {own_of(key)[1]: value})
