"""The types of `edgeflock.simulate` for editors, from the options themselves: lab/notebook/options.py.

`python -m edgeflock.lab.reference.options_page` writes the file.
"""

from __future__ import annotations

import textwrap
from importlib.util import find_spec
from pathlib import Path

from edgeflock.common.command import kinds
from edgeflock.common.command.options import Option, public, shown_default
from edgeflock.lab.run.config import LabConfig
from edgeflock.server.config import ServerConfig

_MODULE = "edgeflock.lab.notebook.options"
_TYPES = {
    kinds.INTEGER: "int",
    kinds.SPAN: "int | str",
    kinds.NUMBER: "float",
    kinds.SECONDS: "float | str",
    kinds.FLAG: "bool",
    kinds.PATH: "Place",
    kinds.PEM: "Place",
    kinds.PAIRS: "Mapping[str, object]",
}
_HEAD = '''"""The options of `edgeflock.simulate` and their types; `lab.reference.options_page` writes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypedDict

Place = str | os.PathLike[str]


class Options(TypedDict, total=False):
    """Every option of `fl-lab run`; None is as if it were not given."""

    config: Place | None
    """TOML file of options; what is given here wins over it"""
'''


def place() -> Path:
    """Return where the file lies."""
    found = find_spec(_MODULE)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin)


def text() -> str:
    """Return what it must hold."""
    entries = [entry for kind in (ServerConfig, LabConfig) for entry in public(kind)]
    return _HEAD + "".join(_field(entry) for entry in entries)


def _field(entry: Option) -> str:
    kind = _TYPES.get(entry.kind, "str")
    help = f"{entry.help}  [default: {shown_default(entry)}]".replace("\\", "\\\\")
    lines = textwrap.wrap(f'"""{help}"""', 100)
    said = "\n".join(f"    {line}" for line in lines)
    return f"    {entry.name}: {kind} | None\n{said}\n"
