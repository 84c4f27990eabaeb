"""The machine of a run: what happens in it, decided without sockets, disks, clocks or tensors.

    gathering -> opening(r) -> open(r) -> folding(r) -> committing(r) -> committed(r) -> opening(r + 1)
    ... -> ending -> ended

It knows who takes part, whether there is another round and how the run ends; of the round at hand it holds
the `RoundMachine`. When training is over a method may ask everybody once more: that last round is opened,
closed and committed like any other, with as many answers as come.

One event goes in, a list of effects comes out; time is a field of the event. An outward message that reveals
a decision is an effect of `Persisted` or `Committed`, never of the decision itself (DESIGN rule 17).
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from edgeflock.common.scores import DEVICES, GLOBAL
from edgeflock.common.verdict import Verdict
from edgeflock.server.core import announcements, decisions, events
from edgeflock.server.core.conduct import ConductBook
from edgeflock.server.core.decisions import (
    Conduct,
    Ended,
    EndingKind,
    Outcome,
    Paused,
    Record,
    Released,
    RoundOpened,
    Scored,
)
from edgeflock.server.core.departure import Departure
from edgeflock.server.core.effects import Announce, CommitRound, Effect, Persist, PrepareRound, Publish
from edgeflock.server.core.events import Event
from edgeflock.server.core.phases import Phase, Position
from edgeflock.server.core.roster import Roster
from edgeflock.server.core.round import RoundMachine
from edgeflock.server.core.rules import Rules
from edgeflock.server.core.space import Space, is_wanted_at_the_end
from edgeflock.server.core.testing import NO_SAMPLES, Testing
from edgeflock.server.core.wishes import Change, Staffing, Wishes

# What still matters once the end is decided.
_LAST_EVENTS = (
    events.Persisted, events.SpaceMissing, events.Broken, events.Ticked, events.Tested, events.TestFailed
)  # fmt: skip


class RunMachine:
    """Where a run stands, changed by `handle` alone."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._position = Position()
        self.conduct = ConductBook(rules)
        self.roster = Roster(rules, self.conduct)
        self._staffing = Staffing(rules, self.roster)
        self.space = Space()
        self.testing = Testing(rules.tests)
        self.wishes = Wishes()
        self._departure = Departure(self._position, self.space)
        # Invariant: committed <= round <= committed + 1; between two rounds, once the test that the next one
        # waits for is over, nobody is in the current one.
        self.committed = 0
        self.current = self._round(RoundOpened(0, ()))  # the last one opened
        # Invariant: once the last round is opened, over is its reason.
        self.over = ""  # why training is over, if one more round is to come, at hand or committed
        self.limit = ""  # the budget that is used up: no round follows the one at hand
        self._held = False  # between two rounds nothing may be opened
        self.deserted = False  # the round at hand is of a life before, and none of its members is back
        self._gather_until: float | None = None
        self._due: float | None = None  # no round is opened before; None: there is none to wait for
        self._commit: CommitRound | None = None  # the running one, or the last
        self._untested: events.Committed | None = None  # its round is to be tested before anything follows

    # ----------------------------------------------------------------------- what others may ask

    @property
    def phase(self) -> Phase:
        return self._position.phase

    @property
    def round(self) -> int:
        """The last round opened."""
        return self.current.number

    @property
    def trained(self) -> int:
        """How many rounds of training are committed."""
        return self.committed - bool(self.current.last and self.round == self.committed)

    @property
    def deadline(self) -> float | None:
        return self.current.deadline

    @property
    def draining(self) -> bool:
        return self._departure.draining

    @property
    def gone(self) -> bool:
        """Whether nothing is decided any more in this process."""
        return self._departure.gone

    @property
    def is_over(self) -> bool:
        """Whether the end is decided, if not yet durable."""
        return self._departure.decided is not None or self.ending is not None

    @property
    def ending(self) -> Ended | None:
        return self._departure.ending

    @property
    def pause(self) -> str:
        """Why no round goes on; empty if none."""
        return self.space.missing or self.hold or self.current.shortage

    @property
    def hold(self) -> str:
        """Why no round is opened between two; empty if one may be."""
        if not self._held:
            return ""
        return "paused by the operator" if self.wishes.paused else "too few clients are online"

    @property
    def early(self) -> bool:
        """Whether it is only time for which the next round of training waits."""
        waits = self._due is not None and self.phase is Phase.COMMITTED and self._untested is None
        return waits and not (self.over or self._held or self.draining or self.wishes.paused)

    @property
    def paused_by_operator(self) -> bool:
        """Whether it is the operator for whom the next round waits."""
        return self._held and self.wishes.paused

    @property
    def wake_at(self) -> float | None:
        """When the machine wants a `Ticked`."""
        times = (self._until, self.space.retry_at)
        return min((time for time in times if time is not None), default=None)

    @property
    def _until(self) -> float | None:
        """When the phase has lasted too long."""
        if self.phase is Phase.OPEN:
            return self.current.wake_at
        if self.phase is Phase.GATHERING:
            return self._gather_until
        return self._due if self.early else None

    @property
    def awaits_test(self) -> bool:
        """Whether nothing goes on until a committed model is tested."""
        decides = self.phase is Phase.FOLDING and self.current.decided
        if decides and self.testing.decides(self.committed):
            return True
        return self._untested is not None or (self.phase is Phase.ENDING and bool(self.testing.begun))

    def has_task(self, seat: int) -> bool:
        """Whether that client should be working on the open round."""
        return self.current.waits_for(seat)

    def quarantined(self, seat: int) -> Conduct | None:
        """Return why a client takes no part in the round at hand, or the next; None if it may."""
        return self.conduct.quarantine(seat, self.committed + 1)

    def announcements(self, record: Record) -> tuple[Announce, ...]:
        """Return what is said of a decision; the journal takes both at once."""
        figure = self.rules.tests.figure
        return announcements.of_record(record, self.roster.names, self.trained, figure)

    # ------------------------------------------------------------------------------------ events

    def handle(self, event: Event) -> list[Effect]:
        """Apply one event and return what the shell must now do; never raises for a peer's mistake."""
        if self._departure.gone:
            return []
        self.roster.now = max(self.roster.now, event.now)
        if self._position.phase is Phase.ENDING and not isinstance(event, _LAST_EVENTS):
            return []
        if isinstance(event, events.FromClient):
            return self._hear(event)
        if isinstance(event, events.FromOperator):
            return self._obey(event)
        match event:
            case events.Started():
                return self._start(event)
            case events.Ticked(now=now):
                return self.space.retries(now) + self._tick(now)
            case events.Persisted():
                return self.space.found(self.round) + self._persisted(event.record, event.now)
            case events.RoundPrepared():
                return self.space.found(self.round) + self._prepared(event)
            case events.Folded():
                return self._folded(event)
            case events.Committed():
                return self.space.found(self.round) + self._committed(event)
            case events.LimitReached(reason=reason):
                return self._limit_reached(reason)
            case events.Tested(round=round, scores=scores, models=models):
                return [Persist((Scored(round, scores, models),))]
            case events.TestFailed():
                return self._not_tested(event)
            case events.SpaceMissing():
                return self._space_missing(event)
            case events.Done(reason=reason):
                return self._done(reason)
            case events.Diverged():
                return self._diverged(event)
            case events.Broken(reason=reason):
                return self._departure.give_up(reason, self.round)
        assert_never(event)

    def _hear(self, event: events.FromClient) -> list[Effect]:
        match event:
            case events.Online(client_id=client_id):
                self.roster.come(client_id)
                return self._seat(client_id) + self._proceed()
            case events.Offline(client_id=client_id):
                self.roster.go(client_id)
                return []
            case events.Ready(seat=seat, samples=samples):
                self.deserted = self.deserted and seat not in self.current.cohort
                return self._ready(seat, self.roster.state(seat, samples))
            case events.UpdateReceived():
                self.deserted = False
                return self.current.receive(event)
            case events.TaskRefused():
                return self.current.refuse(event)
            case events.Offended(seat=seat, reason=reason):
                conduct = self.conduct.offence(seat, reason, self.round)
                return [] if conduct is None else [Persist((conduct,))]
        assert_never(event)

    def _obey(self, event: events.FromOperator) -> list[Effect]:
        match event:
            case events.PauseAsked():
                return self.wishes.ask_to_pause(self.round)
            case events.ResumeAsked(now=now):
                return self.wishes.ask_to_resume(self.round) or self._resume(now)
            case events.StopAsked(reason=reason):
                return [Persist((decisions.Stopping(reason),))]
            case events.DrainAsked():
                return self._drain()
            case events.ReleaseAsked(seat=seat):
                return [Persist((Released(seat),))] if self.quarantined(seat) else []
            case events.AddAsked() | events.DropAsked() | events.ReplaceAsked():
                return self._change(event)
        assert_never(event)

    def _persisted(self, record: Record, now: float) -> list[Effect]:
        if self.phase is Phase.ENDING and not isinstance(record, Ended | Scored):
            return []
        match record:
            case decisions.Seated(seats=seats):
                return self._seated(seats)
            case decisions.Samples(seat=seat):
                return self._ready(seat, self.roster.note(record))
            case RoundOpened():
                return self._begin(record)
            case decisions.RoundExtended():
                return self.current.join(record)
            case decisions.RoundClosed():
                self.current.durable = True
                return [*self.announcements(record), *self._commit_if_decided()]
            case Conduct():
                return self._judged(record, now)
            case Released(seat=seat):
                self.conduct.release(seat)
                return [*self.announcements(record), Publish((seat,)), *self._proceed()]
            case decisions.Dropped() | decisions.Placed():
                return self._changed(record)
            case Scored():
                return self._scored(record)
            case Paused():
                return self._told(record, now)
            case decisions.Stopping(reason=reason):
                return self._stop(reason)
            case Ended():
                return [*self.announcements(record), *self._departure.leave(record)]
        assert_never(record)

    def _at(self, phase: Phase, round: int) -> bool:
        return self._position.phase is phase and round == self.current.number

    # ---------------------------------------------------------------------------- start and seats

    def _start(self, event: events.Started) -> list[Effect]:
        self.roster.take(event.seats)
        self.roster.samples.update(event.samples)
        self.roster.recall(event.dismissed)
        self.conduct.take(event.conduct)
        self.testing.resume(event.scored, event.best, event.since)
        self.wishes.recall(paused=event.paused, stop=event.stop)
        self.committed, self.over, self.limit = event.committed, event.over, event.limit
        self.current = self._round(RoundOpened(event.committed, (), event.over))
        self._gather_until = event.now + self.rules.gather_s
        if event.ended is not None:
            return self._departure.leave(event.ended)
        cut = self.testing.make_up(event.untested)
        test = self.testing.begin(self.committed, last=bool(event.over))  # a crash may have cut it off
        return [*cut, *test, *self._go_on(event)]

    def _go_on(self, event: events.Started) -> list[Effect]:
        """Go on where the life before was."""
        prepare = [] if event.open is None else self._go_on_with(event.open)
        decided = event.open is not None and event.open.counted is not None  # its commit comes first
        if self.wishes.stopping and not event.over and not decided:
            return self._end(EndingKind.STOPPED, self.wishes.stopping)
        tested = self.committed if self.rules.tests.here else self.committed - 1  # the newest that is known
        reached = "" if self.over else self.testing.over_with(tested, event.score)
        if reached and not prepare and not self.rules.tests.here:
            return self._training_over(reached)
        if reason := event.over or reached or ("" if prepare else event.limit):
            return self._end(EndingKind.COMPLETED, reason)
        if self.committed >= self.rules.rounds and not self.over:  # or fewer are asked for than before
            return self._training_over(self._all_done())
        if event.seats and (fault := self.roster.script_fault()):
            return self._end(EndingKind.FAILED, fault)
        if prepare:
            return prepare
        self._position.become(Phase.COMMITTED if self.committed else Phase.GATHERING)
        return self._between_rounds() if self.wishes.paused else self._proceed()

    def _go_on_with(self, known: events.ResumedRound) -> list[Effect]:
        """Open the round of a life before again."""
        self._position.become(Phase.OPENING)
        self.deserted = True
        prepare = self._begin(RoundOpened(known.round, known.cohort, known.last), known.added or ())
        self.current.resume(known.added, known.counted)
        return prepare

    def _seat(self, client_id: str) -> list[Effect]:
        seated = self.roster.offer(client_id)
        return [] if seated is None else [Persist((seated,))]

    def _seated(self, seats: tuple[tuple[int, str], ...]) -> list[Effect]:
        self.roster.take(seats)
        names, places = [name for _, name in seats], tuple(seat for seat, _ in seats)
        seated: list[Effect] = [Announce("clients_seated", {"clients": names}), Publish(places)]
        if fault := self.roster.script_fault():
            return seated + self._end(EndingKind.FAILED, fault)
        return seated + self._proceed()

    def _ready(self, seat: int, unwritten: decisions.Samples | None) -> list[Effect]:
        """A member has its data, and is ready if the journal knows of them; it takes on what it refused."""
        if unwritten is not None:
            return [Persist((unwritten,))]
        return [*self.current.offer_again((seat,)), *self._proceed()]

    # ------------------------------------------------------------------------------------- who has a seat

    def staffed(self, asked: Change) -> decisions.Dropped | decisions.Placed | str:
        """Return what an operator's wish comes to, or why it cannot be done."""
        return self._staffing.record(asked, self.current, self.committed + 1)

    def _change(self, asked: Change) -> list[Effect]:
        """Write down who has a seat from now on; nobody waits for who had one and was dropped."""
        record = self.staffed(asked)
        if isinstance(record, str):
            return []
        self.roster.begin(record)
        dropped = isinstance(record, decisions.Dropped)
        return [Persist((record,)), *(self.current.dismiss(record.seat, asked.now) if dropped else [])]

    def _changed(self, record: decisions.Dropped | decisions.Placed) -> list[Effect]:
        self.roster.complete_change(record)
        if isinstance(record, decisions.Placed):
            if record.before != record.client_id:
                self.conduct.forget(record.seat)
            self.current.admit(record.seat)
        return [*self.announcements(record), Publish(), *self._proceed()]

    # -------------------------------------------------------------------------- between two rounds

    def _between_rounds(self) -> list[Effect]:
        """Go if that was asked; else open the next round, or say why not."""
        if self.draining:
            return self._departure.park(self.round)
        self.current = self._round(RoundOpened(self.committed, ()))
        return self._proceed() or ([Publish()] if self.early else self._hold())

    def _hold(self) -> list[Effect]:
        """Nothing is opened now: say why not."""
        self._held = True
        return [Announce("run_paused", {"round": self.committed, "reason": self.pause}), Publish()]

    def _proceed(self) -> list[Effect]:
        """Decide to open the next round if nothing stands in the way."""
        if not self._between_two or self.draining or self.wishes.paused or self.early:
            return []
        number = self.committed + 1
        if self.over:
            opened = self.roster.everybody(number, self.over)
        elif self.roster.complete(self.committed):
            opened = self.roster.choose(number)
        else:
            return []
        self._held = False
        self._position.become(Phase.OPENING)
        return [Persist((opened,))]

    @property
    def _between_two(self) -> bool:
        """Whether a round might be opened."""
        return self.phase in (Phase.GATHERING, Phase.COMMITTED) and self._untested is None

    def _training_over(self, reason: str) -> list[Effect]:
        """No further round of training: ask everybody once more if the method may want that, then end."""
        at_hand = self.round > self.committed
        if not self.rules.closes or not self.committed or at_hand:
            return self._end(EndingKind.COMPLETED, reason)
        self.over = reason
        if self.phase is not Phase.COMMITTED:
            self._position.become(Phase.COMMITTED)
        return self._between_rounds()

    def _all_done(self) -> str:
        return f"all {self.rules.rounds} rounds are done"

    def _done(self, reason: str) -> list[Effect]:
        """There is no such round as was to be opened: no task of training, or none in the last round."""
        if self.phase is not Phase.OPENING:
            return []
        return self._end(EndingKind.COMPLETED, self.over) if self.over else self._training_over(reason)

    # ---------------------------------------------------------------------------- the round at hand

    def _round(self, opened: RoundOpened) -> RoundMachine:
        return RoundMachine(opened, self.rules, self.roster, self.conduct, self._position)

    def _begin(self, opened: RoundOpened, added: tuple[int, ...] = ()) -> list[Effect]:
        """The opening is durable."""
        self.current, self.over = self._round(opened), opened.last
        return [PrepareRound(opened.round, opened.cohort, bool(opened.last), added)]

    def _prepared(self, event: events.RoundPrepared) -> list[Effect]:
        if not self._at(Phase.OPENING, event.round):
            return []
        self.current.take(event.received)
        if self.current.counted is not None:  # decided in a life before
            return self.current.close(self.limit)
        self._due = event.now + self.rules.every_s if self.rules.every_s else None
        if self.wishes.stopping:  # that set was torn
            return self._end(EndingKind.STOPPED, self.wishes.stopping)
        return self._cut() if self.limit else self.current.open(event.now)

    def _tick(self, now: float) -> list[Effect]:
        if self._until is None or now < self._until:
            return []
        if self.phase is Phase.OPEN:
            return self.current.tick(now)
        if self.early:
            self._due = None
            return self._proceed() or self._hold()
        self._gather_until = None
        complete = self.roster.complete(self.committed)
        return [] if complete else self._end(EndingKind.FAILED, self.roster.shortage())

    def _judged(self, conduct: Conduct, now: float) -> list[Effect]:
        """A bad update is counted; a member that is left out from now on is waited for no more."""
        self.conduct.take((conduct,))
        said = self.announcements(conduct)
        if not said:
            return []
        return [*said, Publish((conduct.seat,)), *self.current.bar(conduct.seat, now)]

    def _limit_reached(self, reason: str) -> list[Effect]:
        self.limit = self.limit or reason
        if self._busy or self.phase in (Phase.IDLE, Phase.OPENING):
            return []  # the end comes when the round is prepared, or committed
        return self._cut()

    def _cut(self) -> list[Effect]:
        """A budget is used up: close a round with enough updates, discard any other (DESIGN rule 12)."""
        if self.round > self.committed and self.current.enough:
            return self.current.close(self.limit)
        return self._end(EndingKind.COMPLETED, self.limit)

    # ----------------------------------------------------------------------------------- the commit

    def _folded(self, event: events.Folded) -> list[Effect]:
        if not self._at(Phase.FOLDING, event.round):
            return []
        self.current.rejected = event.rejected
        return self._commit_if_decided()

    def _commit_if_decided(self) -> list[Effect]:
        if self.phase is not Phase.FOLDING or not self.current.decided or self.awaits_test:
            return []
        outcomes = self.current.outcomes()
        if fault := self.current.fault(outcomes):  # nothing is committed, hence nothing counts
            kind = EndingKind.COMPLETED if self.limit else EndingKind.FAILED
            return self._end(kind, self.limit or fault, self.current.failed())
        self._position.become(Phase.COMMITTING)
        commit = self.current.commit(outcomes)  # who is left out now is not chosen
        self._commit = replace(commit, next=self._following())
        return [self._commit]

    def _following(self) -> RoundOpened | None:
        over = self.over or self.limit or self.round >= self.rules.rounds or self.rules.tests.told_late
        held = self.draining or self.wishes.paused or self.wishes.stopping or self._due is not None
        if over or held or not self.roster.complete(self.committed):
            return None
        return self.roster.choose(self.round + 1)

    def _committed(self, event: events.Committed) -> list[Effect]:
        if not self._at(Phase.COMMITTING, event.round):
            return []
        assert self._commit is not None
        self._position.become(Phase.COMMITTED)
        self.committed = self.round
        self.conduct.take(self._commit.conduct)
        said = self._commit.announcements
        test = [] if self.draining else self.testing.begin(self.round, last=bool(self.over))
        if test and self.rules.tests.blocking:
            self._untested = event
            return [*said, *test]
        if event.scored is not None:
            self.testing.take(event.scored)
        onward = [*said, *test, *self._after(self._commit, event)]
        return [*onward, *self._told_by_devices(event.scored)]

    def _told_by_devices(self, scored: Scored | None) -> list[Effect]:
        """The journal holds how the devices found the model of the round before: it may be good enough."""
        if scored is None:
            return self._told_by_nobody()
        reason = self.testing.reached(scored)
        if not reason or self.over or self.phase in (Phase.ENDING, Phase.ENDED):
            return []
        return self._end(EndingKind.COMPLETED, reason)

    def _told_by_nobody(self) -> list[Effect]:
        """No device that was to make the first test has samples for it; if nobody has, a target that is only
        looked for there never would be reached."""
        tests, commit = self.rules.tests, self._commit
        first = DEVICES in tests.wishes(self.committed, last=False) and self.committed == tests.every + 1
        if tests.here or not first or self.phase in (Phase.ENDING, Phase.ENDED):
            return []
        said = Announce("evaluation_failed", {"round": self.committed - 1, "reason": NO_SAMPLES})
        assert commit is not None
        asked = sum(outcome.verdict is Verdict.COUNTED for outcome in commit.outcomes)
        if not tests.decisive or asked < len(self.roster.names):
            return [said]
        return [
            said,
            *self._end(EndingKind.FAILED, f"nothing can be known of the run's target: {NO_SAMPLES}"),
        ]

    def _after(self, commit: CommitRound, event: events.Committed) -> list[Effect]:
        if self.wishes.stopping and not self.over:
            return self._end(EndingKind.STOPPED, self.wishes.stopping)
        if reason := self.over or self.limit:
            return self._end(EndingKind.COMPLETED, reason)
        if event.stop or self.committed >= self.rules.rounds:
            return self._training_over(event.stop or self._all_done())
        if commit.next is None and event.scored and (reason := self.testing.reached(event.scored)):
            return self._training_over(reason)
        if commit.next is None:
            return self._between_rounds()
        self._position.become(Phase.OPENING)
        prepare = self._begin(commit.next)
        return self._departure.park(self.round) if self.draining else prepare

    def _diverged(self, event: events.Diverged) -> list[Effect]:
        if event.round != self.round or not self._busy:
            return []
        return self._end(EndingKind.FAILED, event.reason, self.current.failed())

    # ----------------------------------------------------------------------------------- tests of models

    def _scored(self, scored: Scored) -> list[Effect]:
        """The journal holds how a committed round does: it may be good enough."""
        self.testing.take(scored)
        said = self.announcements(scored)
        trained = scored.round == self.committed == self.trained
        if trained and (reason := self.testing.reached(scored)):
            if self.phase is not Phase.ENDING:
                return [*said, *self._end(EndingKind.COMPLETED, reason)]
            self._departure.reach(reason)
        return [*said, *self._after_test()]

    def _not_tested(self, event: events.TestFailed) -> list[Effect]:
        """A target that nobody can look for would never be reached."""
        self.testing.fail(event.round, event.models)
        decisive = GLOBAL in event.models
        about = "" if decisive else f"{', '.join(event.models)}: "
        said = Announce("evaluation_failed", {"round": event.round, "reason": about + event.reason})
        if decisive and self.rules.tests.decisive and self.phase is not Phase.ENDING:
            words = f"whether round {event.round} has reached the target is not known: {event.reason}"
            return [said, *self._end(EndingKind.FAILED, words)]
        return [said, *self._after_test()]

    def _after_test(self) -> list[Effect]:
        """Go on with what has waited for a test."""
        if self.phase is Phase.ENDING:
            return self._conclude()
        if (committed := self._untested) is None:
            return self._commit_if_decided()
        if self.testing.begun:
            return []
        assert self._commit is not None
        self._untested = None
        return self._after(self._commit, committed)

    # ------------------------------------------------------------------- a full disk, operators, the end

    def _space_missing(self, event: events.SpaceMissing) -> list[Effect]:
        if self.phase is Phase.ENDING and not is_wanted_at_the_end(event.effect):
            return []  # of a round that the end discards
        return self.space.wait(event, self.round)

    def _told(self, record: Paused, now: float) -> list[Effect]:
        """An operator's word is durable; another one may have been said meanwhile."""
        again = self.wishes.take(record, self.round)
        if not self.wishes.heeds(pause=record.on):
            return again
        if not record.on:
            return self._resume(now)
        said = self.announcements(record)
        return [*said, *(self._hold() if self._between_two else [])]

    def _resume(self, now: float) -> list[Effect]:
        """Go on, if that was asked for and the journal has it."""
        if not self.wishes.resumes():
            return []
        self._held = self._held and self.phase is Phase.COMMITTED and self._due is None
        resumed = Announce("run_resumed", {"round": self.round})
        again = self.current.offer_again(self.current.cohort)
        if self.phase is Phase.OPEN and self.current.shortage:
            self.current.give_time(now)
            return [resumed, Publish()]
        if again:
            return [resumed, *again]
        return [resumed, *(self._proceed() or [Publish()])]

    def _stop(self, reason: str) -> list[Effect]:
        self.wishes.stopping = reason
        return [] if self._busy else self._end(EndingKind.STOPPED, reason)

    def _drain(self) -> list[Effect]:
        self._departure.draining = True
        return [] if self._busy else self._departure.park(self.round)

    @property
    def _busy(self) -> bool:
        """Whether a counted set is on its way to its commit, which comes first."""
        return self.phase in (Phase.FOLDING, Phase.COMMITTING)

    def _end(
        self, kind: EndingKind, reason: str, outcomes: tuple[Outcome, ...] | None = None
    ) -> list[Effect]:
        """Decide that the run is over; a round at hand ends with these outcomes, or is discarded."""
        if outcomes is None:
            outcomes = self.current.discarded() if self.round > self.committed else ()
        self._untested = None
        self._departure.end(kind, reason, self.round, outcomes)
        return self._conclude()

    def _conclude(self) -> list[Effect]:
        """Write the end, after the score of the last committed model: it says what the run has come to."""
        assert self._departure.decided is not None
        failed = self._departure.decided.kind is EndingKind.FAILED
        test = [] if failed else self.testing.begin(self.committed, last=True)
        if test or self.testing.begun:  # whoever works for a round that is discarded need not go on
            return [Publish(), *test]
        return self._departure.write()
