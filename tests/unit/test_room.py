"""The memory that a process may have: the lowest of what machine, cgroups and its own limits say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgeflock.common.room import free_bytes, memory_bytes

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def put(root: Path, **files: str) -> None:
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@pytest.mark.parametrize(
    ("said", "files", "wanted"),
    [
        ("0::/a/b\n", {"a__b__memory_DOT_max": "max\n", "a__memory_DOT_max": "700\n"}, 700),
        ("0::/a/b\n", {"memory_DOT_max": "900\n"}, 900),  # a container: its own group is the mounted one
        ("4:cpu,memory:/c\n0::/\n", {"memory__c__memory_DOT_limit_in_bytes": "800\n"}, 800),
        ("4:cpu:/c\n", {"memory__c__memory_DOT_limit_in_bytes": "800\n"}, MACHINE),
        ("", {}, MACHINE),
    ],
)
def test_the_lowest_limit_counts(tmp_path: Path, said: str, files: dict[str, str], wanted: int) -> None:
    put(
        tmp_path,
        proc__self__cgroup=said,
        **{f"sys__fs__cgroup__{name}": text for name, text in files.items()},
    )
    assert memory_bytes(tmp_path) == wanted


def test_a_limit_of_its_own_counts() -> None:
    ask = "from edgeflock.common.room import memory_bytes; print(memory_bytes())"
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_DATA, (300 << 20, 300 << 20)); {ask}"
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 300 << 20


def test_what_is_free_is_what_the_system_says(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) is None
    put(tmp_path, proc__meminfo="MemTotal: 900 kB\nMemAvailable:  300 kB\n")
    assert free_bytes(tmp_path) == 300 << 10
