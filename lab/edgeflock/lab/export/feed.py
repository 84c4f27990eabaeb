"""The figures of a run for programs that track runs: one feed, whoever writes, once or while it goes on."""

from __future__ import annotations

import select
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

from edgeflock.server.journal.reader import Event, Feed

_INTERVAL_S = 1.0
_COMMITTED = {"round_committed": "round", "last_round_committed": "closing"}

Scalar = tuple[str, float]


class Tracker(Protocol):
    """What keeps the figures of one run."""

    def add(self, event: Event) -> int:
        """Take the figures of an event and return how many there were."""
        ...

    def keep(self, cursor: int) -> None:
        """Bring what was added to where it stays, and note how far that is."""

    def conclude(self) -> None:
        """Take what there is when all events have been added: of a run that is over, its model."""

    def close(self) -> None:
        """Let go of it."""


def write(feed: Feed, tracker: Tracker, patience: Following | None) -> int:
    """Write what is not written yet, with patience on to the run's end; return how many scalars."""
    count = 0
    while True:
        # Asked before reading: what is there by now is written.
        last = patience is None or patience.over or feed.over()
        for event in (new := feed.read()):
            count += tracker.add(event)
        if new:
            tracker.keep(feed.cursor)
        if last or patience is None:
            tracker.conclude()
            return count
        patience.wait()


class Following:
    """How long a run is followed: until a signal comes, or the end of standard input where that counts."""

    def __init__(self, attached: bool) -> None:
        self.over = False
        self._watched = [sys.stdin] if attached else []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)

    def wait(self) -> None:
        if not self.over:
            self.over = bool(select.select(self._watched, [], [], _INTERVAL_S)[0]) or self.over

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.over = True


def scalars(event: Event) -> Iterator[Scalar]:
    """Yield the figures of an event, by tag."""
    if event.name in _COMMITTED:
        group = _COMMITTED[event.name]
        for name in event.fields:
            if name != "round" and (value := event.number(name)) is not None:
                yield f"{group}/{name}", value
        for name, (used, limit) in event.fields.get("budget", {}).items():
            yield f"budget/{name}", used / limit
    elif event.name == "evaluated":
        model = str(event.fields.get("model", "global"))
        for name in event.fields:
            if name not in ("round", "model") and (value := event.number(name)) is not None:
                yield f"{name}/{model}", value
