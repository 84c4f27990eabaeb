"""Sections of a grid's file as options of fl-server and fl-lab run: every key and value is checked."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from edgeflock.common.command.kinds import plain
from edgeflock.common.command.options import Option, from_table, public, unknown
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.lab.run.config import LabConfig
from edgeflock.server.config import ServerConfig

METHOD = "method"
_LONGEST = 100  # a name of a method is that of a folder, too
_NAME = re.compile(rf"[A-Za-z0-9][\w.+-]{{0,{_LONGEST - 1}}}", re.ASCII)
_ELSEWHERE = {
    "run_dir": "every cell has a directory of its own, below --out",
    "set": "options of a method stand in [method.NAME]",
}

Choice = tuple[str, dict[str, Any]]  # a value of an axis: its label, and the options that it stands for


def section(table: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """Return a table of the file, empty if it is not there."""
    section = table.get(name, {})
    if not isinstance(section, dict):
        raise BadValue(f"{name} in {where}", section, f"a table, [{name}]")
    return section


def _known() -> list[Option]:
    return [
        entry for kind in (ServerConfig, LabConfig) for entry in public(kind) if entry.name not in _ELSEWHERE
    ]


def values_of(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return options of fl-server and fl-lab run, checked."""
    for key in table:
        _check_key(key, where)
    return from_table(_known(), table, where)


def _check_key(key: str, where: str, own: Collection[str] = ()) -> None:
    if key in _ELSEWHERE:
        raise UsageError(f"{key} in {where}: {_ELSEWHERE[key]}")
    known = {*own, *(entry.name for entry in _known() if not entry.table)}
    if key not in known:
        raise unknown(f"key in {where}", key, known)


def axis_of(key: str, values: Any, where: str) -> list[Choice]:
    """Return the label of every value of an axis, with the options that it stands for."""
    where = f"[grid] of {where}"
    if not isinstance(values, list) or not values:
        _check_key(key, where)  # an unknown one is the greater mistake
        raise BadValue(f"{key} in {where}", values, "a list with at least one value")
    found = [(label_of(value), values_of({key: value}, where)) for value in values]
    labels = [label for label, _ in found]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise BadValue(f"{key} in {where}", twice, "every value once")
    return found


def method_of(name: str, table: Any, axes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the options of a method or a variant of one: its own as `set`, and those of fl-server."""
    from edgeflock.methods.kit.registry import load  # brings torch

    where = f"[method.{name}] of {where}"
    if not isinstance(table, dict):
        raise BadValue(f"method.{name}", table, f"a table, [method.{name}]")
    if not _NAME.fullmatch(name):
        raise BadValue(f"the name {where}", name, f"letters, digits and . _ + -, at most {_LONGEST}")
    method = load(text_of(table.get("name", name), f"name in {where}"))
    own = set(method.params.__dataclass_fields__)
    rest = {key: value for key, value in table.items() if key not in own and key not in ("name", "measure")}
    if METHOD in rest:
        raise UsageError(f"method in {where}: the method that it is one of is its name")
    for key in rest:
        _check_key(key, where, own)
        if key in axes:
            raise UsageError(f"{key} stands in [grid] and in {where}: give it once")
    set_ = {key: label_of(value) for key, value in table.items() if key in own}
    return {**values_of(rest, where), METHOD: method.name, **({"set": set_} if set_ else {})}


def label_of(value: Any) -> str:
    """Return a value as people read it; a named thing with options as `name key=value`."""
    try:
        if isinstance(value, dict):
            rest = [f"{key}={plain(entry)}" for key, entry in value.items() if key != "name"]
            return " ".join([plain(value["name"]), *rest] if "name" in value else rest)
        return plain(value)
    except ValueError:
        raise BadValue(
            "a value of the grid", value, "a text, a number, true or false, or a table of these"
        ) from None


def text_of(value: Any, label: str) -> str:
    """Return a value that must be a text."""
    if not isinstance(value, str) or not value:
        raise BadValue(label, value, "a text")
    return value
