"""An exclusive time line: at any instant exactly one thing is done, and its seconds add up to all of them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class TimeLine(Generic[T]):
    """Seconds by what was done; entering one thing leaves the other, None is nothing that counts."""

    def __init__(self, doing: T | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.doing = doing
        self._clock = clock
        self._since = clock()
        self._seconds: defaultdict[T, float] = defaultdict(float)

    def enter(self, doing: T | None) -> None:
        """From now on it is this that is done."""
        before, self._since = self._since, self._clock()
        if self.doing is not None:
            self._seconds[self.doing] += self._since - before
        self.doing = doing

    def move(self, source: T, target: T, seconds: float) -> None:
        """What was counted as one was another."""
        self._seconds[source] -= seconds
        self._seconds[target] += seconds

    def spent(self) -> dict[T, float]:
        """Return the seconds since the last `take`; changes nothing, so another thread may ask."""
        found = dict(self._seconds)
        if self.doing is not None:
            found[self.doing] = found.get(self.doing, 0.0) + self._clock() - self._since
        return found

    def take(self) -> dict[T, float]:
        """Return the seconds since the last call, and begin again at zero."""
        self.enter(self.doing)
        taken, self._seconds = self._seconds, defaultdict(float)
        return taken
