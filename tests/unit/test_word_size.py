"""An installation for a 32-bit Python ends with one sentence, any other is as without the hook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="edgeflock[dev] is not installed")

ROOT = Path(__file__).resolve().parents[2]

# What pip asks a build backend for, where `sys.maxsize` is that of a 32-bit Python.
ON_32_BITS = """
import sys
sys.maxsize = 2**31 - 1
from hatchling import build
build.{wanted}({folder!r})
"""


@pytest.mark.parametrize("wanted", ["build_wheel", "build_editable", "build_sdist"])
def test_a_32_bit_python_is_refused_in_one_sentence(tmp_path: Path, wanted: str) -> None:
    script = ON_32_BITS.format(wanted=wanted, folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "edgeflock needs a 64-bit Python, this one has 32 bits and there is no torch for it;"
        " on a Raspberry Pi 3, 4, 5 or Zero 2 W install the 64-bit Raspberry Pi OS\n"
    )
    assert list(tmp_path.iterdir()) == []
