"""docs/dependencies.md gives a reason for every dependency, and for nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| `([a-z0-9-]+)` \| (.+) \|$")


def declared() -> set[str]:
    """Return the names of all dependencies in pyproject.toml; the project's own extras are none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    return {re.split(r"[^A-Za-z0-9-]", line)[0] for line in lines} - {"edgeflock"}


def explained() -> dict[str, str]:
    """Return name -> reason as the document gives them."""
    lines = (ROOT / "docs" / "dependencies.md").read_text().splitlines()
    return {row[1]: row[2] for row in map(ROW.match, lines) if row}


def test_every_dependency_has_its_reason_in_the_document() -> None:
    assert set(explained()) == declared()


def test_every_reason_is_a_sentence() -> None:
    assert [name for name, reason in explained().items() if not re.fullmatch(r"[A-Z].+ .+\.", reason)] == []


def test_the_constraints_pin_every_dependency() -> None:
    """A dependency without a pin would be whatever is newest on the day of the installation."""
    text = (ROOT / "constraints.txt").read_text().lower().replace("_", "-")
    pinned = set(re.findall(r"^([a-z0-9.-]+)==", text, re.MULTILINE))
    assert declared() <= pinned
