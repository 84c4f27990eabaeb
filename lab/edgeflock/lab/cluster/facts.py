"""What a machine is, as far as runs depend on it: versions and the kind of its CPU."""

from __future__ import annotations

import platform
import socket
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_NAMES = ("model name", "Model", "Hardware")  # in /proc/cpuinfo, by architecture


@dataclass(frozen=True)
class Facts:
    """One machine."""

    node: str
    python: str
    edgeflock: str
    torch: str
    cpu: str


def look() -> Facts:
    """Return the facts of this machine."""
    python = ".".join(platform.python_version_tuple()[:2])
    return Facts(socket.gethostname(), python, _version("edgeflock"), _version("torch"), _cpu())


def differences(here: Facts, there: Facts) -> list[str]:
    """Return sentences about what makes another machine's runs others than ours; its CPU is no such thing."""
    pairs = {
        "edgeflock": (here.edgeflock, there.edgeflock),
        "torch": (here.torch.partition("+")[0], there.torch.partition("+")[0]),
        "Python": (here.python, there.python),
    }
    return [
        f"{name} is {theirs or 'missing'} there and {ours} on {here.node}"
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    entries = {
        key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in lines) if colon
    }
    return next((entries[name] for name in _NAMES if name in entries), platform.machine())
