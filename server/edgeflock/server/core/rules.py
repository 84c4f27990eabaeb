"""The part of the configuration that decides rounds. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgeflock.server.core.testing import Tests


@dataclass(frozen=True)
class Rules:
    """What the machine goes by."""

    rounds: int
    clients: int  # seats
    cohort: int  # members of a round
    min_updates: int
    least: int = 0  # rounds ask all who are here, at least so many, at most a cohort; 0: always a cohort
    seed: int = 0
    over_select: int = 0
    deadline_s: float = 600.0
    grace_s: float = 60.0  # for who is not here, before a round goes on without it
    every_s: float = 0.0  # from the opening of a round to that of the next one, at least
    gather_s: float = 3600.0
    online: bool = False  # cohorts come from who is online, seats are given one by one
    script: tuple[tuple[str, ...], ...] = ()  # cohorts by id, one per round
    central: bool = False  # the one member is the server itself
    no_more_seats: str = ""  # why an operator cannot add any; empty: that can be done
    method: str = ""  # for people
    quarantine_after: int = 0  # bad updates in a row; 0: nobody is put into quarantine
    quarantine_rounds: int = 20
    closes: bool = False  # the method may ask everybody once more when training is over
    tests: Tests = field(default_factory=Tests)  # of committed models

    @property
    def everybody(self) -> bool:
        """Whether rounds ask all who have a seat."""
        return self.cohort >= self.clients and not self.least
