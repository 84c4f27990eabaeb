"""The configuration tables of the documents are the options that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeflock.lab.readme_table import COMMANDS, MARKED, renewed, table
from edgeflock.server.cli import build

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "configuration.md"


@pytest.mark.parametrize("path", [DOCUMENT, ROOT / "README.md"], ids=lambda path: path.name)
def test_the_tables_are_up_to_date(path: Path) -> None:
    """If this fails: python -m edgeflock.lab.readme_table docs/configuration.md README.md."""
    text = path.read_text("utf-8")
    assert renewed(text) == text


def test_every_command_has_its_table() -> None:
    names = {match["name"] for match in MARKED.finditer(DOCUMENT.read_text("utf-8"))}
    assert names == set(COMMANDS)


def test_the_table_of_the_server_holds_every_flag_of_its_command() -> None:
    flags = {name for parameter in build().params for name in parameter.opts}
    documented = {row.split("`")[1].split()[0] for row in table("fl-server").splitlines()[2:]}
    assert flags - documented == {"config", "--config", "--help-method", "--version"} - {"config"}
