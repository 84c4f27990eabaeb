"""The tally of a round: who owes an update, who has delivered, what counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edgeflock.server.core.decisions import Outcome, Verdict

_DIVERGED = "; what is not finite comes of training that diverges: try a smaller --lr"


@dataclass
class Tally:
    """One round from its opening to its commit."""

    cohort: tuple[int, ...] = ()  # ascending
    size: int = 0  # updates for which the round waits; over-selected members are not among them
    least: int = 1  # updates with which it may close at its deadline
    received: dict[int, bytes] = field(default_factory=dict)  # seat -> digest; a subset of cohort
    refused: set[int] = field(default_factory=set)
    barred: set[int] = field(default_factory=set)  # in quarantine, and nothing of theirs is here
    extended: bool = False
    short: bool = False  # extended, and still too few: closes as soon as there are enough
    closed: tuple[int, ...] | None = None  # the counted set, once decided
    durable: bool = False  # the journal holds that decision
    rejected: Mapping[int, Verdict] | None = None  # by the fold; None until it is done

    def waits_for(self, seat: int) -> bool:
        answered = seat in self.received or seat in self.refused or seat in self.barred
        return seat in self.cohort and not answered

    @property
    def excused(self) -> set[int]:
        """Who will not deliver."""
        return self.refused | self.barred

    @property
    def enough(self) -> bool:
        """Whether the round may close."""
        return len(self.received) >= self.least

    @property
    def full(self) -> bool:
        """Whether there is nothing left to wait for."""
        wanted = min(self.size, len(self.cohort) - len(self.excused))
        return self.enough and (self.short or len(self.received) >= wanted)

    @property
    def answered(self) -> bool:
        """Whether everybody has delivered or refused."""
        return len(self.received) + len(self.excused) == len(self.cohort)

    @property
    def decided(self) -> bool:
        """Whether the outcome of every member is known for good."""
        return self.rejected is not None and self.durable

    def everything(self) -> tuple[int, ...]:
        return tuple(sorted(self.received))

    def add(self, members: tuple[int, ...]) -> None:
        self.cohort = tuple(sorted({*self.cohort, *members}))

    def missing(self) -> list[int]:
        return [seat for seat in self.cohort if seat not in self.received]

    def shortage(self, names: Mapping[int, str]) -> str:
        """Return what the round lacks at its deadline, for people."""
        missing = ", ".join(names[seat] for seat in self.missing())
        return f"{len(self.received)} of at least {self.least} updates; missing: {missing}"

    def poisoned(self, counted: int, names: Mapping[int, str]) -> str:
        """Return why too few updates are good, for people."""
        rejected = self.rejected or {}
        refused = ", ".join(f"{names[seat]} ({verdict})" for seat, verdict in rejected.items())
        hint = _DIVERGED if set(rejected.values()) == {Verdict.NON_FINITE} else ""
        return f"{counted} good updates are fewer than the {self.least} needed; refused: {refused}{hint}"

    def outcomes(self) -> tuple[Outcome, ...]:
        """Return the final word on every member, once decided."""
        return tuple(self._outcome(seat) for seat in self.cohort)

    def failed(self) -> tuple[Outcome, ...]:
        """Return the outcomes when nothing is committed: what is good is discarded."""
        return tuple(
            replace(outcome, verdict=Verdict.DISCARDED) if outcome.verdict is Verdict.COUNTED else outcome
            for outcome in self.outcomes()
        )

    def discarded(self) -> tuple[Outcome, ...]:
        """Return the outcomes when the run ends in the midst of the round."""
        return tuple(Outcome(i, self.received.get(i, b""), Verdict.DISCARDED) for i in self.cohort)

    def _outcome(self, seat: int) -> Outcome:
        digest = self.received.get(seat, b"")
        if self.rejected and seat in self.rejected:
            return Outcome(seat, digest, self.rejected[seat])
        if seat in self.refused:
            return Outcome(seat, digest, Verdict.REFUSED_BY_CLIENT)
        if seat in self.barred:
            return Outcome(seat, digest, Verdict.QUARANTINED)
        counted = seat in (self.closed or ())
        return Outcome(seat, digest, Verdict.COUNTED if counted else Verdict.LATE)
