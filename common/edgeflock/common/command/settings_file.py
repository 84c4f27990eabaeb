"""A whole configuration as TOML text and back: RUN_DIR/run.toml, and what differs between two of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from edgeflock.common.command.options import Option, from_table, options

C = TypeVar("C")


def to_toml(config: Any) -> str:
    """Return every value as TOML that `from_toml` and `--config` read; None is left out.

    Fields that make the run what it is come first, then those that may change on resume, then the tables.
    """
    owned = {entry.table for entry in options(config) if entry.table}
    flat = [entry for entry in options(config) if not entry.table and entry.name not in owned]
    identity = [_line(config, entry) for entry in flat if entry.identity]
    operational = [_line(config, entry) for entry in flat if not entry.identity]
    parts = [
        "# identity: with another value of one of these it is another run\n" + "".join(identity),
        "# operational: may differ when the run is resumed\n" + "".join(operational),
        *(_table(config, entry) for entry in options(config) if entry.table),
    ]
    return "\n".join(parts)


def lines(config: Any) -> str:
    """Return every value of a configuration without tables as one line of TOML."""
    return "".join(_line(config, entry) for entry in options(config))


def from_toml(kind: type[C], table: Mapping[str, Any], where: str) -> C:
    """Return the configuration that `to_toml` wrote; what is absent is None or its default.

    Raises UsageError with a sentence for what no writer of ours has written.
    """
    known = list(options(kind))
    nothing = {entry.name: None for entry in known if entry.nullable}
    return kind(**{**nothing, **from_table(known, table, where)})


def identity_difference(old: Any, new: Any) -> str:
    """Return what differs in the fields that make a run what it is, for people; empty if nothing does."""
    different: list[str] = []
    for entry in options(old):
        before, after = getattr(old, entry.name), getattr(new, entry.name)
        if not entry.identity or before == after:
            continue
        label = entry.name.replace("_", " ") if entry.internal else entry.flag
        if entry.table:
            keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
            different += [
                f"{entry.flag} {key} ({before.get(key)} there, {after.get(key)} here)" for key in keys
            ]
        else:
            different.append(f"{label} ({_words(before)} there, {_words(after)} here)")
    return ", ".join(different)


def identity(config: Any) -> dict[str, str]:
    """Return the fields that make a run what it is, as text; kept elsewhere, they tell a mixed-up file."""
    values = {entry.name: getattr(config, entry.name) for entry in options(config) if entry.identity}
    return {
        name: _words(sorted(value.items()) if isinstance(value, Mapping) else value)
        for name, value in values.items()
    }


def _words(value: Any) -> str:
    if isinstance(value, tuple):
        return "; ".join(value) or "none"
    return "none" if value is None else str(value)


def _line(config: Any, entry: Option) -> str:
    value = getattr(config, entry.name)
    return "" if value is None else f"{entry.name} = {value_text(entry.kind.dump(value))}\n"


def _table(config: Any, entry: Option) -> str:
    rows = {"name": getattr(config, entry.table), **getattr(config, entry.name)}
    return f"[{entry.table}]  # identity\n" + "".join(
        f"{_key(key)} = {value_text(value)}\n" for key, value in rows.items()
    )


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else value_text(key)


def value_text(value: Any) -> str:
    """Return a value as TOML writes it; what is no number, list or table is a text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)} = {value_text(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(value_text(entry) for entry in value)}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
