"""The span of a round: for how long a process has trained in it, whoever of its clients it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

Clock = Callable[[], float]


class Span:
    """Seconds in which at least one training was going on: it is entered for each, from any thread."""

    def __init__(self, slots: int, clock: Clock = time.monotonic) -> None:
        self._slots, self._clock, self._lock = slots, clock, threading.Lock()
        self._trainings, self._since, self._seconds = 0, 0.0, 0.0

    def __enter__(self) -> Self:
        with self._lock:
            if not self._trainings:
                self._since = self._clock()
            self._trainings += 1
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._trainings -= 1
            if not self._trainings:
                self._seconds += self._clock() - self._since

    def less(self, seconds: float) -> None:
        """So long one of the slots did something else."""
        with self._lock:
            self._seconds -= seconds / self._slots

    @property
    def seconds(self) -> float:
        with self._lock:
            going_on = self._clock() - self._since if self._trainings else 0.0
            return max(0.0, self._seconds + going_on)


class Spans:
    """The span of the newest round of each run."""

    def __init__(self, slots: int, clock: Clock = time.monotonic) -> None:
        self._slots, self._clock, self._lock = slots, clock, threading.Lock()
        self._newest: dict[str, tuple[int, Span]] = {}

    def of(self, run_id: str, round: int) -> Span:
        """Return the span of a round; one of an older round has a new one to itself."""
        with self._lock:
            newest, span = self._newest.get(run_id, (0, None))
            if span is None or round != newest:
                span = Span(self._slots, self._clock)
                if round > newest:
                    self._newest[run_id] = round, span
            return span
