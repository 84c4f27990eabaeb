"""The event story as viewers see it: the newest events, short and safe to show, and who was refused."""

from __future__ import annotations

import math
from collections import deque
from itertools import chain, takewhile
from typing import Any

from edgeflock.server.journal.reader import Event

KEPT = 500  # events of each sort; older ones are asked for
ROUNDS = ("round_opened", "round_committed", "evaluated")  # these come with every round
_REFUSED_KEPT = 50
_LONGEST_LIST, _LONGEST_TEXT = 12, 300


class Story:
    """The end of the feed, and the refusals of strangers."""

    def __init__(self) -> None:
        self.cursor = 0
        self.counts: dict[str, int] = {}  # events by name
        self.refused: dict[tuple[str, str], dict[str, Any]] = {}  # by client and reason, newest last
        self._rounds: deque[Event] = deque(maxlen=KEPT)
        self._others: deque[Event] = deque(maxlen=KEPT)  # what fast rounds must not push out

    def add(self, event: Event) -> None:
        self.cursor = event.cursor
        self.counts[event.name] = self.counts.get(event.name, 0) + 1
        (self._rounds if event.name in ROUNDS else self._others).append(event)
        if event.name == "refused":
            self._refuse(event)

    def _refuse(self, event: Event) -> None:
        fields = short(event.fields)
        key = str(fields.get("client")), str(fields.get("reason"))
        self.refused.pop(key, None)
        self.refused[key] = {**fields, "at": event.at, "cursor": event.cursor}
        if len(self.refused) > _REFUSED_KEPT:
            del self.refused[next(iter(self.refused))]

    def since(self, cursor: int) -> list[dict[str, Any]]:
        """Return the events behind a cursor, oldest first; no more than are kept."""
        newer = [
            takewhile(lambda event: event.cursor > cursor, reversed(kept))
            for kept in (self._rounds, self._others)
        ]
        return [shown(event) for event in sorted(chain(*newer), key=lambda event: event.cursor)]

    def refused_since(self, cursor: int) -> list[dict[str, Any]]:
        return [entry for entry in self.refused.values() if entry["cursor"] > cursor]


def shown(event: Event) -> dict[str, Any]:
    """Return an event as a viewer gets it."""
    return {"cursor": event.cursor, "at": event.at, "name": event.name, "fields": short(event.fields)}


def short(value: Any) -> Any:
    """Return a JSON value without what is too long to be read and what JavaScript cannot parse."""
    if isinstance(value, dict):
        return {str(key): short(entry) for key, entry in list(value.items())[:_LONGEST_LIST]} | _rest(value)
    if isinstance(value, list):
        rest = [f"and {len(value) - _LONGEST_LIST} more"] if len(value) > _LONGEST_LIST else []
        return [short(entry) for entry in value[:_LONGEST_LIST]] + rest
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + "…"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _rest(value: dict[str, Any]) -> dict[str, str]:
    missing = len(value) - _LONGEST_LIST
    return {"…": f"and {missing} more"} if missing > 0 else {}
