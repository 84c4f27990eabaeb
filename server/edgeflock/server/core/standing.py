"""Where a run stands: what the round machine remembers between events, and what others may ask. Pure."""

from __future__ import annotations

from edgeflock.server.core.conduct import Quarantine
from edgeflock.server.core.decisions import Conduct, Ended, RoundOpened
from edgeflock.server.core.effects import CommitRound
from edgeflock.server.core.events import Phase
from edgeflock.server.core.roster import Roster
from edgeflock.server.core.rules import Rules
from edgeflock.server.core.space import Space
from edgeflock.server.core.tally import Tally


class Standing:
    """The state of a run."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.phase = Phase.IDLE
        self.quarantine = Quarantine(rules)
        self.roster = Roster(rules, self.quarantine)
        self.current = Tally()  # of the last round opened
        self.round = 0  # the last one opened
        self.committed = 0  # Invariant: committed <= round <= committed + 1
        self.deadline: float | None = None
        self.hold = ""  # why no round goes on, beside the disk; empty if none
        self.space = Space()
        self.closing = ""  # why no further round is counted: the closing task is due, or done
        self.limit = ""  # the budget that is used up: no round follows the one at hand
        self.draining = False
        self.ending: Ended | None = None
        self._next: RoundOpened | None = None  # becomes durable with the running commit
        self._settled: CommitRound | None = None  # the running commit, or the last one
        self._pause_asked = False
        self._stop_asked = ""
        self._wake: float | None = None  # when the phase has lasted too long
        self._closed = False  # the closing round is the last one committed
        self._parked = False  # the process goes; nothing is decided any more

    @property
    def wake_at(self) -> float | None:
        """When the machine wants a `Ticked`."""
        times = (self._wake, self.space.retry_at)
        return min((time for time in times if time is not None), default=None)

    @property
    def pause(self) -> str:
        """Why no round goes on; empty if none."""
        return self.space.missing or self.hold

    @property
    def counted(self) -> int:
        """How many rounds of training are committed."""
        return self.committed - self._closed

    @property
    def spare(self) -> int:
        """How many members the open round may still get; -1 where the server is its one member."""
        if self.rules.central:
            return -1
        extended = self.closing or self.current.extended
        most = 0 if extended else self.rules.min_updates
        return min(most, self.rules.clients - len(self.current.cohort))

    def quarantined(self, seat: int) -> Conduct | None:
        """Return why a client takes no part in the round at hand, or the next; None if it may."""
        kept = self.quarantine.keeps(seat, self.committed + 1)
        return self.quarantine.told(seat) if kept else None

    def has_task(self, seat: int) -> bool:
        """Whether that client should be working on the open round."""
        return self.phase is Phase.OPEN and self.current.waits_for(seat)
