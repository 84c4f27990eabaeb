"""Verdicts: the final words on every client's updates, the last two in memory, all of them in the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from edgeflock.server.core.decisions import Outcome
from edgeflock.server.journal.journal import Journal

_LAST = 2  # outcomes that a client is told again and again


class Verdicts:
    """What has become of the updates of a run."""

    def __init__(self, last: dict[int, dict[int, Outcome]], journal: Journal) -> None:
        self._last = last  # the last two of each client: by seat, then by round
        self._journal = journal

    def add(self, round: int, outcomes: Iterable[Outcome]) -> None:
        """A round is settled, and the journal says so."""
        for outcome in outcomes:
            mine = self._last.setdefault(outcome.seat, {})
            mine[round] = outcome
            if len(mine) > _LAST:
                del mine[min(mine)]

    def last(self, seat: int) -> list[tuple[int, Outcome]]:
        """Return the last two of a client, each with its round, oldest first."""
        return sorted(self._last.get(seat, {}).items())

    async def find(self, seat: int, round: int) -> Outcome | None:
        """Return the final word on a member's update of a settled round, from memory or the journal."""
        if (known := self._last.get(seat, {}).get(round)) is not None:
            return known
        found = await asyncio.wrap_future(self._journal.ask(lambda past: past.outcomes(round)))
        return next((item for item in found if item.seat == seat), None)
