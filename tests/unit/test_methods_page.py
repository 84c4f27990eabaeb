"""docs/methods.md: its generated parts are the code, and it leaves no method out."""

from __future__ import annotations

import re
from pathlib import Path

from edgeflock.lab.reference.methods_page import MARKED, renewed
from edgeflock.methods.kit.registry import names

DOCUMENT = Path(__file__).parents[2] / "docs" / "methods.md"
TEXT = DOCUMENT.read_text("utf-8")


def test_the_generated_parts_are_up_to_date() -> None:
    """If this fails: python -m edgeflock.lab.reference.methods_page docs/methods.md."""
    assert renewed(TEXT) == TEXT


def test_every_method_has_its_section_with_its_facts_and_no_other_has() -> None:
    parts = {match["what"] for match in MARKED.finditer(TEXT)}
    assert parts == {
        "methods",
        "method costs",
        "method options of all",
        *(f"method:{name}" for name in names()),
    }
    sections = re.findall(r"^## (\w+)$", TEXT, re.MULTILINE)
    assert sorted(sections) == names()
    for name in names():
        section = TEXT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert f"<!-- method:{name} -->" in section
        words = section.partition("<!-- method:")[0].split()
        assert len(words) > 3, f"{name}: not a word on its paper"
