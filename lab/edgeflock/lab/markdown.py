"""Markdown: rows of tables, and pages whose generated parts are renewed in place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path


def row(cells: Iterable[str]) -> str:
    """Return one line of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def renew_named_pages(renewed: Callable[[str], str]) -> None:
    """Write every file that the command line names as it must be."""
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(renewed(path.read_text("utf-8")), "utf-8")
