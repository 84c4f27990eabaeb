"""Downloads through torchvision, in a process of its own: no noise, no torch here, quick to give up."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path

from edgeflock.common import extras

PROBE_S = 4.0  # for the first byte from the data set's host
STALL_S = 30.0  # for any further byte
OWN_SPLIT = {"EMNIST": {"split": "balanced"}}


def fetch(kind: str, probe: str, root: Path) -> str:
    """Download a data set of torchvision into the data root; return "" or why it could not be done."""
    if not extras.installed("torchvision"):
        return f"it {extras.needs('torchvision')}"
    if not os.access(root, os.W_OK):
        return f"{root} is not writable"
    if not python("-m", __name__, "probe", probe, str(PROBE_S), timeout_s=PROBE_S + 2):
        return "its host did not answer"
    with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as folder:
        if not python("-m", __name__, "download", kind, folder, timeout_s=None):
            return "it failed"
        _move(Path(folder), root)
    return ""


def python(*words: str, timeout_s: float | None) -> bool:
    """Run Python without any output, with this process's modules; return whether it ended well."""
    paths = os.pathsep.join(path for path in sys.path if path)  # also where the project is not installed
    try:
        done = subprocess.run(
            [sys.executable, *words],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _move(source: Path, target: Path) -> None:
    """Move whole files one by one: two processes that download the same set do not harm each other."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            final = target / path.relative_to(source)
            final.parent.mkdir(parents=True, exist_ok=True)
            path.replace(final)


def _probe(address: str, timeout_s: str) -> None:
    with urllib.request.urlopen(address, timeout=float(timeout_s)) as answer:
        answer.read(1)


def _download(kind: str, folder: str) -> None:
    from edgeflock.common.torchvision_gate import torchvision

    socket.setdefaulttimeout(STALL_S)
    getattr(torchvision().datasets, kind)(folder, download=True, **OWN_SPLIT.get(kind, {}))


TASKS: dict[str, Callable[[str, str], None]] = {"probe": _probe, "download": _download}

if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        TASKS[sys.argv[1]](*sys.argv[2:4])
        sys.exit(0)
    sys.exit(1)
