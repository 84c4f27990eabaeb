"""Joules of one process: its share of what the machine's sensor counts."""

from __future__ import annotations

import psutil

from edgeflock.common.sensors import Sensors


def busy_cpu_s() -> float:
    """Return the CPU seconds that everybody on this machine has used since it was started."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    doubled = getattr(times, "guest", 0.0) + getattr(
        times, "guest_nice", 0.0
    )  # they are in user and nice too
    return float(sum(times) - idle - doubled)


class Share:
    """From one call to the next: the sensor's joules times the part of the machine's CPU seconds in use.

    The parts of all processes of a machine add up to no more than it has used, however many of them count.
    """

    def __init__(self, sensors: Sensors) -> None:
        self._sensors = sensors
        self._joules, self._busy_s = self._look()

    def used(self, cpu_s: float) -> float | None:
        """Return the joules since `take` for so many CPU seconds in this time; None without a sensor."""
        return self._of(self._look(), cpu_s) if self._sensors.source else None

    def take(self, cpu_s: float) -> float | None:
        """Return the same and begin again at zero."""
        if not self._sensors.source:
            return None
        looked = self._look()
        joules = self._of(looked, cpu_s)
        self._joules, self._busy_s = looked
        return joules

    def _of(self, looked: tuple[float, float], cpu_s: float) -> float:
        joules, busy_s = looked
        in_use = max(busy_s - self._busy_s, cpu_s)
        return (joules - self._joules) * cpu_s / in_use if in_use > 0 else 0.0

    def _look(self) -> tuple[float, float]:
        return (self._sensors.joules(), busy_cpu_s()) if self._sensors.source else (0.0, 0.0)
