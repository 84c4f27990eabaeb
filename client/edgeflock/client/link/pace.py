"""The pace of a client's transfers: how long one usually takes, and which silence on the way is waiting."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_ROOM_S, _TIMES = 1.0, 4.0  # a silence beyond this, and so often what the whole should take, is an outage


class Journey:
    """Something on its way: when bytes of it were last seen to move, and what of its time was waiting."""

    def __init__(self, patience_s: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s, self._clock = patience_s, clock
        self.idle_s = 0.0
        self._moved_at = clock()

    def begin(self) -> None:
        """Another attempt begins."""
        self._moved_at = self._clock()

    def moved(self) -> None:
        """Bytes of it, or a word about it, were seen to pass."""
        now = self._clock()
        silence = now - self._moved_at
        self.idle_s += silence if silence > self._patience_s else 0.0
        self._moved_at = now

    def cut(self) -> None:
        """The line was of no use since something last moved."""
        now = self._clock()
        self.idle_s += now - self._moved_at
        self._moved_at = now


class Pace:
    """What whole transfers one way have taken."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._each_s: float | None = None  # of a byte, of the last that went through undisturbed
        self._began = 0.0

    def journey(self, size_bytes: int) -> Journey:
        """Begin one of that size; of the first, nobody can tell how long it should take."""
        self._began = self._clock()
        usual = math.inf if self._each_s is None else _ROOM_S + _TIMES * self._each_s * size_bytes
        return Journey(usual, self._clock)

    def learn(self, journey: Journey, size_bytes: int) -> None:
        """One has gone through."""
        if size_bytes and not journey.idle_s:
            self._each_s = (self._clock() - self._began) / size_bytes
