"""Effects that found the disk full, and when they are tried again. Pure."""

from __future__ import annotations

from edgeflock.server.core.decisions import Ended
from edgeflock.server.core.effects import Effect, Persist
from edgeflock.server.core.events import SpaceMissing

RETRY_S = 2.0  # between two tries


class Space:
    """What waits for room on the disk."""

    def __init__(self) -> None:
        self.missing = ""  # what the disk says while effects wait
        self.retry_at: float | None = None
        self._starved: list[Effect] = []

    def wait(self, event: SpaceMissing) -> bool:
        """Keep the effect for another try; return whether it is news that there is no room."""
        self._starved.append(event.effect)
        self.retry_at = event.now + RETRY_S
        news = self.missing != event.reason
        self.missing = event.reason
        return news

    def retries(self, now: float) -> list[Effect]:
        """Return the effects that are to be tried again now."""
        if self.retry_at is None or now < self.retry_at:
            return []
        starved, self._starved, self.retry_at = self._starved, [], None
        return starved

    def came_through(self) -> bool:
        """An effect was carried out; return whether it is news that there is room again."""
        if not self.missing or self._starved:
            return False
        self.missing = ""
        return True

    def forget(self) -> None:
        """What waits is wanted no more."""
        self._starved, self.retry_at = [], None


def is_ending(effect: Effect) -> bool:
    return isinstance(effect, Persist) and any(isinstance(record, Ended) for record in effect.records)
