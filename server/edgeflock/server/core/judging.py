"""What bad updates lead to: counted, and at some time their sender is left out for a while. Pure."""

from __future__ import annotations

from edgeflock.server.core.decisions import Conduct, Outcome, Released
from edgeflock.server.core.effects import Announce, CommitRound, Effect, Persist
from edgeflock.server.core.leaving import Leaving


class Judging(Leaving):
    """The decisions about clients that send what no sound client sends."""

    def _offended(self, seat: int, reason: str) -> list[Effect]:
        conduct = self.quarantine.offence(seat, reason, self.round)
        return [] if conduct is None else [Persist((conduct,))]

    def _release(self, seat: int) -> list[Effect]:
        return [Persist((Released(seat),))] if self.quarantined(seat) else []

    def _bar(self) -> None:
        """Nobody waits for members that are in quarantine, unless their updates are here already."""
        held = self.quarantine.held(self.round) & set(self.current.cohort)
        self.current.barred = held - set(self.current.received)

    def _settle(self, outcomes: tuple[Outcome, ...]) -> CommitRound:
        """Return the commit of the round, with who is left out from now on, and who is no more."""
        conduct = self.quarantine.settle(self.round, outcomes)
        words = [word for one in conduct for word in self.words(one)]
        words += self.quarantine.over(self.round, self.roster.names)
        self._settled = CommitRound(self.round, outcomes, conduct=conduct, words=tuple(words))
        return self._settled

    def _settled_words(self) -> list[Effect]:
        """The round is committed."""
        assert self._settled is not None
        self.quarantine.take(self._settled.conduct)
        return list(self._settled.words)

    def _told_conduct(self, record: Conduct) -> list[Announce]:
        self.quarantine.take((record,))
        return self.words(record)
