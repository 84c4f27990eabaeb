"""A quota of CPU for each device: control groups of either version; where there are none, nothing of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpu,cpuacct"), Path("/sys/fs/cgroup"))
_MICROSECONDS = 1_000_000
_WEIGHTS = {"cpu.shares": 1024, "cpu.weight": 100}  # of one process, in groups of version 1 and 2
_HEAVIEST = 100  # times that


@dataclass(frozen=True)
class Groups:
    """The control groups of one testbed, one for each device."""

    root: Path
    mark: str

    @property
    def folder(self) -> Path:
        return self.root / self.mark

    def make(self, device: str) -> None:
        """Make the group of a device, without a limit."""
        self.folder.mkdir(exist_ok=True)
        _allow(self.folder)
        (self.folder / device).mkdir()
        self._weigh(len(list(self.folder.glob("*/"))))

    def _weigh(self, devices: int) -> None:
        """Let the devices count as so many processes beside others of the machine, not as one."""
        for name, weight in _WEIGHTS.items():
            if (self.folder / name).exists():
                _write(self.folder / name, min(_HEAVIEST * weight, weight * devices))

    def take(self, device: str, process: int) -> None:
        """Put a process, and what it starts from now on, into a device's group."""
        _write(self.folder / device / "cgroup.procs", process)

    def limit(self, device: str, quota_s: float, period_s: float) -> None:
        """Let a device have so much of every period."""
        quota, period = round(quota_s * _MICROSECONDS), round(period_s * _MICROSECONDS)
        folder = self.folder / device
        if (folder / "cpu.max").exists():
            _write(folder / "cpu.max", f"{quota} {period}")
        else:
            _write(folder / "cpu.cfs_period_us", period)
            _write(folder / "cpu.cfs_quota_us", quota)

    def lift(self, device: str) -> None:
        """Let a device have all it can get."""
        folder = self.folder / device
        if (folder / "cpu.max").exists():
            _write(folder / "cpu.max", "max")
        else:
            _write(folder / "cpu.cfs_quota_us", -1)


def groups(mark: str) -> Groups | None:
    """Return the groups of a mark; None where no device can be given a quota."""
    for root in _ROOTS:
        found = Groups(root, mark)
        try:
            _allow(root)
            found.make("trial")
            found.limit("trial", 0.001, 0.013)
        except OSError:
            remove(mark)
            continue
        (found.folder / "trial").rmdir()
        return found
    return None


def _allow(root: Path) -> None:
    """Where there is one hierarchy, hand the CPU down to groups below."""
    control = root / "cgroup.subtree_control"
    if control.exists():
        _write(control, "+cpu")


def _write(path: Path, value: object) -> None:
    """Write into a file of the kernel's; one that is not there is not made."""
    with path.open("r+", encoding="utf-8") as file:
        file.write(str(value))


def processes(mark: str) -> Iterator[int]:
    """Yield the processes in groups of that mark."""
    for folder in _folders(mark):
        with contextlib.suppress(OSError):
            yield from map(int, (folder / "cgroup.procs").read_text("utf-8").split())


def remove(mark: str) -> None:
    """Remove the groups of that mark; there is nobody in them."""
    for folder in _folders(mark):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _folders(mark: str) -> Iterator[Path]:
    """Yield the groups of that mark, the inner ones first."""
    for root in _ROOTS:
        yield from (path for path in (root / mark).glob("*/"))
        if (root / mark).is_dir():
            yield root / mark
