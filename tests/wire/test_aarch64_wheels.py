"""What a Raspberry Pi installs: everything is pinned and a wheel, nothing is built, nothing brings CUDA."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What this machine has for itself: wheels on disk, another build of torch.
OWN = ("PIP_FIND_LINKS", "UV_FIND_LINKS", "UV_TORCH_BACKEND", "UV_CONSTRAINT", "UV_OVERRIDE")


def environment() -> dict[str, str]:
    """Return this process's, with pip's index where uv has been told none."""
    environ = {name: value for name, value in os.environ.items() if name not in OWN}
    if "PIP_INDEX_URL" in environ and "UV_INDEX_URL" not in environ:
        environ.setdefault("UV_DEFAULT_INDEX", environ["PIP_INDEX_URL"])
    return environ


@pytest.mark.parametrize("python", ["3.11", "3.13"])  # of Raspberry Pi OS on Debian 12 and 13
def test_all_that_is_pinned_comes_as_a_wheel_for_a_raspberry_pi(python: str) -> None:
    """A C compiler at work for an hour is no way to install; nor are 3 GB of CUDA."""
    uv = pytest.importorskip("uv", reason="edgeflock[dev] is not installed").find_uv_bin()
    command = [uv, "pip", "compile", "--no-config", "--quiet", "--no-header", "--no-annotate", "--all-extras"]
    command += ["--python-platform", "aarch64-manylinux_2_28", "--python-version", python]
    command += ["--only-binary", ":all:", "-c", "constraints.txt", "pyproject.toml"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=200, check=False
    )
    if done.returncode and "error sending request" in done.stderr:
        pytest.skip(f"no package index can be reached: {done.stderr.splitlines()[-1].strip()}")
    assert done.returncode == 0, done.stderr
    chosen = dict(re.findall(r"^([\w-]+)(?:\[.*\])?==(\S+)", done.stdout, re.MULTILINE))
    assert {"torch", "torchvision", "grpcio", "numpy", "crc32c", "cryptography", "pyarrow"} <= set(chosen)
    assert [name for name in chosen if name.startswith(("nvidia", "triton", "cuda"))] == []
    pinned = (ROOT / "constraints.txt").read_text().lower().replace("_", "-")
    assert [
        f"{name}=={version}" for name, version in chosen.items() if f"\n{name}=={version}" not in pinned
    ] == []
