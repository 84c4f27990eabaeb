"""README.md and docs/: every command exists, every page opens with an example, every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.pages import PAGES, Said, commands, fault, mentions

DOCS = PAGES[1:]
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_command_that_a_page_prints_exists(page: Path) -> None:
    said = [*commands(page), *mentions(page)]
    wrong = [f"{one.place}: {one.text}: {fault(one)}" for one in said if fault(one)]
    assert wrong == []


def test_the_readme_prints_commands() -> None:
    texts = [one.text for one in commands(PAGES[0])]
    assert any(text.startswith("make run") for text in texts)
    assert any(text.startswith("fl-server") for text in texts)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fl-server --rouds 3", "No such option '--rouds'"),
        ("fl-lab rnu --rounds 3", "unknown command"),
        ("fl-client --server x extra", "takes no 'extra'"),
        ("make runn", "the Makefile has no runn"),
        ("pip install '.[sever]'", "there is no extra sever"),
        ("sh deploy/nothing.sh", "there is no deploy/nothing.sh"),
        ("FL_METHODD=x docker compose up", "docker-compose.yml has no FL_METHODD"),
        ("fl-lab models && frobnicate", "'frobnicate' is none of the programs"),
    ],
)
def test_a_command_that_does_not_exist_is_told(text: str, sentence: str) -> None:
    assert sentence in fault(Said("here", text))


@pytest.mark.parametrize(
    "text",
    [
        "fl-lab export RUN [--which final|best] [--out FILE]",
        "fl-lab report RUN RUN RUN   # several",
        "fl-server --tensorboard ...",
        "mkdir -p B && cp -a X/run.toml B/; sqlite3 -readonly X/journal.sqlite '.backup B'",
        "FL_METHOD=fedprox CLIENTS=8 docker compose up --build",
    ],
)
def test_what_a_page_may_print_is_no_fault(text: str) -> None:
    assert fault(Said("here", text)) == ""


def test_blocks_are_read_as_they_are_meant(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```\na picture of\n  fl-server\n```\n"
        "<!-- run: 4 at once -->\n```sh\n# four\nfl-client --server \\\n   here:1\n```\n"
        "```console\n$ fl-lab models\nmlp\nfl-lab is no command here\n```\n"
        "<!-- run: background -->\n\nA sentence in between.\n\n```\nfl-server --rounds 2\n```\n"
        "<!-- run -->\n```python\nprint(1)\n```\n```python\nprint(2)\n```\n"
    )
    found = [(one.place, one.text, one.how, one.language) for one in commands(page)]
    assert found == [
        ("page.md:8", "fl-client --server here:1", "4 at once", ""),
        ("page.md:12", "fl-lab models", None, ""),
        ("page.md:21", "fl-server --rounds 2", None, ""),
        ("page.md:25", "print(1)", "here", "python"),
    ]


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_a_page_opens_with_an_example_and_its_output(page: Path) -> None:
    opening = page.read_text("utf-8").partition("\n## ")[0]
    first = _BLOCK.search(opening)
    assert first is not None
    command, *output = first[1].splitlines()
    assert command.startswith("$ ")
    assert any(not line.startswith("$ ") for line in output)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for name, anchor in _LINK.findall(_BLOCK.sub("", page.read_text("utf-8"))):
        target = page.parent / name if name else page
        assert target.exists(), name
        assert not anchor or anchor in _anchors(target), f"{name}#{anchor}"


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_every_page_is_named_in_the_readme(page: Path) -> None:
    assert f"](docs/{page.name}" in PAGES[0].read_text("utf-8")


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as they are made where pages are shown."""
    heads = re.findall(r"^#+ (.*)$", _BLOCK.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
