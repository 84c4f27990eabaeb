"""How a run is left: it ends, is parked or breaks; what becomes of the round at hand. Pure."""

from __future__ import annotations

from edgeflock.server import events
from edgeflock.server.events import Announce, Effect, Ended, EndingKind, Outcome, Persist, Phase, Publish
from edgeflock.server.standing import Standing


class Leaving(Standing):
    """The last decisions of a process or a run."""

    def _reach(self, reason: str) -> list[Effect]:
        """The last committed model is the final one; the round after it counts no more (DESIGN rule 11)."""
        at_hand = self.round > self.committed
        return self._end(EndingKind.COMPLETED, reason, self.tally.discarded() if at_hand else ())

    def _cut(self, closed: events.RoundClosed) -> list[Effect]:
        """Say that a round was cut short, once the journal holds it."""
        if not closed.limit:
            return []
        counted = [self.seats.names[index] for index in closed.counted]
        return [Announce("round_cut", {"round": closed.round, "counted": counted, "reason": closed.limit})]

    def _discarded(self) -> tuple[Outcome, ...]:
        if self.phase not in (Phase.OPENING, Phase.OPEN):
            return ()
        return self.tally.discarded()

    def _park(self) -> list[Effect]:
        """Go away with the round as it is; the journal and the spool hold it."""
        self.draining = self._parked = True
        return [Announce("run_parked", {"round": self.round}), Publish(), events.Exit(None)]

    def _break(self, reason: str) -> list[Effect]:
        """Go away like that with a reason. It is no end of the run: clients keep what they have, and wait."""
        self.draining = self._parked = True
        broken = Announce("run_broken", {"round": self.round, "reason": reason})
        return [broken, Publish(), events.Exit(Ended(EndingKind.FAILED, reason, self.round))]

    def _end(self, kind: EndingKind, reason: str, outcomes: tuple[Outcome, ...] = ()) -> list[Effect]:
        self.phase, self._wake = Phase.ENDING, None
        self.space.forget()
        return [Persist((Ended(kind, reason, self.round, outcomes),))]

    def _leave(self, ending: Ended) -> list[Effect]:
        self.phase, self.ending = Phase.ENDED, ending
        self._wake = None
        self.space.forget()
        discarded = Announce("round_discarded", {"round": ending.round, "reason": ending.reason})
        fields: dict[str, object] = {
            "kind": str(ending.kind),
            "reason": ending.reason,
            "round": self.counted,
        }
        return [
            *([discarded] if ending.discarded else []),
            Announce("run_ended", fields),
            Publish(),
            events.Exit(ending),
        ]
