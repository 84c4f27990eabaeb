"""The house as a whole: its namespace, rooms, faces and sentences, its stubs, and what its packages carry."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
WINGS = ("common", "server", "client", "lab")
GENERATE = ROOT / "proto" / "generate.py"


def package_files() -> set[Path]:
    """Return every file of the product, relative to its source root."""
    found = {path.relative_to(ROOT / wing): path for wing in WINGS for path in (ROOT / wing).rglob("*")}
    return {name for name, path in found.items() if path.is_file() and "__pycache__" not in name.parts}


def paper_files() -> list[Path]:
    """Return the papers' files and results, which a wheel carries among its modules."""
    return [path for path in (ROOT / "papers").rglob("*") if path.is_file()]


def written_modules() -> list[Path]:
    """Return the modules that people wrote: all but the generated ones."""
    modules = [path for wing in WINGS for path in sorted((ROOT / wing).rglob("*.py"))]
    return [path for path in modules if "_pb2" not in path.name]


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)


def test_every_source_root_has_the_file_that_joins_them() -> None:
    """One that lacks it, or has another, would hide the rest of the package at run time, unseen by mypy."""
    texts = {(ROOT / wing / "edgeflock" / "__init__.py").read_text("utf-8") for wing in WINGS}
    assert len(texts) == 1
    assert "extend_path" in texts.pop()


def test_the_package_has_a_version_and_all_its_parts() -> None:
    parts = ", ".join(f"edgeflock.{name}" for name in ("v1", "methods", "server", "client", "lab"))
    done = run("-c", f"import edgeflock, {parts}; print(edgeflock.__version__)")
    assert (done.stdout.strip(), done.stderr) == (version("edgeflock"), "")


def test_every_part_declares_its_types() -> None:
    parts = [path for wing in WINGS for path in (ROOT / wing / "edgeflock").iterdir() if path.is_dir()]
    parts = [path for path in parts if path.name != "__pycache__"]
    assert {path.name for path in parts} == {"v1", "common", "methods", "server", "client", "lab"}
    assert [path for path in parts if not (path / "py.typed").is_file()] == []


def rooms() -> list[Path]:
    """Return every folder of modules below a wing's own package, but for the generated one."""
    found = {path.parent for path in written_modules()}
    return sorted(path for path in found if len(path.relative_to(ROOT).parts) > 3 and path.name != "v1")


