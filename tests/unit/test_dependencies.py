"""docs/dependencies.md gives a reason for every dependency, and for nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_every_pin_lies_within_the_declared_range(machine: str) -> None:
    """Also those of torch, which differ by machine: what is outside its range nobody has tried."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    asked = [
        Requirement(line)
        for line in (*project["dependencies"], *(line for extra in extras for line in extra))
    ]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    on = {"platform_machine": machine, "sys_platform": "linux"}
    version = {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.marker is None or pin.marker.evaluate(on)
    }
    wanted = [
        one for one in asked if one.name != "edgeflock" and (one.marker is None or one.marker.evaluate(on))
    ]
    assert [str(one) for one in wanted if version[canonicalize_name(one.name)] not in one.specifier] == []
    assert len([pin for pin in pins if pin.name == "torch" and pin.marker and pin.marker.evaluate(on)]) == 1


def locked(*names: str) -> dict[str, list[str]]:
    """Return the locked lines, "name==version ; marker", each with its hashes."""
    packages: dict[str, list[str]] = {}
    hashes: list[str] = []
    for line in "".join((ROOT / "deploy/supply" / name).read_text() for name in names).splitlines():
        if row := re.match(r"([a-z0-9-]+==.+?) *\\?$", line):
            packages[row[1]] = hashes = []
        elif found := re.search(r"--hash=(sha256:[0-9a-f]{64})", line):
            hashes.append(found[1])
    return packages


def test_the_locks_name_what_a_server_needs_by_pinned_version_and_hash() -> None:
    packages = locked("base.lock", "torch.lock", "uv.lock")
    assert [line for line, hashes in packages.items() if not hashes] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {
        Requirement(line).name
        for line in (*project["dependencies"], *project["optional-dependencies"]["server"])
    }
    assert asked <= {Requirement(line).name for line in packages}
    pins = {
        (canonicalize_name(pin.name), str(pin.specifier))
        for pin in map(
            Requirement, re.findall(r"^[A-Za-z0-9].*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
        )
    }
    unpinned = {Requirement(line).name for line in locked("base.lock", "uv.lock")} - {
        name for name, _ in pins
    }
    assert unpinned == set()
    wrong = [
        line
        for line in map(Requirement, packages)
        if line.name in dict(pins) and (line.name, str(line.specifier)) not in pins
    ]
    assert wrong == []
