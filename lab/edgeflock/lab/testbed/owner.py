"""Whose namespaces, processes and control groups a testbed's are: one mark in all their names, and a lock.

What a killed testbed has left is known by its mark, whose lock nobody holds any more, and is taken down by
the next one; what has another mark, or none, is never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgeflock.common.errors import UsageError
from edgeflock.lab.testbed import laying, quota

HOME = Path("/run/edgeflock-testbed")
PREFIX = "flt-"
_PROCESSES = "processes"
_GONE_S = 10.0  # after SIGKILL
_POLL_S = 0.02


@dataclass(frozen=True)
class Mark:
    """The mark of one testbed, and the folder where it is known."""

    name: str

    @property
    def folder(self) -> Path:
        return HOME / self.name

    def named(self, what: str) -> str:
        """Return the name of something of this testbed."""
        return f"{self.name}-{what}"

    def own(self, process: int) -> None:
        """Note a process that must not outlive the testbed."""
        with (self.folder / _PROCESSES).open("a", encoding="utf-8") as file:
            file.write(f"{process} {_born(process)}\n")


@contextmanager
def owned() -> Iterator[Mark]:
    """Take a new mark, after what dead owners have left is gone; in the end all of this one's is, too."""
    clear()
    mark = Mark(f"{PREFIX}{secrets.token_hex(3)}")
    try:
        mark.folder.mkdir(parents=True)
        lock = (mark.folder / "lock").open("w")
    except OSError as error:
        raise UsageError(f"{mark.folder} cannot be made: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield mark
        finally:
            _take_down(mark)


def clear() -> list[str]:
    """Take down what owners that are gone have left; return their marks."""
    found = []
    for folder in sorted(HOME.glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError), (folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused: its owner lives
            _take_down(Mark(folder.name))
            found.append(folder.name)
    return found


def _take_down(mark: Mark) -> None:
    names = laying.names(mark.name)
    _end({*_noted(mark), *quota.processes(mark.name), *laying.processes(names)})
    laying.remove(names)
    quota.remove(mark.name)
    shutil.rmtree(mark.folder, ignore_errors=True)


def _noted(mark: Mark) -> Iterator[int]:
    """Yield the processes that were noted and are still the same."""
    with contextlib.suppress(OSError):
        for line in (mark.folder / _PROCESSES).read_text("utf-8").splitlines():
            process, _, born = line.partition(" ")
            if process.isdigit() and born and _born(int(process)) == born:
                yield int(process)


def _born(process: int) -> str:
    """Return when a process began, in the kernel's ticks: numbers are given again, moments are not."""
    try:
        text = Path(f"/proc/{process}/stat").read_text("utf-8")
    except OSError:
        return ""
    state, *rest = text.rpartition(")")[2].split()
    return "" if state in ("Z", "X") else rest[18]


def _end(processes: set[int]) -> None:
    """Kill processes and wait until they are gone."""
    for process in processes - {os.getpid()}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    until = time.monotonic() + _GONE_S
    while any(_born(process) for process in processes - {os.getpid()}) and time.monotonic() < until:
        time.sleep(_POLL_S)
