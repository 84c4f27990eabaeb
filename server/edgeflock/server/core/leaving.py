"""How a run is left: it ends, is parked or breaks; what becomes of the round at hand. Pure."""

from __future__ import annotations

from edgeflock.server.core import effects
from edgeflock.server.core.conduct import WORDS as OF_QUARANTINE
from edgeflock.server.core.decisions import Conduct, Ended, EndingKind, Outcome, Record, Released, RoundClosed
from edgeflock.server.core.effects import Announce, Effect, Persist, Publish
from edgeflock.server.core.events import Phase
from edgeflock.server.core.standing import Standing

WORDS = ("round_cut", "round_discarded", "run_ended", *OF_QUARANTINE)


class Leaving(Standing):
    """The last decisions of a process or a run."""

    def _reach(self, reason: str) -> list[Effect]:
        """The last committed model is the final one; the round after it counts no more (DESIGN rule 11)."""
        at_hand = self.round > self.committed
        return self._end(EndingKind.COMPLETED, reason, self.current.discarded() if at_hand else ())

    def words(self, record: Record) -> list[Announce]:
        """Return what is said of a decision that cuts a round or a run short; the journal takes both at once,
        so that no crash comes between them."""
        told: dict[str, dict[str, object]] = {}
        if isinstance(record, Conduct):
            return self.quarantine.words(record, self.roster.names)
        if isinstance(record, Released):
            why = "an operator trusts it again"
            told["client_released"] = {"client": self.roster.names[record.seat], "reason": why}
        if isinstance(record, RoundClosed) and record.limit:
            counted = [self.roster.names[seat] for seat in record.counted]
            told["round_cut"] = {"round": record.round, "counted": counted, "reason": record.limit}
        if isinstance(record, Ended) and record.discarded:
            told["round_discarded"] = {"round": record.round, "reason": record.reason}
        if isinstance(record, Ended):
            told["run_ended"] = {"kind": str(record.kind), "reason": record.reason, "round": self.counted}
        return [Announce(name, fields) for name, fields in told.items()]

    def _discarded(self) -> tuple[Outcome, ...]:
        if self.phase not in (Phase.OPENING, Phase.OPEN):
            return ()
        return self.current.discarded()

    def _park(self) -> list[Effect]:
        """Go away with the round as it is; the journal and the spool hold it."""
        self.draining = self._parked = True
        return [Announce("run_parked", {"round": self.round}), Publish(), effects.Exit(None)]

    def _break(self, reason: str) -> list[Effect]:
        """Go away like that with a reason. It is no end of the run: clients keep what they have, and wait."""
        self.draining = self._parked = True
        broken = Announce("run_broken", {"round": self.round, "reason": reason})
        return [broken, Publish(), effects.Exit(Ended(EndingKind.FAILED, reason, self.round))]

    def _end(self, kind: EndingKind, reason: str, outcomes: tuple[Outcome, ...] = ()) -> list[Effect]:
        self.phase, self._wake = Phase.ENDING, None
        self.space.forget()
        return [Persist((Ended(kind, reason, self.round, outcomes),))]

    def _leave(self, ending: Ended) -> list[Effect]:
        self.phase, self.ending = Phase.ENDED, ending
        self._wake = None
        self.space.forget()
        return [*self.words(ending), Publish(), effects.Exit(ending)]
