"""Whether the installed torch runs on this processor, told before it is imported: that can be a wordless end.

Wheels of torch for aarch64 were built by mistake with the atomic instructions of ARMv8.1: those of versions
before 2.7 (pytorch issues 132032, 146792) and of 2.10 (174344, 176993).
Every Raspberry Pi before the 5 is an ARMv8.0.
"""

from __future__ import annotations

import platform
import re
import struct
import sys

from edgeflock.common.errors import UsageError

GOOD_TORCH = "torch>=2.7,<2.10"  # for aarch64, as in pyproject.toml

_AT_HWCAP = 16
_ATOMICS = 1 << 8  # in AT_HWCAP of aarch64; /proc/cpuinfo calls it "atomics"
_WHEEL = re.compile(r"(\d+)\.(\d+)[.\d]*(\+(cpu|cu\d+))?")  # other builds have labels of their own


def refuse_a_torch_that_cannot_run() -> None:
    """Raise UsageError where importing torch, or the first step with it, would be an illegal instruction."""
    if platform.machine() != "aarch64" or has_atomics(_auxiliary_vector()):
        return
    torch = _installed("torch")
    if torch and needs_atomics(torch):
        vision = (
            " torchvision" if _installed("torchvision") else ""
        )  # each of its versions goes with one of torch
        raise UsageError(
            f"torch {torch} would end with an illegal instruction on this processor, an ARMv8.0 as in the"
            f" Raspberry Pi 3 and 4; one that runs: {sys.executable} -m pip install '{GOOD_TORCH}'{vision}"
        )


def needs_atomics(torch: str) -> bool:
    """Return whether that version's wheel has instructions of ARMv8.1; of other builds nothing is known."""
    wheel = _WHEEL.fullmatch(torch)
    if wheel is None:
        return False
    version = int(wheel[1]), int(wheel[2])
    return version < (2, 7) or version == (2, 10)


def has_atomics(auxiliary_vector: bytes) -> bool:
    """Return whether the kernel counts them among this 64-bit ARM's features; also where it says nothing."""
    said = dict(struct.iter_unpack("<QQ", auxiliary_vector))
    return bool(said.get(_AT_HWCAP, _ATOMICS) & _ATOMICS)


def _auxiliary_vector() -> bytes:
    try:
        with open("/proc/self/auxv", "rb") as vector:
            return vector.read()
    except OSError:
        return b""


def _installed(package: str) -> str | None:
    from importlib import metadata  # only where it matters: it takes a moment of every start

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
