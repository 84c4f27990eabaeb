"""Effects that found the disk full or the journal locked, and when they are tried again."""

from __future__ import annotations

from edgeflock.server.core.decisions import Ended, Scored
from edgeflock.server.core.effects import Announce, Effect, Persist, Publish
from edgeflock.server.core.events import SpaceMissing

RETRY_S = 2.0  # between two tries


class Space:
    """What waits for room on the disk."""

    def __init__(self) -> None:
        self.missing = ""  # what the disk says while effects wait
        self.retry_at: float | None = None  # Invariant: set while effects wait
        self._starved: list[Effect] = []

    def wait(self, event: SpaceMissing, round: int) -> list[Effect]:
        """Keep the effect for another try."""
        self._starved.append(event.effect)
        self.retry_at = event.now + RETRY_S
        if self.missing == event.reason:
            return []
        self.missing = event.reason
        return [Announce("run_paused", {"round": round, "reason": event.reason}), Publish()]

    def retries(self, now: float) -> list[Effect]:
        """Return the effects that are to be tried again now."""
        if self.retry_at is None or now < self.retry_at:
            return []
        starved, self._starved, self.retry_at = self._starved, [], None
        return starved

    def found(self, round: int) -> list[Effect]:
        """An effect was carried out: there is room again, if none waits."""
        if not self.missing or self._starved:
            return []
        self.missing = ""
        return [Announce("run_resumed", {"round": round})]

    def forget(self) -> None:
        """What waits is wanted no more, but for what the end waits for."""
        self._starved = list(filter(is_wanted_at_the_end, self._starved))
        self.retry_at = self.retry_at if self._starved else None


def is_wanted_at_the_end(effect: Effect) -> bool:
    """Whether it is no matter of a round that the end discards: the end itself, or a score before it."""
    return isinstance(effect, Persist) and any(
        isinstance(record, Ended | Scored) for record in effect.records
    )