def named(paths: Iterable[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]


def test_every_module_says_in_its_first_line_what_it_owns() -> None:
    assert named(path for path in written_modules() if not first_line(path).endswith((".", ":"))) == []


def test_a_room_begins_with_one_sentence_and_nothing_else() -> None:
    """What a room's `__init__` imports, everybody who enters the room must wait for."""
    begun = {path: path / "__init__.py" for path in rooms()}
    assert named(path for path, init in begun.items() if not init.is_file()) == []
    assert (
        named(init for init in begun.values() if init.read_text("utf-8") != f'"""{first_line(init)}"""\n')
        == []
    )


def test_a_room_has_at_most_sixteen_modules() -> None:
    """Where there is one module for each choice, beside a kit, there may be as many as there are choices."""
    sizes = {room: len(list(room.glob("*.py"))) - 1 for room in rooms() if not (room / "kit").is_dir()}
    assert {str(room.relative_to(ROOT)): size for room, size in sizes.items() if size > 16} == {}


def test_the_architecture_page_names_every_room() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert [room for room in rooms() if f"`{'/'.join(room.relative_to(ROOT).parts[2:])}/`" not in page] == []


def contracts(kind: str) -> list[dict[str, Any]]:
    """Return what import-linter is asked to hold, of one kind."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    return [contract for contract in asked if contract["type"] == kind]


def test_a_new_module_of_any_wing_must_be_given_a_layer() -> None:
    """Of the methods, too, but that each stands above the kit by itself: there is no list of them to edit."""
    exhaustive = [one for one in contracts("layers") if one.get("exhaustive")]
    assert {name for one in exhaustive for name in one["containers"]} == {
        f"edgeflock.{wing}" for wing in WINGS
    }


def test_every_wing_has_faces_and_no_ring() -> None:
    protected = [name for one in contracts("protected") for name in one["protected_modules"]]
    free = {name for one in contracts("acyclic_siblings") for name in one["ancestors"]}
    packages = {f"edgeflock.{name}" for name in (*WINGS, "methods")}
    assert {".".join(name.split(".")[:2]) for name in protected} == packages
    assert free == packages


VALUES = ("client/deciding/", "client/protocol.py", "client/costs.py", "server/core/", "server/costs/",
          "common/payload/", "methods/")  # fmt: skip
MOVING = {"Backoff", "Budget", "Moved", "Packed", "State", "Traffic"}  # something is done to these


def decorated(path: Path) -> Iterator[tuple[ast.ClassDef, set[str]]]:
    """Yield a module's dataclasses with what their decorators turn on."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ClassDef):
            continue
        for mark in node.decorator_list:
            if ast.unparse(mark).startswith("dataclass"):
                words = mark.keywords if isinstance(mark, ast.Call) else []
                yield node, {str(word.arg) for word in words if ast.unparse(word.value) == "True"}


def test_what_is_decided_told_or_chosen_is_a_value_that_nobody_changes() -> None:
    """Whoever holds it may go on later; the options of a method are given by name."""
    places = [path for path in written_modules() if any(f"edgeflock/{part}" in str(path) for part in VALUES)]
    found = [(node, turned_on) for path in places for node, turned_on in decorated(path)]
    assert len(found) > 90
    assert {node.name for node, turned_on in found if "frozen" not in turned_on} == MOVING
    options = [(node, turned_on) for node, turned_on in found if node.name.endswith("Params")]
    assert [node.name for node, turned_on in options if "kw_only" not in turned_on] == []


def test_the_name_of_a_class_is_used_once() -> None:
    found: dict[str, list[str]] = {}
    for path in written_modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_the_committed_stubs_are_what_the_proto_files_say() -> None:
    pytest.importorskip("grpc_tools", reason="edgeflock[proto] is not installed")
    check = run(GENERATE, "--check")
    assert check.returncode == 0, check.stdout + check.stderr


def test_a_stub_that_was_edited_is_named(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="edgeflock[proto] is not installed")
    shutil.copytree(ROOT / "common" / "edgeflock" / "v1", tmp_path / "edgeflock" / "v1")
    with open(tmp_path / "edgeflock" / "v1" / "bundle_pb2.pyi", "a") as stub:
        stub.write("\n")
    (tmp_path / "edgeflock" / "v1" / "old_pb2.py").touch()
    check = run(GENERATE, "--check", "--root", tmp_path)
    assert check.returncode == 1
    assert check.stdout.splitlines()[:2] == [
        "no .proto makes this: edgeflock/v1/old_pb2.py",
        "differs: edgeflock/v1/bundle_pb2.pyi",
    ]


def test_the_wheel_carries_every_part_of_the_product(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="edgeflock[dev] is not installed")
    build = run("-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path)
    assert build.returncode == 0, build.stderr
    (wheel,) = tmp_path.glob("*.whl")
    carried = {Path(name) for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    papers = {
        Path("edgeflock/lab/papers/files") / path.relative_to(ROOT / "papers") for path in paper_files()
    }
    assert carried == package_files() | papers
    assert papers
    assert any(name.name == "digits.npz" for name in carried)


def test_the_source_package_carries_what_a_build_needs(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="edgeflock[dev] is not installed")
    build = run("-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path)
    assert build.returncode == 0, build.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "proto/generate.py"}
    assert needed | {"deploy/word_size.py"} <= names
    assert {str(name) for name in package_files()} <= {name.partition("/")[2] for name in names}


BARE_DEVICE = """
import importlib, pkgutil, sys

ABSENT = {"torchvision", "grpc_reflection", "matplotlib", "rich", "aiohttp", "prometheus_client"}

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
for part in ("v1", "common", "methods", "client"):
    package = importlib.import_module(f"edgeflock.{part}")
    for module in pkgutil.walk_packages(package.__path__, f"edgeflock.{part}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""


def test_a_device_needs_none_of_the_extras() -> None:
    """Every module of the device side is importable with the base dependencies alone."""
    check = run("-c", BARE_DEVICE)
    assert check.returncode == 0, check.stderr
