"""Every page of the documents opens with an example and what it prints, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
ALL = [ROOT / "README.md", *PAGES]
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_opens_with_an_example_and_its_output(page: Path) -> None:
    opening = page.read_text("utf-8").partition("\n## ")[0]
    first = _BLOCK.search(opening)
    assert first is not None
    command, *output = first[1].splitlines()
    assert command.startswith("$ ")
    assert any(not line.startswith("$ ") for line in output)


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for name, anchor in _LINK.findall(_BLOCK.sub("", page.read_text("utf-8"))):
        target = page.parent / name if name else page
        assert target.exists(), name
        assert not anchor or anchor in _anchors(target), f"{name}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_is_named_in_the_readme(page: Path) -> None:
    assert f"](docs/{page.name}" in (ROOT / "README.md").read_text("utf-8")


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as they are made where pages are shown."""
    heads = re.findall(r"^#+ (.*)$", _BLOCK.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
