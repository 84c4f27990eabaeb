"""The meter: one exclusive time line per client, CPU seconds, peak memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping
from enum import StrEnum

from edgeflock.client.costs import Readings, RoundCost
from edgeflock.client.training.gauge import Gauge
from edgeflock.common.time_line import TimeLine

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Activity(StrEnum):
    """What a client is doing; at any instant exactly one of these."""

    FETCH = "fetch"
    TRAIN = "train"
    DELIVER = "deliver"
    WAIT = "wait"


def peak_rss_bytes() -> int:
    """Return the highest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT


class Meter:
    """Costs of one client, round after round; a round lasts from one verdict to the next.

    A client that has the process to itself is charged the CPU seconds of the whole process.
    One of several is charged what its training and its disk work used on their threads: the rest,
    shared by all, cannot be told apart.
    """

    def __init__(
        self, *, alone: bool, clock: Callable[[], float] = time.monotonic, gauge: Gauge | None = None
    ) -> None:
        self._line = TimeLine(Activity.WAIT, clock)
        self.probe = (gauge or Gauge()).probe()
        self._alone = alone
        self._thread_s = 0.0
        self._process_s = time.process_time()

    def enter(self, activity: Activity) -> None:
        self._line.enter(activity)

    def worked(self, thread_s: float) -> None:
        """Take note of CPU seconds that a worker thread has spent for this client."""
        self._thread_s += thread_s

    def spent(self, thread_s: float) -> dict[str, float]:
        """Return what the round has used so far; `thread_s`: of the work at hand, not noted yet."""
        cpu_s = self.cpu_s(thread_s)
        energy_j = self.probe.energy_j(cpu_s=cpu_s, active_s=_active_s(self._line.spent()))
        return {"cpu": cpu_s} | ({} if energy_j is None else {"energy": energy_j})

    def read(self, thread_s: float = 0.0) -> Readings:
        """Return what the sensors say of the round so far."""
        if self.probe.gauge.blind:
            return self.probe.known(None)
        return self.probe.read(cpu_s=self.cpu_s(thread_s), active_s=_active_s(self._line.spent()))

    def cpu_s(self, thread_s: float) -> float:
        """Return the round's CPU seconds so far; `thread_s`: of the work at hand, not noted yet."""
        return time.process_time() - self._process_s if self._alone else self._thread_s + thread_s

    def finish(self, round: int) -> RoundCost:
        """Return the round's costs; the next round begins."""
        seconds, cpu_s = self._line.take(), self.cpu_s(0.0)
        cost = RoundCost(
            round=round,
            fetch_s=seconds.get(Activity.FETCH, 0.0),
            train_s=seconds.get(Activity.TRAIN, 0.0),
            deliver_s=seconds.get(Activity.DELIVER, 0.0),
            wait_s=seconds.get(Activity.WAIT, 0.0),
            cpu_s=cpu_s,
            peak_rss_bytes=peak_rss_bytes(),
            readings=self.probe.finish(cpu_s=cpu_s, active_s=_active_s(seconds)),
        )
        self._thread_s = 0.0
        self._process_s += cpu_s  # which only counts for one that is alone
        return cost


def _active_s(seconds: Mapping[Activity, float]) -> float:
    """Return the seconds that were no waiting."""
    return sum(spent for activity, spent in seconds.items() if activity is not Activity.WAIT)
