"""Processes with all that they have started, looked at again and again: CPU and memory of all together."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import psutil

SAMPLE_S = 0.5


@dataclass
class Processes:
    """What was seen of them so far."""

    cpu_of: dict[int, float] = field(default_factory=dict)
    cpu_s: list[tuple[float, float]] = field(
        default_factory=list
    )  # seconds since the epoch, CPU of all so far
    peak_rss: int = 0

    def look(self, *roots: psutil.Process, alone: bool = False) -> None:
        """Look at these, and unless they are meant alone at all that they have started."""
        rss = 0
        for process in roots if alone else (one for root in roots for one in with_children(root)):
            try:
                used, held = process.cpu_times(), process.memory_info().rss
            except psutil.Error:  # it has just ended: what it has used stays
                continue
            self.cpu_of[process.pid], rss = used.user + used.system, rss + held
        self.cpu_s.append((time.time(), sum(self.cpu_of.values())))
        self.peak_rss = max(self.peak_rss, rss)

    def used(self, begin: float, end: float) -> float:
        """Return the CPU seconds between two instants."""
        first, last = (min(self.cpu_s, key=lambda one: abs(one[0] - at)) for at in (begin, end))
        return last[1] - first[1]


def with_children(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []
