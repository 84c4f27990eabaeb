"""proto/breaking.py finds what an end of the version before would not understand, and nothing else."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROTO = Path(__file__).resolve().parents[2] / "proto"
STEPS = "uint64 samples_done = 6;"


@pytest.fixture(scope="module")
def breaking() -> ModuleType:
    spec = importlib.util.spec_from_file_location("breaking", PROTO / "breaking.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def changed(folder: Path, before: str, after: str) -> Path:
    """Return a copy of the wire with that change."""
    shutil.copytree(PROTO, folder / "proto")
    path = folder / "proto" / "edgeflock" / "v1" / "aggregator.proto"
    text = path.read_text()
    assert text.count(before) == 1, before
    path.write_text(text.replace(before, after))
    return folder / "proto"


def test_the_wire_breaks_none_of_the_version_before(breaking: ModuleType) -> None:
    """The one that is kept: tests/data/wire."""
    assert breaking.broken(PROTO, breaking.KEPT) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (STEPS, "double samples_done = 6;", "type"),
        (STEPS, "uint32 samples_done = 6;", "type"),
        (STEPS, "uint64 samples_done = 60;", "6"),
        (STEPS, "", "6"),
        (STEPS, "uint64 samples_used = 6;", "name"),
        ("  RUN_STATE_PAUSED = 3;", "  RUN_STATE_PAUSED = 33;", '"3"'),
        ("  SCOPE_SHARED = 1;", "  SCOPE_SHARED = 2;\n  SCOPE_PERSONAL = 1;", "SCOPE_"),
        ("  rpc Leave(LeaveRequest) returns (LeaveResponse);", "", "Leave"),
    ],
    ids=["another type", "a compatible type", "another number", "removed", "renamed", "an enum's number",
         "a reordered enum", "a removed call"],
)  # fmt: skip
def test_what_breaks_the_wire_is_found(
    breaking: ModuleType, tmp_path: Path, before: str, after: str, said: str
) -> None:
    proto = changed(tmp_path, before, after)
    if "SCOPE_SHARED" in before:
        path = proto / "edgeflock" / "v1" / "aggregator.proto"
        text = path.read_text()
        line = next(line for line in text.splitlines() if line.startswith("  SCOPE_PERSONAL = 2;"))
        path.write_text(text.replace(line + "\n", ""))
    lines = breaking.broken(proto, breaking.KEPT)
    assert any(said in line for line in lines), lines


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (STEPS, STEPS + " uint64 more = 99;"),
        (STEPS, 'reserved 6; reserved "samples_done";'),
        ("  RUN_STATE_PAUSED = 3;", "  RUN_STATE_PAUSED = 3; RUN_STATE_NEW = 99;"),
    ],
    ids=["a new field", "a reserved one", "a new value"],
)
def test_what_is_added_or_reserved_breaks_nothing(
    breaking: ModuleType, tmp_path: Path, before: str, after: str
) -> None:
    assert breaking.broken(changed(tmp_path, before, after), breaking.KEPT) == []
