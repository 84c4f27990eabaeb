"""The configuration tables of docs/configuration.md, from the options themselves.

`python -m edgeflock.lab.reference.options_page FILE...` renews what stands between the markers
`<!-- options:fl-server -->` and `<!-- /options -->`, and the types of `edgeflock.simulate`.
"""

from __future__ import annotations

import re
from typing import Any

from edgeflock.client.config import ClientConfig
from edgeflock.common.command.options import Option, public, shown_default
from edgeflock.lab import markdown
from edgeflock.lab.reference import typed_options
from edgeflock.lab.run.config import LabConfig
from edgeflock.server.config import ServerConfig
from edgeflock.server.gate.config import GateConfig

COMMANDS: dict[str, tuple[Any, str]] = {
    "fl-server": (ServerConfig, "FL_SERVER"),
    "fl-client": (ClientConfig, "FL_CLIENT"),
    "fl-gate": (GateConfig, "FL_GATE"),
    "fl-lab run": (LabConfig, "FL_LAB"),
}
MARKED = re.compile(r"(<!-- options:(?P<name>[\w -]+?) -->\n)(?P<table>.*?)(<!-- /options -->)", re.DOTALL)


def table(name: str) -> str:
    """Return the Markdown table of a command's options."""
    config, prefix = COMMANDS[name]
    rows = [_row(entry, prefix) for entry in public(config)]
    return "\n".join(
        ["| flag | variable | default | allowed | meaning |", "| --- | --- | --- | --- | --- |", *rows, ""]
    )


def renewed(text: str) -> str:
    """Return a document with every marked table as it must be."""
    return MARKED.sub(lambda match: f"{match[1]}{table(match['name'])}{match[4]}", text)


def _row(entry: Option, prefix: str) -> str:
    flag = f"`{entry.flag} {entry.metavar}`" if entry.metavar else f"`{entry.flag}`"
    kept = " *" if entry.identity else ""
    cells = [flag, f"`{entry.variable(prefix)}`", f"`{shown_default(entry)}`", entry.words, entry.help + kept]
    return markdown.row(cells)


def main() -> None:
    """Renew the tables of the files that are named, and the types for editors."""
    typed_options.place().write_text(typed_options.text(), "utf-8")
    markdown.renew_named_pages(renewed)


if __name__ == "__main__":
    main()
