"""The meter: one exclusive time line per client, CPU seconds, peak memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

from edgeflock.client.costs import ExamCost, Passes, Readings, RoundCost, TrainCost, both
from edgeflock.client.training.gauge import Gauge, Use
from edgeflock.common.time_line import TimeLine

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Activity(StrEnum):
    """What a client is doing; at any instant exactly one of these."""

    FETCH = "fetch"
    TRAIN = "train"
    EXAM = "exam"  # of its own model: no cost of the round
    DELIVER = "deliver"
    WAIT = "wait"


_WORK = (Activity.FETCH, Activity.TRAIN, Activity.DELIVER)


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
        self._passes, self._exam_cpu_s = Passes(), 0.0
        self._before = TrainCost()  # what a process before this one has done of the round

    def resume(self, cost: TrainCost, steps: int) -> None:
        """Begin with what a process before this one has stated: its update is kept, the round goes on."""
        self._before = cost
        self._passes = Passes(steps, cost.samples_done, cost.forward_samples, cost.backward_samples)

    def enter(self, activity: Activity) -> None:
        self._line.enter(activity)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Within this the client waits, whatever it is about to do."""
        before = self._line.doing
        self._line.enter(Activity.WAIT)
        try:
            yield
        finally:
            self._line.enter(before)

    def was_idle(self, seconds: float) -> None:
        """So long what it is doing was waiting: nothing has moved."""
        if self._line.doing is not None:
            self._line.move(self._line.doing, Activity.WAIT, seconds)

    def worked(self, thread_s: float) -> None:
        """Take note of CPU seconds that a worker thread has spent for this client."""
        self._thread_s += thread_s

    def computed(self, passes: Passes) -> None:
        """Take note of what a training has computed."""
        self._passes = self._passes.plus(passes)

    def examined(self, exam: ExamCost) -> None:
        """Of the training at hand so much was a test of the client's own model."""
        if exam.seconds:
            self._line.move(Activity.TRAIN, Activity.EXAM, exam.seconds)
            self._exam_cpu_s += exam.cpu_s

    def seconds(self, activity: Activity) -> float:
        """Return the round's seconds of an activity so far."""
        return self._line.spent().get(activity, 0.0)

    def spent(self, thread_s: float) -> dict[str, float]:
        """Return what the round has used so far; `thread_s`: of the work at hand, not noted yet."""
        use = self._use(self._line.spent(), thread_s)
        energy_j = both(self.probe.energy_j(use), self._before.readings.energy_j)
        used = {"cpu": self._before.cpu_s + use.cpu_s}
        return used | ({} if energy_j is None else {"energy": energy_j})

    def read(self, thread_s: float = 0.0) -> Readings:
        """Return what the sensors say of the round so far."""
        if self.probe.gauge.blind:
            return self.probe.known(None, None)
        seconds = self._line.spent()
        return self.probe.read(self._use(seconds, thread_s), self._use_of_exam(seconds))

    def cpu_s(self, thread_s: float) -> float:
        """Return the round's CPU seconds so far; `thread_s`: of the work at hand, not noted yet."""
        return self._before.cpu_s + self._cpu_s(thread_s)

    def finish(self, round: int) -> RoundCost:
        """Return the round's costs; the next round begins."""
        seconds, before = self._line.take(), self._before
        use, exam = self._use(seconds, 0.0), self._use_of_exam(seconds)
        cost = RoundCost(
            round=round,
            fetch_s=before.fetch_s + seconds.get(Activity.FETCH, 0.0),
            train_s=before.train_s + seconds.get(Activity.TRAIN, 0.0),
            deliver_s=seconds.get(Activity.DELIVER, 0.0),
            wait_s=seconds.get(Activity.WAIT, 0.0),
            cpu_s=before.cpu_s + use.cpu_s,
            peak_rss_bytes=max(before.peak_rss_bytes, peak_rss_bytes()),
            readings=before.readings.with_rest(self.probe.finish(use, exam)),
            exam_s=before.exam_s + seconds.get(Activity.EXAM, 0.0),
            exam_cpu_s=before.exam_cpu_s + self._exam_cpu_s,
            **self._passes._asdict(),
        )
        self._process_s += use.cpu_s + self._exam_cpu_s  # which only counts for one that is alone
        self._thread_s, self._exam_cpu_s = 0.0, 0.0
        self._passes, self._before = Passes(), TrainCost()
        return cost

    def _cpu_s(self, thread_s: float) -> float:
        whole = time.process_time() - self._process_s if self._alone else self._thread_s + thread_s
        return max(0.0, whole - self._exam_cpu_s)

    def _use(self, seconds: Mapping[Activity, float], thread_s: float) -> Use:
        """Return what counts for the round."""
        return Use(self._cpu_s(thread_s), sum(seconds.get(one, 0.0) for one in _WORK))

    def _use_of_exam(self, seconds: Mapping[Activity, float]) -> Use | None:
        exam_s = seconds.get(Activity.EXAM)
        return None if exam_s is None else Use(self._exam_cpu_s, exam_s)
