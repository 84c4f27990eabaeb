"""The round machine: what happens in a run, decided without sockets, disks, clocks or tensors.

    gathering -> opening(r) -> open(r) -> folding(r) -> committing(r) -> committed(r) -> opening(r + 1)
    ... -> ending -> ended

After the last counted round a method may ask everybody once more: that closing round is opened, closed and
committed like any other, with as many answers as come.

One event goes in, a list of effects comes out; time is a field of the event. An outward message that reveals
a decision is an effect of `Persisted` or `Committed`, never of the decision itself (DESIGN rule 17).
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from edgeflock.server.core import decisions, effects, events
from edgeflock.server.core.decisions import Ended, EndingKind, Outcome, Record, RoundOpened, Verdict
from edgeflock.server.core.effects import Announce, Effect, Persist, PrepareRound, Publish
from edgeflock.server.core.events import Event, Phase
from edgeflock.server.core.judging import Judging
from edgeflock.server.core.space import is_ending
from edgeflock.server.core.tally import Tally

# What still matters once the end is decided.
_LAST_EVENTS = (events.Persisted, events.SpaceMissing, events.Broken, events.Ticked)


class RunMachine(Judging):
    """Where a run stands, changed by `handle` alone."""

    def handle(self, event: Event) -> list[Effect]:
        """Apply one event and return what the shell must now do; never raises for a peer's mistake."""
        if self._parked or self.phase is Phase.ENDED:
            return []
        if self.phase is Phase.ENDING and not isinstance(event, _LAST_EVENTS):
            return []
        if isinstance(event, events.FromClient):
            return self._hear(event)
        if isinstance(event, events.FromOperator):
            return self._obey(event)
        match event:
            case events.Started():
                return self._start(event)
            case events.Ticked(now=now):
                return self._tick(now)
            case events.Persisted():
                return self._cleared() + self._persisted(event.record, event.now)
            case events.RoundPrepared():
                return self._cleared() + self._prepared(event)
            case events.Folded():
                return self._folded(event)
            case events.Committed():
                return self._cleared() + self._committed(event)
            case events.LimitReached(reason=reason):
                return self._limit(reason)
            case events.TargetReached(round=round, reason=reason):
                return self._reach(reason) if round == self.committed else []
            case events.SpaceMissing():
                return self._wait_for_space(event)
            case events.Done():
                return self._done(event)
            case events.Diverged():
                return self._diverged(event)
            case events.Broken(reason=reason):
                return self._break(reason)
        assert_never(event)

    def _hear(self, event: events.FromClient) -> list[Effect]:
        match event:
            case events.Online(client_id=client_id):
                self.roster.online.add(client_id)
                return self._seat(client_id) + self._proceed(event.now)
            case events.Offline(client_id=client_id):
                self.roster.online.discard(client_id)
                return []
            case events.Ready(seat=seat):
                self.roster.ready.add(seat)
                return self._proceed(event.now)
            case events.UpdateReceived():
                return self._receive(event)
            case events.TaskRefused():
                return self._refuse(event)
            case events.Offended(seat=seat, reason=reason):
                return self._offended(seat, reason)
        assert_never(event)

    def _obey(self, event: events.FromOperator) -> list[Effect]:
        match event:
            case events.PauseAsked():
                return self._pause_on_request()
            case events.ResumeAsked():
                return self._resume(event.now)
            case events.StopAsked(reason=reason):
                return self._stop(reason)
            case events.DrainAsked():
                return self._drain()
            case events.ReleaseAsked(seat=seat):
                return self._release(seat)
        assert_never(event)

    # ---------------------------------------------------------------------------- start and seats

    def _start(self, event: events.Started) -> list[Effect]:
        self.roster.take(event.seats)
        self.quarantine.take(event.conduct)
        self.committed = self.round = event.committed
        if event.ended is not None:
            self.phase, self.ending = Phase.ENDED, event.ended
            self._closed = bool(event.closed)
            return [Publish(), effects.Exit(event.ended)]
        if event.closed:  # the process went before it could say so
            self._closed, self.closing = True, event.closed
            return self._end(EndingKind.COMPLETED, event.closed)
        if event.open is not None:
            self._begin(RoundOpened(event.open.round, event.open.cohort, event.open.closing))
            self.current.extended, self.current.closed = event.open.added is not None, event.open.closed
            self.current.add(event.open.added or ())
        if event.reached:
            return self._reach(event.reached)
        self.limit = event.limit
        if event.limit and event.open is None:
            return self._end(EndingKind.COMPLETED, event.limit)
        if event.committed >= self.rules.rounds and not self.closing:  # as above, or fewer are asked
            return self._training_over(self._all_done(), event.now, self._discarded())
        if event.seats and (fault := self.roster.script_fault()):
            return self._end(EndingKind.FAILED, fault, self._discarded())
        if event.open is not None:
            added = event.open.added or ()
            return [PrepareRound(self.round, event.open.cohort, bool(self.closing), added)]
        self.phase = Phase.COMMITTED if event.committed else Phase.GATHERING
        self._wake = None if event.committed else event.now + self.rules.gather_s
        return self._proceed(event.now)

    def _seat(self, client_id: str) -> list[Effect]:
        seated = self.roster.offer(client_id)
        return [] if seated is None else [Persist((seated,))]

    # ------------------------------------------------------------------------------- opening

    def _proceed(self, now: float) -> list[Effect]:
        """Open the next round if nothing stands in the way."""
        waiting = self.phase in (Phase.GATHERING, Phase.COMMITTED)
        if not waiting or self.draining or self._pause_asked:
            return []
        if not self.closing and not self.roster.complete(self.committed):
            return []
        self.hold, self.current = "", Tally()
        self.phase = Phase.OPENING
        return [Persist((self._wanted(),))]

    def _wanted(self) -> RoundOpened:
        number = self.committed + 1
        return self.roster.everybody(number, self.closing) if self.closing else self.roster.choose(number)

    def _begin(self, opened: RoundOpened) -> None:
        self.phase = Phase.OPENING
        self.round, self.closing = opened.round, opened.closing
        everybody = self.rules.script or opened.closing
        size = len(opened.cohort) if everybody else min(self.rules.cohort, len(opened.cohort))
        self.current = Tally(opened.cohort, size, 0 if opened.closing else self.rules.min_updates)
        self.deadline = self._wake = None

    def _prepared(self, event: events.RoundPrepared) -> list[Effect]:
        if self.phase is not Phase.OPENING:
            return []
        tally = self.current
        tally.received = {seat: digest for seat, digest in event.received if seat in tally.cohort}
        self._bar()
        if tally.closed is not None and set(tally.closed) <= set(tally.received):
            return self._close(tally.closed)
        tally.closed = None
        self.phase = Phase.OPEN
        if self.limit:
            return self._limit(self.limit)
        self.deadline = self._wake = event.now + self.rules.deadline_s
        names = [self.roster.names[seat] for seat in tally.cohort]
        name = "closing_opened" if self.closing else "round_opened"
        opened = Announce(name, {"round": self.round, "cohort": names})
        return [opened, Publish(), *self._close_if_complete()]

    # ------------------------------------------------------------------------------- the open round

    def _receive(self, event: events.UpdateReceived) -> list[Effect]:
        if self.phase is not Phase.OPEN or event.round != self.round:
            return []
        if event.seat not in self.current.cohort:
            return []
        self.current.received[event.seat] = event.digest
        return self._close_if_complete() or self._overdue_if_all_answered(event.now)

    def _refuse(self, event: events.TaskRefused) -> list[Effect]:
        if event.round != self.round or not self.has_task(event.seat):
            return []
        self.current.refused.add(event.seat)
        return self._close_if_complete() or self._overdue_if_all_answered(event.now)

    def _close_if_complete(self) -> list[Effect]:
        return self._close(self.current.everything()) if self.current.full else []

    def _overdue_if_all_answered(self, now: float) -> list[Effect]:
        return self._overdue(now) if self.current.answered else []

    def _tick(self, now: float) -> list[Effect]:
        effects = self.space.due(now)
        if self._wake is None or now < self._wake:
            return effects
        self._wake = None
        if self.phase is Phase.GATHERING and not self.roster.complete(self.committed):
            return effects + self._end(EndingKind.FAILED, self.roster.shortage())
        return effects + (self._overdue(now) if self.phase is Phase.OPEN else [])

    def _overdue(self, now: float) -> list[Effect]:
        if self.current.enough:
            return self._close(self.current.everything())
        if not self.current.extended:
            return self._extend(now)
        self.current.short = True
        self.deadline = self._wake = None
        self.hold = f"round {self.round} has {self.current.shortage(self.roster.names)}"
        return [Announce("run_paused", {"round": self.round, "reason": self.pause}), Publish()]

    def _extend(self, now: float) -> list[Effect]:
        self.current.extended = True
        wanted = self.rules.min_updates - len(self.current.received)
        added = self.roster.spare(self.round, self.current.cohort, wanted)
        self.deadline = self._wake = now + self.rules.deadline_s
        return [Persist((decisions.RoundExtended(self.round, added),))]

    def _extended(self, record: decisions.RoundExtended) -> list[Effect]:
        if self.phase is not Phase.OPEN or record.round != self.round:
            return []
        self.current.add(record.added)
        self._bar()
        names = [self.roster.names[seat] for seat in record.added]
        return [Announce("round_extended", {"round": self.round, "added": names}), Publish()]

    # ------------------------------------------------------------------------- closing, committing

    def _close(self, counted: tuple[int, ...]) -> list[Effect]:
        self.phase = Phase.FOLDING
        self.current.closed, self.hold = counted, ""
        self.deadline = self._wake = None
        closed = decisions.RoundClosed(self.round, counted, self.limit)
        return [Persist((closed,)), effects.FoldRound(self.round, counted)]

    def _limit(self, reason: str) -> list[Effect]:
        """A budget is used up: what is decided is committed, an open round with enough updates is closed,
        any other is discarded (DESIGN rule 12)."""
        self.limit = self.limit or reason
        if self.phase in (Phase.IDLE, Phase.OPENING, Phase.FOLDING, Phase.COMMITTING):
            return []  # the end comes when the round is prepared, or committed
        if self.phase is Phase.OPEN and self.current.enough:
            return self._close(self.current.everything())
        return self._end(EndingKind.COMPLETED, self.limit, self._discarded())

    def _folded(self, event: events.Folded) -> list[Effect]:
        if event.round != self.round or self.phase is not Phase.FOLDING:
            return []
        self.current.rejected = event.rejected
        return self._commit_if_decided()

    def _commit_if_decided(self) -> list[Effect]:
        if self.phase is not Phase.FOLDING or not self.current.decided:
            return []
        outcomes = self.current.outcomes()
        counted = sum(outcome.verdict is Verdict.COUNTED for outcome in outcomes)
        if counted < self.current.least and self.limit:
            return self._end(EndingKind.COMPLETED, self.limit, self.current.failed())
        if counted < self.current.least:  # nothing is committed, hence nothing counts
            of = f" of {self.rules.method}" if self.rules.method else ""
            reason = f"round {self.round}{of}: {self.current.poisoned(counted, self.roster.names)}"
            return self._end(EndingKind.FAILED, reason, self.current.failed())
        self.phase = Phase.COMMITTING
        commit = self._settle(outcomes)  # who is left out now is not chosen
        self._next = self._following()
        return [replace(commit, next=self._next)]

    def _diverged(self, event: events.Diverged) -> list[Effect]:
        if event.round != self.round or self.phase not in (Phase.FOLDING, Phase.COMMITTING):
            return []
        return self._end(EndingKind.FAILED, event.reason, self.current.failed())

    def _following(self) -> RoundOpened | None:
        over = self.closing or self.limit or self.round >= self.rules.rounds
        held = self.draining or self._pause_asked or self._stop_asked or over
        return (
            None if held or not self.roster.complete(self.committed) else self.roster.choose(self.round + 1)
        )

    def _committed(self, event: events.Committed) -> list[Effect]:
        if self.phase is not Phase.COMMITTING or event.round != self.round:
            return []
        self.committed, self.phase = event.round, Phase.COMMITTED
        return self._settled_words() + self._go_on(event)

    def _go_on(self, event: events.Committed) -> list[Effect]:
        if self.closing:
            self._closed = True
            return self._end(EndingKind.COMPLETED, self.closing)
        if self._stop_asked:
            return self._end(EndingKind.STOPPED, self._stop_asked)
        if over := event.reached or self.limit:
            return self._end(EndingKind.COMPLETED, over)
        if event.stop or self.committed >= self.rules.rounds:
            return self._training_over(event.stop or self._all_done(), event.now)
        if self._next is not None:
            self._begin(self._next)
            return (
                self._park()
                if self.draining
                else [PrepareRound(self.round, self.current.cohort, bool(self.closing))]
            )
        return self._park() if self.draining else self._rest(event.now)

    def _all_done(self) -> str:
        return f"all {self.rules.rounds} rounds are done"

    def _done(self, event: events.Done) -> list[Effect]:
        if self.phase is not Phase.OPENING:
            return []
        if self.closing:  # the method has nothing to ask
            return self._end(EndingKind.COMPLETED, self.closing)
        return self._training_over(event.reason, event.now)

    def _training_over(self, reason: str, now: float, outcomes: tuple[Outcome, ...] = ()) -> list[Effect]:
        """No further round is counted: ask everybody once more if the method may want that, then end."""
        if not self.rules.closes or not self.committed or outcomes:
            return self._end(EndingKind.COMPLETED, reason, outcomes)
        self.closing, self.phase = reason, Phase.COMMITTED
        return self._park() if self.draining else self._rest(now)

    def _rest(self, now: float) -> list[Effect]:
        self.current = Tally()
        self.hold = "paused by the operator" if self._pause_asked else "too few clients are online"
        paused = Announce("run_paused", {"round": self.committed, "reason": self.pause})
        return self._proceed(now) or [paused, Publish()]

    # ------------------------------------------------------------------------------ persisted

    def _persisted(self, record: Record, now: float) -> list[Effect]:
        if self.phase is Phase.ENDING and not isinstance(record, Ended):
            return []
        match record:
            case decisions.Seated(seats=seats):
                self.roster.take(seats)
                return self._seated(seats, now)
            case RoundOpened():
                self._begin(record)
                return [PrepareRound(self.round, self.current.cohort, bool(self.closing))]
            case decisions.RoundExtended():
                return self._extended(record)
            case decisions.RoundClosed():
                self.current.durable = True
                return [*self.words(record), *self._commit_if_decided()]
            case decisions.Conduct():
                return self._judged(record, now)
            case decisions.Released():
                self.quarantine.release(record.seat)
                return [*self.words(record), Publish(), *self._proceed(now)]
            case Ended():
                return self._leave(record)
        assert_never(record)

    def _judged(self, record: decisions.Conduct, now: float) -> list[Effect]:
        """A bad update is counted; a member that is left out from now on is waited for no more."""
        told: list[Effect] = [*self._told_conduct(record)]
        if not told:
            return []
        waited = self.phase is Phase.OPEN and self.current.waits_for(record.seat)
        if waited:
            self.current.barred.add(record.seat)
        told.append(Publish())
        return told + ((self._close_if_complete() or self._overdue_if_all_answered(now)) if waited else [])

    def _seated(self, seats: tuple[tuple[int, str], ...], now: float) -> list[Effect]:
        seated: list[Effect] = [
            Announce("clients_seated", {"clients": [name for _, name in seats]}),
            Publish(),
        ]
        if fault := self.roster.script_fault():
            return seated + self._end(EndingKind.FAILED, fault)
        return seated + self._proceed(now)

    # ----------------------------------------------------------------------- trouble and operators

    def _wait_for_space(self, event: events.SpaceMissing) -> list[Effect]:
        if self.phase is Phase.ENDING and not is_ending(event.effect):
            return []  # of a round that the end discards
        if not self.space.wait(event):
            return []
        return [Announce("run_paused", {"round": self.round, "reason": event.reason}), Publish()]

    def _cleared(self) -> list[Effect]:
        return [Announce("run_resumed", {"round": self.round})] if self.space.came_through() else []

    def _pause_on_request(self) -> list[Effect]:
        self._pause_asked = True
        return [Announce("pause_asked", {"round": self.round})]

    def _resume(self, now: float) -> list[Effect]:
        self._pause_asked = False
        resumed = Announce("run_resumed", {"round": self.round})
        if self.current.short and self.phase is Phase.OPEN:
            self.current.short, self.hold = False, ""
            self.deadline = self._wake = now + self.rules.deadline_s
            return [resumed, Publish()]
        return [resumed, *self._proceed(now)]

    def _stop(self, reason: str) -> list[Effect]:
        self._stop_asked = reason
        if self.phase in (Phase.FOLDING, Phase.COMMITTING):
            return []
        return self._end(EndingKind.STOPPED, reason, self._discarded())

    def _drain(self) -> list[Effect]:
        self.draining = True
        return [] if self.phase in (Phase.FOLDING, Phase.COMMITTING) else self._park()
