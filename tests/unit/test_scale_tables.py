"""The tables of `make bench-scale`: what a page gets of a run's JSON, and how growth is told."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import pytest
from benchmarks.scale import page
from benchmarks.scale.__main__ import FAMILIES
from benchmarks.scale.asked import Asked, Family, Held, Row, Skipped, exponent

PERFORMANCE = Path(__file__).parents[2] / "docs" / "performance.md"
FOUND = {
    "title": "Clients",
    "about": "What it is.",
    "columns": ("clients", "round, s"),
    "rows": [(10_000, 0.12345), ("many", 2048.4)],
    "held": [vars(Held("growth", 93.0, "<= 100", True)), vars(Held("exponent", 1.2, "<= 1.05", False))],
    "skipped": [Skipped("It is not installed.").sentence],
    "machine": {"at": "2026-11-20T12:00:00", "commit": "abc", "cores": 2, "load": [0.5, 2.0]},
}


def test_what_is_proportional_has_the_exponent_one() -> None:
    assert exponent([(100, 2.0), (1000, 20.0), (10_000, 200.0)]) == pytest.approx(1)
    assert exponent([(10, 1.0), (100, 100.0)]) == pytest.approx(2)
    assert math.isnan(exponent([(10, 1.0)]))


def test_a_page_gets_the_tables_between_its_marks_and_keeps_the_rest(tmp_path: Path) -> None:
    there = tmp_path / "page.md"
    there.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    for _ in range(2):
        page.write(there, {"hosted": FOUND})
    text = there.read_text()
    assert text.startswith(f"before\n{page.BEGIN}\n")
    assert text.endswith(f"{page.END}\nafter\n")
    assert "old" not in text
    assert "| 10,000 | 0.123 |\n| many | 2,048 |" in text
    assert "- growth: 93 (wanted <= 100): held\n- exponent: 1.2 (wanted <= 1.05): **not held**" in text
    assert "It is not installed." in text
    assert text.count("### Clients") == 1


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    there = tmp_path / "page.md"
    there.write_text("nothing\n")
    with pytest.raises(SystemExit, match="has no lines"):
        page.write(there, {"hosted": FOUND})
    assert there.read_text() == "nothing\n"


def test_the_page_of_performance_has_the_marks() -> None:
    text = PERFORMANCE.read_text("utf-8")
    assert text.index(page.BEGIN) < text.index(page.END)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_table_can_be_asked_for(name: str) -> None:
    family = importlib.import_module(f"benchmarks.scale.{name.replace('-', '_')}").FAMILY
    assert isinstance(family, Family)
    assert family.title
    assert Asked().upto(1000) == (100, 300, 1000)
    with pytest.raises(ValueError, match="columns"):
        family.checked(Row(()))
