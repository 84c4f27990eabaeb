"""The configuration tables of docs/configuration.md are the options that exist."""

from __future__ import annotations

from pathlib import Path

from edgeflock.lab.reference.options_page import COMMANDS, MARKED, renewed, table
from edgeflock.server.cli import build

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "configuration.md"


def test_the_tables_are_up_to_date() -> None:
    """If this fails: python -m edgeflock.lab.reference.options_page docs/configuration.md."""
    text = DOCUMENT.read_text("utf-8")
    assert renewed(text) == text


def test_every_command_has_its_table() -> None:
    names = {match["name"] for match in MARKED.finditer(DOCUMENT.read_text("utf-8"))}
    assert names == set(COMMANDS)


def test_the_table_of_the_server_holds_every_flag_of_its_command() -> None:
    flags = {name for parameter in build().params for name in parameter.opts}
    documented = {row.split("`")[1].split()[0] for row in table("fl-server").splitlines()[2:]}
    assert flags - documented == {"config", "--config", "--help-method", "--version"} - {"config"}
