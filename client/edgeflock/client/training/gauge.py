"""The gauge: what this device's sensors say of the round at hand, for every hosted client."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from edgeflock.client.costs import Readings, highest
from edgeflock.common.energy import Share
from edgeflock.common.sensors import MODEL, SOURCES, Sensors

SAMPLE_S = 2.0  # between two looks; a power sensor is asked twice as often
_POWER_S = 1.0


class Use(NamedTuple):
    """What joules are told for: CPU seconds, and seconds in which the device was at work."""

    cpu_s: float
    active_s: float


class Gauge:
    """The sensors of a process and what the operator has stated in place of one.

    Stated watts are those of the device at work: of several clients that train at a time each has its part.
    """

    def __init__(self, sensors: Sensors | None = None, *, watts: float | None = None, slots: int = 1) -> None:
        self.sensors = sensors or Sensors()
        self.watts = None if watts is None else watts / slots
        self.source = self.sensors.source or (MODEL if watts is not None else "")
        self.blind = not self.sensors.any and not self.source
        self._probes: list[Probe] = []

    def probe(self) -> Probe:
        """Return the readings of one client."""
        made = Probe(self)
        self._probes.append(made)
        return made

    async def run(self) -> None:
        """Look at the sensors now and then, if there are any."""
        while self.sensors.any:
            self.look()
            await asyncio.sleep(_POWER_S if self.sensors.polled else SAMPLE_S)

    def look(self) -> None:
        """Let every client know what the sensors say now."""
        celsius, throttled = self.sensors.temperature_c(), self.sensors.throttled()
        for probe in self._probes:
            probe.note(celsius, throttled)
        if self.sensors.polled:
            self.sensors.joules()


@dataclass
class Probe:
    """The readings of one client's round."""

    gauge: Gauge
    _share: Share = field(init=False)
    temperature_c: float | None = None  # the highest that was noted in the round
    _throttled: bool | None = None
    _gpu_bytes: int | None = None

    def __post_init__(self) -> None:
        self._share = Share(self.gauge.sensors)

    def note(self, celsius: float | None, throttled: bool | None) -> None:
        self.temperature_c = highest(self.temperature_c, celsius)
        self._throttled = highest(self._throttled, throttled)

    def note_gpu(self, peak_bytes: int | None) -> None:
        self._gpu_bytes = highest(self._gpu_bytes, peak_bytes)

    def energy_j(self, use: Use | None) -> float | None:
        """Return joules of the round so far; None if nobody tells, or there was no such use."""
        if use is None:
            return None
        measured = self._share.used(use.cpu_s)
        return self._modelled(use) if measured is None else measured

    def read(self, work: Use, exam: Use | None) -> Readings:
        """Look at the sensors; return what is known of the round so far."""
        self.note(self.gauge.sensors.temperature_c(), self.gauge.sensors.throttled())
        return self.known(self.energy_j(work), self.energy_j(exam))

    def finish(self, work: Use, exam: Use | None) -> Readings:
        """Return what is known of the whole round; the next one begins."""
        exam_j = self.energy_j(exam)
        measured = self._share.take(work.cpu_s)
        readings = self.known(self._modelled(work) if measured is None else measured, exam_j)
        self.temperature_c = self._throttled = self._gpu_bytes = None
        return readings

    def _modelled(self, use: Use) -> float | None:
        return None if self.gauge.watts is None else self.gauge.watts * use.active_s

    def known(self, energy_j: float | None, exam_j: float | None) -> Readings:
        """Return what was noted in the round, and these joules."""
        source = 0 if energy_j is None else SOURCES.index(self.gauge.source) + 1
        return Readings(self._gpu_bytes, self.temperature_c, self._throttled, energy_j, source, exam_j)
