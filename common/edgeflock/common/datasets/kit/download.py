"""Downloads through torchvision, in a process of its own: no noise, no torch here, quick to give up.

Of several processes that miss the same files one downloads, the others wait for it: the data root is locked,
and the lock goes with its process. What a killed one has left is removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from edgeflock.common.command import extras

log = logging.getLogger(__name__)

_PREFIX = ".download-"
PROBE_S = 4.0  # for the first byte from the data set's host
STALL_S = 30.0  # for any further byte
OWN_SPLIT = {"EMNIST": {"split": "balanced"}}


def fetch(kind: str, probe: str, root: Path, there: Callable[[], bool] = lambda: False) -> str:
    """Download a data set of torchvision into the data root; return "" or why it could not be done.

    The root is made if need be. `there`: whether another process has done it meanwhile.
    """
    if not extras.installed("torchvision"):
        return f"it {extras.needs('torchvision')}"
    if root.exists() and not os.access(root, os.W_OK):
        return f"{root} is not writable"
    if not python("-m", __name__, "probe", probe, str(PROBE_S), timeout_s=PROBE_S + 2):
        return "its host did not answer"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _alone(root):
            return "" if there() else _fetched(kind, root)
    except OSError as error:
        return f"{error.filename or root} cannot be written: {error.strerror}"


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Wait until no other process downloads into this folder."""
    lock = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _fetched(kind: str, root: Path) -> str:
    """Download, with the root locked, beside it and then into it; return what `fetch` does."""
    for left in root.glob(f"{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    log.warning("%s is downloaded into %s, which is done once", kind, root)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=root) as folder:
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
    """Move whole files one by one: whoever looks meanwhile finds a file whole or not at all."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            final = target / path.relative_to(source)
            final.parent.mkdir(parents=True, exist_ok=True)
            path.replace(final)


def _probe(address: str, timeout_s: str) -> None:
    with urllib.request.urlopen(address, timeout=float(timeout_s)) as answer:
        answer.read(1)


def _download(kind: str, folder: str) -> None:
    from edgeflock.common.plugins.torchvision_gate import torchvision

    socket.setdefaulttimeout(STALL_S)
    getattr(torchvision().datasets, kind)(folder, download=True, **OWN_SPLIT.get(kind, {}))


TASKS: dict[str, Callable[[str, str], None]] = {"probe": _probe, "download": _download}

if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        TASKS[sys.argv[1]](*sys.argv[2:4])
        sys.exit(0)
    sys.exit(1)
