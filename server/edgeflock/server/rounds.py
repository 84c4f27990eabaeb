"""The round machine: what happens in a run, decided without sockets, disks, clocks or tensors.

    gathering -> opening(r) -> open(r) -> folding(r) -> committing(r) -> committed(r) -> opening(r + 1)
    ... -> ending -> ended

One event goes in, a list of effects comes out; time is a field of the event. An outward message that reveals
a decision is an effect of `Persisted` or `Committed`, never of the decision itself (DESIGN rule 17).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from edgeflock.server.cohort import extension, natural_order, select
from edgeflock.server.events import (
    Announce,
    Broken,
    CommitRound,
    Committed,
    DrainAsked,
    Effect,
    Ended,
    EndingKind,
    Event,
    Exit,
    Folded,
    FoldRound,
    Offline,
    Online,
    Outcome,
    PauseAsked,
    Persist,
    Persisted,
    Phase,
    PrepareRound,
    Publish,
    Ready,
    Record,
    ResumeAsked,
    RoundClosed,
    RoundExtended,
    RoundOpened,
    RoundPrepared,
    Seated,
    SpaceMissing,
    Started,
    StopAsked,
    TaskRefused,
    Ticked,
    UpdateReceived,
    Verdict,
)

_LAST_EVENTS = (Persisted, SpaceMissing, Broken, Ticked)  # what still matters once the end is decided
RETRY_S = 2.0  # between two tries of an effect that found the disk full


@dataclass(frozen=True)
class Rules:
    """The part of the configuration that decides rounds."""

    rounds: int
    clients: int  # seats
    cohort: int  # members of a round
    min_updates: int
    seed: int = 0
    over_select: int = 0
    deadline_s: float = 600.0
    gather_s: float = 3600.0
    online: bool = False  # cohorts come from who is online, seats are given one by one
    script: tuple[tuple[str, ...], ...] = ()  # cohorts by id, one per round


class RoundMachine:
    """The state of a run; changed by `handle` alone."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.phase = Phase.IDLE
        self.seats: dict[int, str] = {}  # roster index -> client id
        self.index_of: dict[str, int] = {}  # Invariant: the inverse of seats
        self.seating: dict[str, int] = {}  # ids whose seats are on the way to the journal
        self.online: set[str] = set()
        self.ready: set[int] = set()
        self.round = 0  # the last one opened
        self.committed = 0  # Invariant: committed <= round <= committed + 1
        self.cohort: tuple[int, ...] = ()  # of the open round, ascending
        self.received: dict[int, bytes] = {}  # index -> digest; Invariant: a subset of cohort
        self.refused: set[int] = set()
        self.closed: tuple[int, ...] | None = None  # the counted set, once decided
        self.extended = False
        self.short = False  # extended, and still too few: closes as soon as there are enough
        self.deadline: float | None = None
        self.hold = ""  # why no round goes on, beside the disk; empty if none
        self.space_missing = ""  # what the disk says while effects wait for space
        self.draining = False
        self.ending: Ended | None = None
        self._close_durable = False
        self._rejected: Mapping[int, Verdict] | None = None  # by the fold; None until it is done
        self._next: RoundOpened | None = None  # becomes durable with the running commit
        self._pause_asked = False
        self._stop_asked = ""
        self._starved: list[Effect] = []  # found the disk full, tried again at _retry_at
        self._retry_at: float | None = None
        self._wake: float | None = None  # when the phase has lasted too long
        self._parked = False  # the process goes; nothing is decided any more

    # ------------------------------------------------------------------ questions of the shell

    @property
    def wake_at(self) -> float | None:
        """When the machine wants a `Ticked`."""
        return min((time for time in (self._wake, self._retry_at) if time is not None), default=None)

    @property
    def pause(self) -> str:
        """Why no round goes on; empty if none."""
        return self.space_missing or self.hold

    def has_task(self, index: int) -> bool:
        """Whether that client should be working on the open round."""
        waiting = index in self.cohort and index not in self.received and index not in self.refused
        return self.phase is Phase.OPEN and waiting

    def has_room_for(self, client_id: str) -> bool:
        """Whether the id has a seat or can still get one."""
        known = client_id in self.index_of or client_id in self.seating
        return known or len(self.seats) + len(self.seating) < self.rules.clients

    # ------------------------------------------------------------------------------- the events

    def handle(self, event: Event) -> list[Effect]:
        """Apply one event and return what the shell must now do; never raises for a peer's mistake."""
        if self._parked or self.phase is Phase.ENDED:
            return []
        if self.phase is Phase.ENDING and not isinstance(event, _LAST_EVENTS):
            return []
        match event:
            case Started():
                return self._start(event)
            case Online(client_id=client_id):
                self.online.add(client_id)
                return self._seat(client_id) + self._proceed(event.now)
            case Offline(client_id=client_id):
                self.online.discard(client_id)
                return []
            case Ready(index=index):
                self.ready.add(index)
                return self._proceed(event.now)
            case UpdateReceived():
                return self._receive(event)
            case TaskRefused():
                return self._refuse(event)
            case Ticked(now=now):
                return self._tick(now)
            case Persisted():
                return self._cleared() + self._persisted(event.record, event.now)
            case RoundPrepared():
                return self._cleared() + self._prepared(event)
            case Folded() if event.round == self.round and self.phase is Phase.FOLDING:
                self._rejected = event.rejected
                return self._commit_if_decided()
            case Folded():
                return []
            case Committed():
                return self._cleared() + self._committed(event)
            case SpaceMissing():
                return self._wait_for_space(event)
            case Broken(reason=reason):
                return self._leave(Ended(EndingKind.FAILED, reason, self.round))
            case PauseAsked():
                return self._pause_on_request()
            case ResumeAsked():
                return self._resume(event.now)
            case StopAsked(reason=reason):
                return self._stop(reason)
            case DrainAsked():
                return self._drain()
        assert_never(event)

    # ---------------------------------------------------------------------------- start and seats

    def _start(self, event: Started) -> list[Effect]:
        self._take_seats(event.seats)
        self.committed = self.round = event.committed
        if event.committed >= self.rules.rounds:  # the process went before it could say so
            return self._end(EndingKind.COMPLETED, self._all_done())
        if event.seats and (fault := self._script_fault()):
            return self._end(EndingKind.FAILED, fault)
        if event.open is None:
            self.phase = Phase.COMMITTED if event.committed else Phase.GATHERING
            self._wake = None if event.committed else event.now + self.rules.gather_s
            return self._proceed(event.now)
        opened = event.open
        self._begin(RoundOpened(opened.round, opened.cohort))
        self.extended = opened.extended
        self.closed = opened.closed
        return [PrepareRound(opened.round, opened.cohort)]

    def _seat(self, client_id: str) -> list[Effect]:
        if client_id in self.index_of or client_id in self.seating:
            return []
        if self.rules.online:
            return self._seat_one(client_id)
        if self.seats or self.seating or len(self.online) < self.rules.clients:
            return []
        seats = tuple(enumerate(natural_order(self.online)))
        self.seating = {name: index for index, name in seats}
        return [Persist((Seated(seats),))]

    def _seat_one(self, client_id: str) -> list[Effect]:
        taken = {*self.seats, *self.seating.values()}  # not without gaps, if one was lost in a crash
        index = next((index for index in range(self.rules.clients) if index not in taken), None)
        if index is None:
            return []
        self.seating[client_id] = index
        return [Persist((Seated(((index, client_id),)),))]

    def _take_seats(self, seats: tuple[tuple[int, str], ...]) -> None:
        for index, client_id in seats:
            self.seats[index] = client_id
            self.index_of[client_id] = index
            self.seating.pop(client_id, None)

    def _script_fault(self) -> str:
        """Return why the script's cohorts cannot be chosen, empty if they can."""
        script = self.rules.script
        if script and len(script) < self.rules.rounds:
            return f"--cohort-script has {len(script)} lines, the run has {self.rules.rounds} rounds"
        unknown = next((name for ids in script for name in ids if name not in self.index_of), "")
        seated = ", ".join(self.index_of)
        return f"--cohort-script names {unknown!r}, who has no seat; seated are {seated}" if unknown else ""

    # ------------------------------------------------------------------------------- opening

    def _proceed(self, now: float) -> list[Effect]:
        """Open the next round if nothing stands in the way."""
        waiting = self.phase in (Phase.GATHERING, Phase.COMMITTED) and not self.draining
        if not waiting or self._pause_asked or self.committed >= self.rules.rounds or not self._complete():
            return []
        self.hold, self.cohort = "", ()
        self.phase = Phase.OPENING
        return [Persist((self._choose(self.committed + 1),))]

    def _complete(self) -> bool:
        """Whether those are there who are needed to open a round."""
        if self.rules.online:
            return len(self._candidates()) >= min(self.rules.cohort, self.rules.clients)
        return bool(self.seats) and (self.committed > 0 or len(self.ready) == self.rules.clients)

    def _candidates(self) -> set[int]:
        if not self.rules.online:
            return set(self.seats)
        return {index for index, client_id in self.seats.items() if client_id in self.online} & self.ready

    def _choose(self, round: int) -> RoundOpened:
        if self.rules.script:
            ids = self.rules.script[round - 1]
            return RoundOpened(round, tuple(sorted(self.index_of[name] for name in ids)))
        size = self.rules.cohort + self.rules.over_select
        return RoundOpened(round, select(self.rules.seed, round, self._candidates(), size))

    def _begin(self, opened: RoundOpened) -> None:
        self.phase = Phase.OPENING
        self.round, self.cohort = opened.round, opened.cohort
        self.received, self.refused = {}, set()
        self.closed, self._rejected, self._close_durable = None, None, False
        self.extended = self.short = False
        self.deadline = self._wake = None

    def _prepared(self, event: RoundPrepared) -> list[Effect]:
        if self.phase is not Phase.OPENING:
            return []
        self.received = {index: digest for index, digest in event.received if index in self.cohort}
        if self.closed is not None and set(self.closed) <= set(self.received):
            return self._close(self.closed)
        self.closed = None
        self.phase = Phase.OPEN
        self.deadline = self._wake = event.now + self.rules.deadline_s
        names = [self.seats[index] for index in self.cohort]
        opened = Announce("round_opened", {"round": self.round, "cohort": names})
        return [opened, Publish(), *self._close_if_complete()]

    # ------------------------------------------------------------------------------- the open round

    def _receive(self, event: UpdateReceived) -> list[Effect]:
        if self.phase is not Phase.OPEN or event.round != self.round or event.index not in self.cohort:
            return []
        self.received[event.index] = event.digest
        return self._close_if_complete() or self._overdue_if_all_answered(event.now)

    def _refuse(self, event: TaskRefused) -> list[Effect]:
        if event.round != self.round or not self.has_task(event.index):
            return []
        self.refused.add(event.index)
        return self._close_if_complete() or self._overdue_if_all_answered(event.now)

    def _close_if_complete(self) -> list[Effect]:
        enough = len(self.received) >= self.rules.min_updates
        wanted = min(self._size(), len(self.cohort) - len(self.refused))
        if enough and (self.short or len(self.received) >= wanted):
            return self._close(tuple(sorted(self.received)))
        return []

    def _size(self) -> int:
        """Updates for which the round waits; over-selected members are not among them."""
        return len(self.cohort) if self.rules.script else min(self.rules.cohort, len(self.cohort))

    def _overdue_if_all_answered(self, now: float) -> list[Effect]:
        answered = len(self.received) + len(self.refused) == len(self.cohort)
        return self._overdue(now) if answered else []

    def _tick(self, now: float) -> list[Effect]:
        effects = self._try_again(now)
        if self._wake is None or now < self._wake:
            return effects
        self._wake = None
        if self.phase is Phase.GATHERING and not self._complete():
            return effects + self._give_up_gathering()
        return effects + (self._overdue(now) if self.phase is Phase.OPEN else [])

    def _overdue(self, now: float) -> list[Effect]:
        if len(self.received) >= self.rules.min_updates:
            return self._close(tuple(sorted(self.received)))
        if not self.extended:
            return self._extend(now)
        self.short = True
        self.deadline = self._wake = None
        self.hold = self._shortage()
        return [Announce("run_paused", {"round": self.round, "reason": self.pause}), Publish()]

    def _shortage(self) -> str:
        missing = [self.seats[index] for index in self.cohort if index not in self.received]
        got, wanted = len(self.received), self.rules.min_updates
        return f"round {self.round} has {got} of at least {wanted} updates; missing: {', '.join(missing)}"

    def _extend(self, now: float) -> list[Effect]:
        self.extended = True
        spare = self._candidates() - set(self.cohort)
        wanted = 0 if self.rules.script else self.rules.min_updates - len(self.received)
        added = extension(self.rules.seed, self.round, spare, wanted)
        self.deadline = self._wake = now + self.rules.deadline_s
        return [Persist((RoundExtended(self.round, added),))]

    def _extended(self, record: RoundExtended) -> list[Effect]:
        if self.phase is not Phase.OPEN or record.round != self.round:
            return []
        self.cohort = tuple(sorted({*self.cohort, *record.added}))
        names = [self.seats[index] for index in record.added]
        return [Announce("round_extended", {"round": self.round, "added": names}), Publish()]

    def _give_up_gathering(self) -> list[Effect]:
        here = len(self.ready) if self.seats else len(self.online)
        missing = [name for index, name in self.seats.items() if index not in self.ready]
        names = f"; not ready: {', '.join(missing)}" if missing else ""
        reason = f"{here} of {self.rules.clients} clients came within {self.rules.gather_s:g} s{names}"
        return self._end(EndingKind.FAILED, reason)

    # ------------------------------------------------------------------------- closing, committing

    def _close(self, counted: tuple[int, ...]) -> list[Effect]:
        self.phase = Phase.FOLDING
        self.closed, self.hold = counted, ""
        self.deadline = self._wake = None
        return [Persist((RoundClosed(self.round, counted),)), FoldRound(self.round, counted)]

    def _commit_if_decided(self) -> list[Effect]:
        if self.phase is not Phase.FOLDING or self._rejected is None or not self._close_durable:
            return []
        outcomes = tuple(self._outcome(index) for index in self.cohort)
        counted = sum(outcome.verdict is Verdict.COUNTED for outcome in outcomes)
        if counted < self.rules.min_updates:  # nothing is committed, hence nothing counts
            return self._end(EndingKind.FAILED, self._poisoned(counted), tuple(map(_discard, outcomes)))
        self.phase = Phase.COMMITTING
        self._next = self._following()
        return [CommitRound(self.round, outcomes, self._next)]

    def _outcome(self, index: int) -> Outcome:
        digest = self.received.get(index, b"")
        if self._rejected and index in self._rejected:
            return Outcome(index, digest, self._rejected[index])
        if index in self.refused:
            return Outcome(index, digest, Verdict.REFUSED_BY_CLIENT)
        counted = index in (self.closed or ())
        return Outcome(index, digest, Verdict.COUNTED if counted else Verdict.LATE)

    def _poisoned(self, counted: int) -> str:
        rejected = self._rejected or {}
        names = ", ".join(f"{self.seats[index]} ({verdict})" for index, verdict in rejected.items())
        wanted = self.rules.min_updates
        return (
            f"round {self.round}: {counted} good updates are fewer than the {wanted} needed; refused: {names}"
        )

    def _following(self) -> RoundOpened | None:
        held = self.draining or self._pause_asked or self._stop_asked or self.round >= self.rules.rounds
        return None if held or not self._complete() else self._choose(self.round + 1)

    def _committed(self, event: Committed) -> list[Effect]:
        if self.phase is not Phase.COMMITTING or event.round != self.round:
            return []
        self.committed, self.phase = event.round, Phase.COMMITTED
        if event.stop:
            return self._end(EndingKind.COMPLETED, event.stop)
        if self._stop_asked:
            return self._end(EndingKind.STOPPED, self._stop_asked)
        if self.committed >= self.rules.rounds:
            return self._end(EndingKind.COMPLETED, self._all_done())
        if self._next is not None:
            self._begin(self._next)
            return self._park() if self.draining else [PrepareRound(self.round, self.cohort)]
        return self._park() if self.draining else self._rest(event.now)

    def _all_done(self) -> str:
        return f"all {self.rules.rounds} rounds are done"

    def _rest(self, now: float) -> list[Effect]:
        self.cohort = ()
        self.hold = "paused by the operator" if self._pause_asked else "too few clients are online"
        paused = Announce("run_paused", {"round": self.committed, "reason": self.pause})
        return self._proceed(now) or [paused, Publish()]

    # ------------------------------------------------------------------------------ persisted

    def _persisted(self, record: Record, now: float) -> list[Effect]:
        if self.phase is Phase.ENDING and not isinstance(record, Ended):
            return []
        match record:
            case Seated(seats=seats):
                self._take_seats(seats)
                return self._seated(seats, now)
            case RoundOpened():
                self._begin(record)
                return [PrepareRound(self.round, self.cohort)]
            case RoundExtended():
                return self._extended(record)
            case RoundClosed():
                self._close_durable = True
                return self._commit_if_decided()
            case Ended():
                return self._leave(record)
        assert_never(record)

    def _seated(self, seats: tuple[tuple[int, str], ...], now: float) -> list[Effect]:
        seated: list[Effect] = [
            Announce("clients_seated", {"clients": [name for _, name in seats]}),
            Publish(),
        ]
        if fault := self._script_fault():
            return seated + self._end(EndingKind.FAILED, fault)
        return seated + self._proceed(now)

    # ----------------------------------------------------------------------- trouble and operators

    def _wait_for_space(self, event: SpaceMissing) -> list[Effect]:
        if self.phase is Phase.ENDING and not _is_ending(event.effect):
            return []  # of a round that the end discards
        self._starved.append(event.effect)
        self._retry_at = event.now + RETRY_S
        if self.space_missing == event.reason:
            return []
        self.space_missing = event.reason
        return [Announce("run_paused", {"round": self.round, "reason": event.reason}), Publish()]

    def _try_again(self, now: float) -> list[Effect]:
        if self._retry_at is None or now < self._retry_at:
            return []
        starved, self._starved, self._retry_at = self._starved, [], None
        return starved

    def _cleared(self) -> list[Effect]:
        """An effect came through, and none waits for space any more."""
        if not self.space_missing or self._starved:
            return []
        self.space_missing = ""
        return [Announce("run_resumed", {"round": self.round})]

    def _pause_on_request(self) -> list[Effect]:
        self._pause_asked = True
        return [Announce("pause_asked", {"round": self.round})]

    def _resume(self, now: float) -> list[Effect]:
        self._pause_asked = False
        resumed = Announce("run_resumed", {"round": self.round})
        if self.short and self.phase is Phase.OPEN:
            self.short, self.hold = False, ""
            self.deadline = self._wake = now + self.rules.deadline_s
            return [resumed, Publish()]
        return [resumed, *self._proceed(now)]

    def _stop(self, reason: str) -> list[Effect]:
        self._stop_asked = reason
        if self.phase in (Phase.FOLDING, Phase.COMMITTING):
            return []
        return self._end(EndingKind.STOPPED, reason, self._discarded())

    def _discarded(self) -> tuple[Outcome, ...]:
        if self.phase not in (Phase.OPENING, Phase.OPEN):
            return ()
        return tuple(Outcome(i, self.received.get(i, b""), Verdict.DISCARDED) for i in self.cohort)

    def _drain(self) -> list[Effect]:
        self.draining = True
        return [] if self.phase in (Phase.FOLDING, Phase.COMMITTING) else self._park()

    def _park(self) -> list[Effect]:
        """Go away with the round as it is; the journal and the spool hold it."""
        self.draining = self._parked = True
        return [Announce("run_parked", {"round": self.round}), Publish(), Exit(None)]

    def _end(self, kind: EndingKind, reason: str, outcomes: tuple[Outcome, ...] = ()) -> list[Effect]:
        self.phase, self._wake = Phase.ENDING, None
        self._starved, self._retry_at = [], None
        return [Persist((Ended(kind, reason, self.round, outcomes),))]

    def _leave(self, ending: Ended) -> list[Effect]:
        self.phase, self.ending = Phase.ENDED, ending
        self._wake = self._retry_at = None
        fields: dict[str, object] = {
            "kind": str(ending.kind),
            "reason": ending.reason,
            "round": self.committed,
        }
        return [Announce("run_ended", fields), Publish(), Exit(ending)]


def _discard(outcome: Outcome) -> Outcome:
    return replace(outcome, verdict=Verdict.DISCARDED) if outcome.verdict is Verdict.COUNTED else outcome


def _is_ending(effect: Effect) -> bool:
    return isinstance(effect, Persist) and any(isinstance(record, Ended) for record in effect.records)
