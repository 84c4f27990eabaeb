"""Verdicts: the final words on every client's updates, the last in memory, all of them in the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Outcome
from edgeflock.server.journal.journal import Journal

_LAST = 2  # outcomes that a client is told again and again


class Verdicts:
    """What has become of the updates of a run."""

    def __init__(self, journal: Journal, newest: int) -> None:
        """Read what the lives before have said, up to that round: before there is a loop."""
        # By seat, then by round: the last two of each client.
        self._last = journal.ask(lambda past: past.last_outcomes(newest)).result()
        # By seat, with its round: the last that moved a client's own state.
        self._standing = journal.ask(lambda past: past.standing(newest)).result()
        self._journal = journal
        self._news: set[int] = set()

    def add(self, round: int, outcomes: Iterable[Outcome]) -> None:
        """A round is settled, and the journal says so."""
        for outcome in outcomes:
            self._news.add(outcome.seat)
            mine = self._last.setdefault(outcome.seat, {})
            mine[round] = outcome
            if len(mine) > _LAST:
                del mine[min(mine)]
            if outcome.verdict is Verdict.COUNTED and outcome.moved is not False:
                self._standing[outcome.seat] = round, outcome

    def news(self) -> set[int]:
        """Return of whom there are verdicts since the last call."""
        found, self._news = self._news, set()
        return found

    def last(self, seat: int) -> list[tuple[int, Outcome]]:
        """Return the last two of a client, each with its round, oldest first."""
        return sorted(self._last.get(seat, {}).items())

    def standing(self, seat: int) -> tuple[int, Outcome] | None:
        """Return the last update of a client that counted and moved its own state, with its round; whether it
        did, a client of before does not say. None: there is none."""
        return self._standing.get(seat)

    async def find(self, seat: int, round: int) -> Outcome | None:
        """Return the final word on a member's update of a settled round, from memory or the journal."""
        if (known := self._last.get(seat, {}).get(round)) is not None:
            return known
        found = await asyncio.wrap_future(self._journal.ask(lambda past: past.outcomes(round)))
        return next((item for item in found if item.seat == seat), None)
