"""DIR/grid.toml: what a comparison was asked, kept for its report and for whoever goes on with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from edgeflock.common.command.options import read_toml
from edgeflock.common.command.settings_file import value_text
from edgeflock.lab.grid.grid import Grid, make_grid
from edgeflock.lab.grid.rows import flat
from edgeflock.server.files.run_dir import write_small

FILE = "grid.toml"
_HEAD = "# what fl-lab compare was asked, the options of its command line included\n"


def keep(out: Path, table: Mapping[str, Any], grid: Grid) -> None:
    """Write a grid's table, with what the command line said in its place.

    Raises EdgeflockError with a sentence if that cannot be.
    """
    asked = {"baseline": dict(grid.baseline)} if grid.baseline else {}
    write_small(out / FILE, _HEAD + to_toml({**table, **asked}))


def with_asked(table: Mapping[str, Any], **asked: Any) -> dict[str, Any]:
    """Return a grid's table with another target or measure for all its runs, whatever it says of some."""
    keys = [key for key, value in asked.items() if value is not None]
    found = {**table, **{key: asked[key] for key in keys}}
    if isinstance(methods := table.get("method"), dict):
        found["method"] = {name: _without(options, keys) for name, options in methods.items()}
    if isinstance(cases := table.get("case"), list):
        found["case"] = [_without(case, keys) for case in cases]
    return found


def _without(options: Any, keys: Collection[str]) -> Any:
    """Return a table that asks nothing; a target that is a table ends runs."""
    if not isinstance(options, dict):
        return options
    return {
        key: value
        for key, value in flat(options).items()
        if key.rpartition(".")[2] not in keys or isinstance(value, dict)
    }


def recall(out: Path) -> Grid | None:
    """Return the grid of a comparison, None where an earlier edgeflock has kept none."""
    path = out / FILE
    return make_grid(read_toml(path), str(path)) if path.is_file() else None


def to_toml(table: Mapping[str, Any]) -> str:
    """Return a grid's table as TOML: values, then a section for every table of options."""
    sections = {key: value for key, value in table.items() if key != "baseline" and isinstance(value, dict)}
    methods = sections.pop("method", {})
    sections |= {f"method.{value_text(name)}": options for name, options in methods.items()}
    lists = {key: value for key, value in table.items() if _are_tables(value)}
    parts = [_lines({key: value for key, value in table.items() if key not in (*sections, *lists, "method")})]
    parts += [f"[{name}]\n{_lines(options)}" for name, options in sections.items()]
    parts += [f"[[{name}]]\n{_lines(options)}" for name, several in lists.items() for options in several]
    return "\n".join(parts)


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, dict) for entry in value)


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {value_text(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    return value_text(key) if "." in key else key
