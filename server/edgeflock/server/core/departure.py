"""How a run is left: it ends for good, or only its process goes, parked or broken."""

from __future__ import annotations

from dataclasses import replace

from edgeflock.server.core.decisions import Ended, EndingKind, Outcome
from edgeflock.server.core.effects import Announce, Effect, Exit, Persist, Publish
from edgeflock.server.core.phases import Phase, Position
from edgeflock.server.core.space import Space


class Departure:
    """The last decisions of a run, and of a process."""

    def __init__(self, position: Position, space: Space) -> None:
        self._position, self._space = position, space
        self.draining = False  # the process goes as soon as no counted set is on its way to the commit
        self.gone = False  # nothing is decided any more in this process
        self.decided: Ended | None = None  # Invariant: set from ending on
        self.ending: Ended | None = None  # Invariant: set if and only if the phase is ended

    def end(self, kind: EndingKind, reason: str, round: int, outcomes: tuple[Outcome, ...]) -> None:
        """Decide that the run is over; a round at hand ends with these outcomes."""
        self._position.become(Phase.ENDING)
        self._space.forget()
        self.decided = Ended(kind, reason, round, outcomes)

    def reach(self, reason: str) -> None:
        """The last committed round has reached the target, as is known only now: so the run has ended there,
        whatever else was found; but for an operator, who need not wait for that."""
        assert self.decided is not None
        if self.decided.kind is not EndingKind.STOPPED:
            self.decided = replace(self.decided, kind=EndingKind.COMPLETED, reason=reason)

    def write(self) -> list[Effect]:
        """Make the end durable."""
        assert self.decided is not None
        return [Persist((self.decided,))]

    def leave(self, ending: Ended) -> list[Effect]:
        """The end is durable."""
        self._position.become(Phase.ENDED)
        self.ending, self.gone = ending, True
        return [Publish(), Exit(ending)]

    def park(self, round: int) -> list[Effect]:
        """Go away with the round as it is; the journal and the spool hold it."""
        return self._go(Announce("run_parked", {"round": round}), None)

    def give_up(self, reason: str, round: int) -> list[Effect]:
        """Go away like that with a reason. It is no end of the run: clients keep what they have, and wait."""
        broken = Announce("run_broken", {"round": round, "reason": reason})
        return self._go(broken, Ended(EndingKind.FAILED, reason, round))

    def _go(self, said: Announce, ending: Ended | None) -> list[Effect]:
        self.draining = self.gone = True
        return [said, Publish(), Exit(ending)]
