"""docs/operations.md: its tables of the ledger are the catalogue, and no column is left out."""

from __future__ import annotations

from pathlib import Path

from edgeflock.lab.reference.ledger_page import MARKED, TABLES, renewed
from edgeflock.server.costs.catalogue import BY_CLIENT, BY_ROUND

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"
TEXT = DOCUMENT.read_text("utf-8")


def test_the_tables_of_columns_are_up_to_date() -> None:
    """If this fails: python -m edgeflock.lab.reference.ledger_page docs/operations.md."""
    assert renewed(TEXT) == TEXT


def test_every_column_stands_in_one_table() -> None:
    shown = [column for match in MARKED.finditer(TEXT) for column in TABLES[match["name"]]]
    assert shown == [*BY_CLIENT, *BY_ROUND]
