"""A torch that this processor cannot run is refused in a sentence, before it is imported."""

from __future__ import annotations

import struct
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from edgeflock.common.command.processor import GOOD_TORCH, has_atomics, needs_atomics

ROOT = Path(__file__).resolve().parents[2]


def auxiliary_vector(features: int) -> bytes:
    """Return what the kernel of a 64-bit ARM gives a program: page size, features, end."""
    return struct.pack("<6Q", 6, 4096, 16, features, 0, 0)


CORTEX_A53 = CORTEX_A72 = auxiliary_vector(0x8FB)  # what they say under emulation
CORTEX_A76 = auxiliary_vector(0x119FFB)


@pytest.mark.parametrize(
    ("vector", "there"), [(CORTEX_A53, False), (CORTEX_A72, False), (CORTEX_A76, True), (b"", True)]
)
def test_a_processor_has_the_atomics_of_armv8_1_if_its_kernel_says_so_or_nothing(
    vector: bytes, there: bool
) -> None:
    assert has_atomics(vector) == there


@pytest.mark.parametrize(
    ("torch", "needed"),
    [
        ("2.4.0", True),
        ("2.6.0+cpu", True),
        ("2.7.0", False),
        ("2.9.1+cpu", False),
        ("2.10.0", True),
        ("2.10.0+cu128", True),
        ("2.10.1", True),
        ("2.11.0", False),
        ("2.10.0a0+git449b176", False),  # somebody's own build, for his machine
        ("2.6.0+debian", False),
    ],
)
def test_wheels_before_2_7_and_of_2_10_need_those_atomics(torch: str, needed: bool) -> None:
    assert needs_atomics(torch) == needed


def test_the_torch_that_the_sentence_names_is_the_one_that_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"{GOOD_TORCH}; platform_machine == 'aarch64'" in project["dependencies"]


# A Raspberry Pi 4 with that torch; the command must not come to import anything.
ON_A_PI = """
import importlib.metadata, platform, sys
from edgeflock.common.command import processor

versions = {versions!r}
def version(name):
    if name in versions:
        return versions[name]
    raise importlib.metadata.PackageNotFoundError(name)

platform.machine = lambda: "aarch64"
importlib.metadata.version = version
processor._auxiliary_vector = lambda: bytes.fromhex({vector!r})
sys.modules["torch"] = None
from edgeflock.{command}.cli import main
sys.argv = {arguments!r}
main()
"""


def start_on_a_pi(command: str, *arguments: str, **versions: str) -> subprocess.CompletedProcess[str]:
    script = ON_A_PI.format(
        versions=versions, vector=CORTEX_A72.hex(), command=command, arguments=["fl", *arguments]
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("command", "arguments"), [("client", ()), ("server", ("--method", "fedavg")), ("lab", ("run",))]
)
def test_every_command_says_so_before_it_does_anything(command: str, arguments: tuple[str, ...]) -> None:
    done = start_on_a_pi(command, *arguments, torch="2.10.0", torchvision="0.25.0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"fl-{command}: error: torch 2.10.0 would end with an illegal instruction on this processor, "
        f"an ARMv8.0 as in the Raspberry Pi 3 and 4; one that runs:"
        f" {sys.executable} -m pip install 'torch>=2.7,<2.10' torchvision\n"
    )


@pytest.mark.parametrize("versions", [{"torch": "2.9.1"}, {}])
def test_a_torch_that_runs_and_one_that_is_not_there_are_let_pass(versions: dict[str, str]) -> None:
    done = start_on_a_pi("client", "--help", **versions)
    assert (done.returncode, done.stderr) == (0, "")
