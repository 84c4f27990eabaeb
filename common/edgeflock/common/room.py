"""How much memory this process may have: the machine's, or less where a cgroup or its own limit says so."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA)


def memory_bytes(root: Path = Path("/")) -> int:
    """Return the lowest limit that this process runs into; where none is known, a small device's memory."""
    own = (resource.getrlimit(which)[0] for which in _LIMITS)
    limits = [limit for limit in own if limit != resource.RLIM_INFINITY]
    return min([*limits, *_of_groups(root), *_of_machine()], default=512 << 20)


def free_bytes(root: Path = Path("/")) -> int | None:
    """Return how much the machine has for whoever asks first; None where it does not say so."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    return int(found[1]) << 10 if found else None


def _of_machine() -> Iterator[int]:
    try:
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):  # no such name on this system
        return


def _of_groups(root: Path) -> Iterator[int]:
    """Yield the memory limits of the cgroups that this process is in, of either version."""
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, kinds, name = line.split(":", 2)
        if not kinds:
            yield from _limits(mounted, name, "memory.max")
        elif "memory" in kinds.split(","):
            yield from _limits(mounted / "memory", name, "memory.limit_in_bytes")


def _limits(mounted: Path, name: str, file: str) -> Iterator[int]:
    """Yield what a group and those around it say; within a container the innermost is the mounted one."""
    group = PurePosixPath(name)
    for folder in (group, *group.parents):
        said = _text(mounted / str(folder).lstrip("/") / file).strip()
        if said.isdigit():
            yield int(said)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""
