"""One round, from its opening to its commit: who owes an update, when it closes, and what counts.

It closes when as many have delivered as it waits for: for who is not here it waits no longer than the grace.
At its deadline it closes with whatever came, if that is enough; else it gets more time and more members,
once; then it waits until enough came, or an operator says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from edgeflock.common.command.crowd import each_with, everybody
from edgeflock.common.verdict import Verdict
from edgeflock.server.core import announcements
from edgeflock.server.core.conduct import ConductBook
from edgeflock.server.core.decisions import Outcome, RoundClosed, RoundExtended, RoundOpened
from edgeflock.server.core.effects import Announce, CommitRound, Effect, FoldRound, Persist, Publish
from edgeflock.server.core.events import TaskRefused, UpdateReceived
from edgeflock.server.core.phases import Phase, Position
from edgeflock.server.core.roster import Roster
from edgeflock.server.core.rules import Rules

_DIVERGED = "; what is not finite comes of training that diverges: try a smaller --lr"


class RoundMachine:
    """The round at hand, stepped by the machine of its run."""

    def __init__(
        self, opened: RoundOpened, rules: Rules, roster: Roster, conduct: ConductBook, position: Position
    ) -> None:
        self._rules, self._roster, self._conduct, self._position = rules, roster, conduct, position
        self.number = opened.round
        self.last = opened.last  # why training is over; empty in a round of training
        self.cohort = opened.cohort  # Invariant: ascending, each seat once
        self._members = frozenset(opened.cohort)  # the same
        everybody = rules.script or opened.last or rules.everybody
        self.size = len(self.cohort) if everybody else min(rules.cohort, len(self.cohort))  # to wait for
        self.least = 0 if opened.last else rules.min_updates  # updates with which it may close
        # Invariant: received, refused and barred are members; who is in received is in neither of the others;
        # owing are all other members.
        self.received: dict[int, bytes] = {}  # digests by seat
        self.refused: set[int] = set()
        self.barred: set[int] = set()  # in quarantine or dismissed, and nothing of theirs is here
        self.dismissed: set[int] = set()  # seats whose clients were dropped or replaced meanwhile
        self._owing = set(opened.cohort)
        # Invariant: while the round is open, it has a deadline or a shortage, and never both.
        self.deadline: float | None = None
        self.shortage = ""  # extended, and still too few: what is missing
        self.extended = False
        # Invariant: from folding on, counted is a part of received and stays what it is.
        self.counted: tuple[int, ...] | None = None  # the counted set, once decided
        self.durable = False  # the journal holds that decision
        self.rejected: Mapping[int, Verdict] | None = None  # by the fold; None until it is done

    # --------------------------------------------------------------------------------- opening

    def resume(self, added: tuple[int, ...] | None, counted: tuple[int, ...] | None) -> None:
        """Go on as the journal knows it: extended by these, closed with those."""
        self.extended, self.counted = added is not None, counted
        self._add(added or ())

    def take(self, received: Iterable[tuple[int, bytes]]) -> None:
        """The spool is there, with these updates of a life before; a counted set that is torn is void."""
        self.received = {seat: digest for seat, digest in received if seat in self._members}
        if not set(self.counted or ()) <= set(self.received):
            self.counted = None
        self._take_out()
        self._bar_held()

    def open(self, now: float) -> list[Effect]:
        """Let the members work."""
        self._position.become(Phase.OPEN)
        self.deadline = now + self._rules.deadline_s
        name = "last_round_opened" if self.last else "round_opened"
        concerned = (*self.cohort, *self._conduct.released_after(self.number - 1))
        opened = Announce(name, {"round": self.number, "cohort": self._names(self.cohort)})
        return [opened, Publish(concerned), *(self._close() if self.answered else [])]

    # --------------------------------------------------------------------------------- open

    def waits_for(self, seat: int) -> bool:
        """Whether that client should be working."""
        return self._position.phase is Phase.OPEN and seat in self._owing

    def receive(self, event: UpdateReceived) -> list[Effect]:
        """Take the update of a member who owes one."""
        if event.round != self.number or not self.waits_for(event.seat):
            return []
        self.received[event.seat] = event.digest
        self._owing.discard(event.seat)
        return self._answered(event.now)

    def refuse(self, event: TaskRefused) -> list[Effect]:
        """Wait no more for a member who will not deliver, and let it see so."""
        if event.round != self.number or not self.waits_for(event.seat):
            return []
        self.refused.add(event.seat)
        self._owing.discard(event.seat)
        return [Publish((event.seat,)), *self._answered(event.now)]

    def offer_again(self, seats: Collection[int]) -> list[Effect]:
        """Wait once more for members who have refused: they came back, or an operator says so."""
        again = self.refused & set(seats)
        if self._position.phase is not Phase.OPEN or not again:
            return []
        self.refused -= again
        self._owing |= again
        return [Publish(tuple(sorted(again)))]

    def bar(self, seat: int, now: float) -> list[Effect]:
        """Wait no more for a client who is in quarantine from now on."""
        if not self.waits_for(seat):
            return []
        self.barred.add(seat)
        self._owing.discard(seat)
        return self._answered(now)

    def dismiss(self, seat: int, now: float) -> list[Effect]:
        """Wait no more for a client that an operator takes out; its update counts if it is here."""
        if not self.waits_for(seat) and seat not in self.refused:
            return []
        self._dismiss({seat})
        return self._answered(now)

    def admit(self, seat: int) -> None:
        """A seat has a client again, who may answer for it."""
        if self._position.phase is Phase.OPEN and seat in self.dismissed:
            self.dismissed.discard(seat)
            self._bar_held()

    def _dismiss(self, seats: set[int]) -> None:
        self.dismissed |= seats
        self.barred |= seats
        self.refused -= seats
        self._owing -= seats

    def can_spare(self, seat: int) -> bool:
        """Whether enough can come without that member, as far as that is known."""
        if seat not in self._members or seat in self.received or self._position.phase is not Phase.OPEN:
            return True
        others = self._members - self.refused - self.barred - {seat}
        more = 0 if self.extended else len(self._roster.able(self.number) - self._members)
        return len(others) + more >= self.least

    def _answered(self, now: float) -> list[Effect]:
        """Close if nothing is left to wait for; with nobody left to answer it is as at the deadline."""
        if self.answered:
            return self._close()
        return self._overdue(now) if not self._owing else []

    def tick(self, now: float) -> list[Effect]:
        """The deadline has come, or the grace of the last one who is not here is over."""
        if self.deadline is not None and now >= self.deadline:
            return self._overdue(now)
        return self._close() if self.answered else []

    def _overdue(self, now: float) -> list[Effect]:
        if self.enough:
            return self._close()
        return self._wait() if self.extended else self._extend(now)

    def _close(self) -> list[Effect]:
        """Close, and say whom it does not wait for."""
        gone = self._roster.miss(self.missing())
        closed = self.close()
        return [*closed, *self._told_of(gone)]

    def _told_of(self, gone: list[str]) -> list[Effect]:
        if not gone:
            return []
        fields = {"round": self.number, "clients": gone, "grace_s": self._rules.grace_s}
        return [Announce("clients_missed", fields)]

    def _extend(self, now: float) -> list[Effect]:
        wanted = self._rules.min_updates - len(self.received)
        added = self._roster.spare(self.number, self.cohort, wanted)
        if not added and not self._owing:  # more time would bring nothing
            return self._wait()
        self.extended = True
        self.deadline = now + self._rules.deadline_s
        return [Persist((RoundExtended(self.number, added),))]

    def join(self, extended: RoundExtended) -> list[Effect]:
        """The journal holds by whom the round is extended; it may have closed meanwhile, without them."""
        if extended.round != self.number or self._position.phase is not Phase.OPEN:
            return []
        self._add(extended.added)
        self._bar_held()
        fields = {"round": self.number, "added": self._names(extended.added)}
        return [Announce("round_extended", fields), Publish(extended.added)]

    def _wait(self) -> list[Effect]:
        missing = everybody(self._names(self.missing()))
        came = f"{len(self.received)} of at least {self.least} updates"
        self.deadline, self.shortage = None, f"round {self.number} has {came}; missing: {missing}"
        return [Announce("run_paused", {"round": self.number, "reason": self.shortage}), Publish()]

    def give_time(self, now: float) -> None:
        """An operator lets a short round go on."""
        self.deadline, self.shortage = now + self._rules.deadline_s, ""

    def close(self, limit: str = "") -> list[Effect]:
        """Fold what was decided before, or else what is there; `limit` cuts the round short."""
        self._position.become(Phase.FOLDING)
        self.deadline, self.shortage = None, ""
        if self.counted is None:
            self.counted = tuple(sorted(self.received))
        closed = RoundClosed(self.number, self.counted, limit)
        return [Persist((closed,)), FoldRound(self.number, self.counted)]

    @property
    def enough(self) -> bool:
        """Whether the round may close."""
        return len(self.received) >= self.least

    @property
    def answered(self) -> bool:
        """Whether there is nothing left to wait for."""
        if not self.enough:
            return False
        if self.shortage or len(self.received) >= self.size or not self._owing:
            return True
        ends = self._grace_ends
        return ends is not None and ends <= self._roster.now

    @property
    def wake_at(self) -> float | None:
        """When the round wants a `tick`."""
        times = (self.deadline, self._grace_ends)
        return min((time for time in times if time is not None), default=None)

    @property
    def _grace_ends(self) -> float | None:
        """When to look again whether anybody is waited for, if all who are here have answered and they are
        enough: nobody is once that is over."""
        left = self._roster.left
        if not self.received or not self.enough or not 0 < len(self._owing) <= len(left):
            return None
        first = self._roster.grace_ends(next(iter(left)))  # who left first; later ones are not looked at
        if first > self._roster.now and not self._owing.isdisjoint(left):
            return first
        if not self._owing <= left.keys():
            return None
        return max(map(self._roster.grace_ends, self._owing))

    @property
    def spare(self) -> int:
        """How many members may still join; -1 where the server is the one member."""
        if self._rules.central:
            return -1
        most = 0 if self.last or self.extended else self._rules.min_updates
        return min(most, self._roster.seats - len(self.cohort))

    def missing(self) -> list[int]:
        """Return who has not delivered."""
        return [seat for seat in self.cohort if seat not in self.received]

    def _add(self, members: tuple[int, ...]) -> None:
        self._members |= frozenset(members)
        self.cohort = tuple(sorted(self._members))
        self._owing |= set(members) - self.received.keys()

    def _take_out(self) -> None:
        """Nobody has these seats: what came from them counts as it did when their clients were dropped."""
        vacant = self._roster.without_client()
        kept = {seat for seat, one in vacant.items() if one.kept and one.round == self.number}
        gone = (vacant.keys() - kept) & self._members - set(self.counted or ())
        self.received = {seat: digest for seat, digest in self.received.items() if seat not in gone}
        self._dismiss(gone | (vacant.keys() & self._members - self.received.keys()))

    def _bar_held(self) -> None:
        held = self._conduct.held(self.number) & self._members
        self.barred = (held - set(self.received)) | self.dismissed
        self._owing = set(self._members) - self.received.keys() - self.refused - self.barred

    def _names(self, seats: Iterable[int]) -> list[str]:
        return [self._roster.names[seat] for seat in seats]

    # --------------------------------------------------------------------------------- closed

    @property
    def decided(self) -> bool:
        """Whether the outcome of every member is known for good: the counted set is folded, and durable."""
        return self.rejected is not None and self.durable

    def fault(self, outcomes: tuple[Outcome, ...]) -> str:
        """Return why too few updates are good, for people; empty if there are enough."""
        good = sum(outcome.verdict is Verdict.COUNTED for outcome in outcomes)
        if good >= self.least:
            return ""
        rejected = self.rejected or {}
        refused = each_with({self._roster.names[seat]: verdict for seat, verdict in rejected.items()})
        hint = _DIVERGED if set(rejected.values()) == {Verdict.NON_FINITE} else ""
        of = f" of {self._rules.method}" if self._rules.method else ""
        few = f"{good} good updates are fewer than the {self.least} needed"
        return f"round {self.number}{of}: {few}; refused: {refused}{hint}"

    def commit(self, outcomes: tuple[Outcome, ...]) -> CommitRound:
        """Draw the conclusions from these: what becomes durable with the round, but for what follows it."""
        conduct = self._conduct.settle(self.number, outcomes)
        released = self._conduct.released_after(self.number)
        said = announcements.of_commit(conduct, released, self.number, self._roster.names)
        return CommitRound(self.number, outcomes, None, conduct, said)

    def outcomes(self) -> tuple[Outcome, ...]:
        """Return the final word on every member, once decided."""
        counted = frozenset(self.counted or ())
        return tuple(self._outcome(seat, counted) for seat in self.cohort)

    def failed(self) -> tuple[Outcome, ...]:
        """Return the outcomes when nothing is committed: what is good is discarded."""
        return tuple(
            replace(outcome, verdict=Verdict.DISCARDED) if outcome.verdict is Verdict.COUNTED else outcome
            for outcome in self.outcomes()
        )

    def discarded(self) -> tuple[Outcome, ...]:
        """Return the outcomes when the run ends in the midst of the round."""
        return tuple(Outcome(seat, self.received.get(seat, b""), Verdict.DISCARDED) for seat in self.cohort)

    def _outcome(self, seat: int, counted: frozenset[int]) -> Outcome:
        digest = self.received.get(seat, b"")
        if self.rejected and seat in self.rejected:
            return Outcome(seat, digest, self.rejected[seat])
        if seat in self.refused:
            return Outcome(seat, digest, Verdict.REFUSED_BY_CLIENT)
        if seat in self.barred:
            verdict = Verdict.DISCARDED if seat in self.dismissed else Verdict.QUARANTINED
            return Outcome(seat, digest, verdict)
        return Outcome(seat, digest, Verdict.COUNTED if seat in counted else Verdict.LATE)
