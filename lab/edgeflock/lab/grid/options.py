"""Sections of a grid's file as options of fl-server and fl-lab run: every key and value is checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from edgeflock.common.command.kinds import plain
from edgeflock.common.command.options import Option, from_table, public, unknown
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.lab.run.config import LabConfig
from edgeflock.server.config import ServerConfig

METHOD = "method"
SEED = "seed"
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
        check_key(key, where)
    return from_table(_known(), table, where)


def known_keys() -> set[str]:
    """Return every key that stands for an option of fl-server or fl-lab run."""
    return {entry.name for entry in _known() if not entry.table}


def is_known(key: str) -> bool:
    """Whether a key stands for an option, be it one that has its place elsewhere."""
    return key in _ELSEWHERE or key in known_keys()


def check_key(key: str, where: str, own: Collection[str] = ()) -> None:
    """Refuse a key that is neither an option of fl-server or fl-lab run nor one of a method's own."""
    if key in _ELSEWHERE:
        raise UsageError(f"{key} in {where}: {_ELSEWHERE[key]}")
    known = {*own, *known_keys()}
    if key not in known:
        raise unknown(f"key in {where}", key, known)


def axis_of(key: str, values: Any, where: str) -> list[Choice]:
    """Return the label of every value of an axis, with the options that it stands for."""
    where = f"[grid] of {where}"
    if not isinstance(values, list) or not values:
        check_key(key, where)  # an unknown one is the greater mistake
    return choices_of(key, values, where, lambda value: values_of({key: value}, where))


def choices_of(
    key: str, values: Any, where: str, stands_for: Callable[[Any], dict[str, Any]]
) -> list[Choice]:
    """Return a list of values as an axis, each once."""
    if not isinstance(values, list) or not values:
        raise BadValue(f"{key} in {where}", values, "a list with at least one value")
    found = [(label_of(value), stands_for(value)) for value in values]
    labels = [label for label, _ in found]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise BadValue(f"{key} in {where}", twice, "every value once")
    return found


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
