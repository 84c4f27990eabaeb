"""The process that holds devices to their share of CPU where there are no control groups, by stopping them.

usage: python -m edgeflock.lab.testbed.pacer SHARE PROCESS...
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

_TICK_S = 0.002
_SAVED_S = 0.001  # of CPU that a device may have saved while it had nothing to do: a quota of a control group
_CPU_CLOCK = 2  # of all threads of a process, as the kernel's clock ids have it


def cpu_seconds(process: int) -> float | None:
    """Return the CPU seconds of a process, to the nanosecond; None if it is gone."""
    try:
        return time.clock_gettime(~process << 3 | _CPU_CLOCK)
    except OSError:
        return None


@dataclass
class Leash:
    """One device: what it may still use, and whether it is stopped. Time and use are handed in."""

    share: float
    used: float
    at: float
    credit: float = 0.0
    stopped: bool = False

    def holds(self, used: float, now: float) -> bool:
        """Return whether it must be stopped from now on."""
        self.credit += self.share * (now - self.at) - (used - self.used)
        self.credit = min(self.credit, _SAVED_S)
        self.used, self.at = used, now
        self.stopped = self.credit <= 0
        return self.stopped


def pace(share: float, processes: Sequence[int]) -> None:
    """Hold processes to a share of one core each until all are gone or somebody asks for an end."""
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda which, _: asked.append(which))
    leashes = {one: Leash(share, cpu_seconds(one) or 0.0, time.monotonic()) for one in processes}
    try:
        while leashes and not asked:
            for process in list(leashes):
                if (used := cpu_seconds(process)) is None:
                    del leashes[process]
                    continue
                _hold(process, leashes[process], used)
            time.sleep(_TICK_S)
    finally:
        for process in leashes:
            _signal(process, signal.SIGCONT)


def _hold(process: int, leash: Leash, used: float) -> None:
    before = leash.stopped
    if leash.holds(used, time.monotonic()) != before:
        _signal(process, signal.SIGCONT if before else signal.SIGSTOP)


def _signal(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def main(arguments: Sequence[str]) -> None:
    share, *processes = arguments
    with contextlib.suppress(OSError):
        os.nice(-10)
    pace(float(share), [int(process) for process in processes])


if __name__ == "__main__":
    main(sys.argv[1:])
