"""What is read while a cell runs: interfaces, TCP, CPU of the devices, the medium; kept beside the cell."""

from __future__ import annotations

import json
import subprocess
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from edgeflock.common.wire.framing import PACKET_HEADER, SEGMENT
from edgeflock.lab.testbed.laying import inside
from edgeflock.lab.testbed.pacer import cpu_seconds
from edgeflock.lab.testbed.relay import INTERFACE
from edgeflock.server.files.run_dir import write_small

_TABLES = ("/proc/net/dev", "/proc/net/snmp", "/proc/net/netstat")
_INNER = 0.8  # of a training is looked at: its ends are no step's
_SHORTEST_S = 0.3
_ETHERNET = 14  # bytes of a packet's header that a tunnel has not


@dataclass(frozen=True)
class Sent:
    """What one end has put on its interface, in bytes as on an Ethernet."""

    bytes: int = 0
    bare: int = 0  # of these, packets without data
    again: int = 0  # and what TCP has sent once more
    dropped: int = 0  # packets

    def minus(self, before: Sent) -> Sent:
        mine, theirs = asdict(self), asdict(before)
        return Sent(**{name: mine[name] - theirs[name] for name in mine})

    @property
    def new(self) -> int:
        """Bytes of packets that carry something, once each."""
        return self.bytes - self.bare - self.again


def sent(namespaces: Iterable[str]) -> Sent:
    """Return what namespaces have sent so far, together."""
    found = [asdict(_sent(name)) for name in namespaces]
    return Sent(**{name: sum(one[name] for one in found) for name in asdict(Sent())})


def _sent(namespace: str) -> Sent:
    done = subprocess.run([*inside(namespace), "cat", *_TABLES], capture_output=True, text=True, check=False)
    return read_sent(done.stdout)


def read_sent(text: str) -> Sent:
    """Return what the kernel's three tables say of the tunnel and of TCP."""
    lines = text.splitlines()
    interface = next(
        (line.split(":")[1].split() for line in lines if line.strip().startswith(f"{INTERFACE}:")), None
    )
    if interface is None:
        return Sent()
    said, packets, dropped = int(interface[8]), int(interface[9]), int(interface[11])
    tcp = _tcp(lines)
    resent = tcp.get("RetransSegs", 0)
    bare = tcp.get("OutSegs", 0) - tcp.get("TCPOrigDataSent", 0)  # neither has what was sent again
    return Sent(said + _ETHERNET * packets, bare * PACKET_HEADER, resent * (PACKET_HEADER + SEGMENT), dropped)


def _tcp(lines: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for names, values in pairwise(lines):
        kind = names.partition(":")[0]
        if kind in ("Tcp", "TcpExt") and values.startswith(f"{kind}:") and not names.split()[1].isdigit():
            found |= dict(zip(names.split()[1:], map(int, values.split()[1:]), strict=False))
    return found


# ------------------------------------------------------------------------------------------- processors


@dataclass
class CpuBook:
    """CPU seconds of the devices over time."""

    processes: Sequence[int]
    samples: list[tuple[float, tuple[float, ...]]] = field(default_factory=list)  # seconds since 1970

    def look(self) -> None:
        used = tuple(cpu_seconds(process) or 0.0 for process in self.processes)
        self.samples.append((time.time(), used))

    def between(self, device: int, begin: float, end: float) -> float | None:
        """Return what a device used between two moments; None outside of what was seen."""
        first, last = self._at(device, begin), self._at(device, end)
        return None if first is None or last is None else last - first

    def _at(self, device: int, moment: float) -> float | None:
        place = bisect_left(self.samples, moment, key=lambda sample: sample[0])
        if not 0 < place < len(self.samples):
            return None
        (before, low), (after, high) = self.samples[place - 1], self.samples[place]
        part = (moment - before) / (after - before) if after > before else 0.0
        return low[device] + part * (high[device] - low[device])


@dataclass(frozen=True)
class WorkSpan:
    """A round of a device, and how long it trained in it, as the books have it."""

    device: int
    begin: float
    end: float
    training_s: float


def used_while_training(book: CpuBook, spans: Iterable[WorkSpan]) -> tuple[float, float]:
    """Return the seconds of training that were watched, and the CPU seconds that devices used in them.

    When in a round a device trained nobody has written down: it is where it used the most.
    """
    seconds, used = 0.0, 0.0
    for span in spans:
        length = _INNER * span.training_s
        if length >= _SHORTEST_S and (most := _most(book, span, length)) is not None:
            seconds, used = seconds + length, used + most
    return seconds, used


def _most(book: CpuBook, span: WorkSpan, length: float) -> float | None:
    begins = [at for at, _ in book.samples if span.begin <= at <= span.end - length]
    found = [used for at in begins if (used := book.between(span.device, at, at + length)) is not None]
    return max(found, default=None)


# ------------------------------------------------------------------------------------ what is kept of a cell


@dataclass(frozen=True)
class Measures:
    """What was read over one life of a cell's server."""

    begin: float  # seconds since 1970
    end: float
    down: Sent = Sent()  # by the server
    up: Sent = Sent()  # by all devices
    medium: Mapping[str, float] = field(default_factory=dict)
    training_s: float = 0.0  # of all devices together, as far as watched
    training_cpu_s: float = 0.0
    mode: str = ""  # how devices are held to their share


def medium_now(figures: Path) -> dict[str, float]:
    """Return what the relay has told last, flat; nothing before its first word."""
    try:
        told = json.loads(figures.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    late = told.pop("late")
    return {**told, "late_packets": late["packets"], "late_s": late["sum_s"], "latest_s": late["most_s"]}


def since(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Return what was added; of the longest delay what it is now."""
    return {
        name: value if name == "latest_s" else value - before.get(name, 0.0) for name, value in now.items()
    }


def keep(path: Path, measures: Measures) -> None:
    """Add what was read over a life to the cell's file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lives: list[Any] = [asdict(one) for one in recall(path)]
    write_small(path, json.dumps([*lives, asdict(measures)], indent=1) + "\n")


def recall(path: Path) -> list[Measures]:
    """Return what was read over every life of a cell; nothing if it was never watched to an end."""
    try:
        told = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return []
    return [Measures(**{**one, "down": Sent(**one["down"]), "up": Sent(**one["up"])}) for one in told]
