"""Random interleavings of a run: clients, faults, crashes and operators in any order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgeflock.common.scores import GLOBAL, Summary
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import (
    Conduct,
    Dropped,
    Ended,
    EndingKind,
    Paused,
    Placed,
    Record,
    Released,
    RoundClosed,
    RoundExtended,
    RoundOpened,
    Samples,
    Scored,
    Seated,
    Stopping,
)
from edgeflock.server.core.effects import (
    CommitRound,
    Effect,
    Exit,
    FoldRound,
    Persist,
    PrepareRound,
    Publish,
    TestModel,
)
from edgeflock.server.core.events import (
    AddAsked,
    Committed,
    Diverged,
    Done,
    DrainAsked,
    DropAsked,
    Event,
    Folded,
    LimitReached,
    Offended,
    Offline,
    Online,
    PauseAsked,
    Persisted,
    Ready,
    ReleaseAsked,
    ReplaceAsked,
    ResumeAsked,
    ResumedRound,
    RoundPrepared,
    SpaceMissing,
    Started,
    StopAsked,
    TaskRefused,
    Tested,
    TestFailed,
    Ticked,
    UpdateReceived,
)
from edgeflock.server.core.phases import Phase
from edgeflock.server.core.rules import Rules
from edgeflock.server.core.run import RunMachine
from edgeflock.server.core.target import Target
from edgeflock.server.core.testing import Tests

NAMES = [f"c{number}" for number in range(5)]  # one more than there are seats
FULL = "no space left on the disk"
ENOUGH = "enough is learnt"
WHICH = st.integers(0, 9)  # of the effects that are to be carried out


class World(RuleBasedStateMachine):
    """Journal, spool and the wishes of everybody around a machine; effects are answered in any order."""

    @initialize(
        cohort=st.integers(1, 4),
        minimum=st.integers(1, 4),
        spare=st.integers(0, 1),
        online=st.booleans(),
        rounds=st.integers(1, 4),
        closes=st.booleans(),
        strict=st.integers(0, 2),
        gathered=st.booleans(),
        every=st.integers(0, 2),
        blocking=st.booleans(),
        beside=st.integers(0, 2),
        wanted=st.sampled_from([None, 0.9]),
        good=st.integers(1, 8),
        grace=st.sampled_from([0.0, 4.0, 60.0]),
        least=st.integers(0, 2),
        more=st.sampled_from(["", "there are so many shards"]),
    )
    def begin(
        self,
        cohort: int,
        minimum: int,
        spare: int,
        online: bool,
        rounds: int,
        closes: bool,
        strict: int,
        gathered: bool,
        every: int,
        blocking: bool,
        beside: int,
        wanted: float | None,
        good: int,
        grace: float,
        least: int,
        more: str,
    ) -> None:
        self.run = Rules(
            rounds=rounds,
            clients=4,
            cohort=cohort,
            min_updates=min(minimum, least or cohort, cohort),
            least=min(least, cohort),
            no_more_seats=more,
            over_select=min(spare, 4 - cohort),
            deadline_s=10.0,
            grace_s=grace,
            gather_s=1e6,
            online=online,
            closes=closes,
            quarantine_after=strict,
            quarantine_rounds=2,
            tests=Tests(
                every,
                rounds,
                blocking,
                target=Target(wanted if every else None),
                beside=(("personal", beside),) if beside else (),
            ),
        )
        self.good = good  # the first round whose model is good enough for a target
        self.now = 0.0
        self.journal: list[Record] = []
        self.judged: set[Conduct] = set()  # all that the journal has ever held of bad updates
        self.commits: list[CommitRound] = []  # durable
        self.spool: dict[tuple[int, int], bytes] = {}
        self.over = False
        self.nothing_to_ask = False  # in a last round
        self.due: set[TestModel] = set()  # of committed rounds, without a score in the journal
        self.untested: set[TestModel] = set()  # that have failed
        self.boot()
        if gathered:
            self.everybody_comes()
            self.everything_is_carried_out()
            self.everybody_comes()

    def write(self, *records: Record) -> None:
        """Make decisions durable."""
        self.journal += records
        self.due -= {TestModel(one.round, one.models) for one in records if isinstance(one, Scored)}
        self.judged |= set(self.conduct())

    def limit(self) -> str:
        """The limit by which a round was cut short, as the journal has it."""
        cuts = [record.limit for record in self.journal if isinstance(record, RoundClosed)]
        return next(filter(None, cuts), "")

    def boot(self) -> None:
        """Start a process on what is durable."""
        self.pending: list[Effect] = []
        self.gone = False
        self.machine = RunMachine(self.run)
        committed = len(self.commits)
        going, over = self.open_round(committed + 1), self.last(committed)
        known = self.seats(), committed, going, over, self.limit(), self.ended(), self.conduct()
        samples = self.samples()
        tested = [(name, one.round) for one in self.journal if isinstance(one, Scored) for name in one.models]
        newest = dict(sorted(tested))
        cut = tuple(test for test in sorted(self.due, key=str) if test.round < committed)
        asked = self.scores().get(committed), None, self.is_paused(), self.stop()
        started = Started(self.now, *known, samples, newest, *asked, cut)
        self.post(replace(started, dismissed=self.dismissed()))

    def scores(self) -> dict[int, Summary]:
        """How the models do, as the journal has it, by round."""
        found = [one for one in self.journal if isinstance(one, Scored) and GLOBAL in one.models]
        return {record.round: dict(record.scores)[GLOBAL] for record in found}

    def is_paused(self) -> bool:
        said = [record.on for record in self.journal if isinstance(record, Paused)]
        return bool(said) and said[-1]

    def stop(self) -> str:
        """Why an operator ends the run."""
        return next((record.reason for record in self.journal if isinstance(record, Stopping)), "")

    def ended(self) -> Ended | None:
        return next((record for record in self.journal if isinstance(record, Ended)), None)

    def conduct(self) -> tuple[Conduct, ...]:
        """What the journal holds of bad updates."""
        found: dict[int, Conduct] = {}
        for record in self.journal:
            if isinstance(record, Conduct):
                found[record.seat] = record
            if isinstance(record, Released) and record.seat in found:
                found[record.seat] = replace(found[record.seat], row=0, until=0)
            if isinstance(record, Placed) and record.before != record.client_id:
                found.pop(record.seat, None)
        return tuple(found.values())

    def seats(self) -> tuple[tuple[int, str], ...]:
        """Who has or had which seat last."""
        found = dict(seat for record in self.journal if isinstance(record, Seated) for seat in record.seats)
        found |= {one.seat: one.client_id for one in self.journal if isinstance(one, Placed)}
        return tuple(sorted(found.items()))

    def samples(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for record in self.journal:
            if isinstance(record, Samples):
                found[record.seat] = record.samples
            if isinstance(record, Placed):
                found.pop(record.seat, None)
        return found

    def dismissed(self) -> tuple[Dropped, ...]:
        """Who was dropped or replaced, and is not back."""
        found: dict[str, Dropped] = {}
        for record in self.journal:
            if isinstance(record, Dropped):
                found[record.client_id] = record
            if isinstance(record, Placed):
                before = Dropped(record.seat, record.before, record.round)
                found |= {record.before: before} if record.before else {}
                found.pop(record.client_id, None)
        return tuple(found.values())

    def cohorts(self, round: int) -> list[tuple[int, ...]]:
        """With whom a round was opened, and with whom extended, which it may have closed without."""
        known = self.open_round(round)
        assert known is not None
        return [known.cohort, tuple(sorted({*known.cohort, *(known.added or ())}))]

    def open_round(self, round: int) -> ResumedRound | None:
        opened = [r for r in self.journal if isinstance(r, RoundOpened) and r.round == round]
        if not opened:
            return None
        mine = [r for r in self.journal if isinstance(r, RoundExtended | RoundClosed) and r.round == round]
        closed = [record.counted for record in mine if isinstance(record, RoundClosed)]
        added = next((record.added for record in mine if isinstance(record, RoundExtended)), None)
        return ResumedRound(round, opened[-1].cohort, added, closed[-1] if closed else None, self.last(round))

    def last(self, round: int) -> str:
        """Why training was over when that round was opened; empty for a round of training."""
        opened = [r for r in self.journal if isinstance(r, RoundOpened) and r.round == round]
        return opened[-1].last if opened else ""

    def post(self, event: Event) -> None:
        effects = self.machine.handle(event)
        assert not (self.gone and effects), "a process that has said its exit decides nothing"
        for effect in effects:
            if isinstance(effect, Publish):
                self.check_published()
            if isinstance(effect, Exit):
                self.gone = True
                self.over = effect.ending is not None
            if isinstance(effect, Persist | PrepareRound | FoldRound | CommitRound | TestModel):
                self.pending.insert(0, effect)

    def check_published(self) -> None:
        """What a view shows now is in the journal."""
        machine = self.machine
        assert set(machine.roster.names.items()) <= set(self.seats())
        assert machine.committed <= len(self.commits)
        if machine.phase is Phase.OPEN:
            assert self.cohorts(machine.round)[-1] == machine.current.cohort
        known = {machine.conduct.known(seat) for seat in machine.roster.names}
        assert known - {None} <= self.judged
        if machine.ending is not None:
            assert machine.ending in self.journal
        assert machine.roster.samples.keys() >= machine.roster.ready
        written = {record for record in self.journal if isinstance(record, Samples)}
        assert {Samples(*item) for item in machine.roster.samples.items()} <= written

    # ----------------------------------------------------------------------------- clients

    @precondition(lambda self: not self.gone)
    @rule(name=st.sampled_from(NAMES))
    def comes(self, name: str) -> None:
        self.post(Online(name, self.now))

    @precondition(lambda self: not self.gone)
    @rule()
    def everybody_comes(self) -> None:
        for name in NAMES:
            self.comes(name)
            self.gets_ready(name, 10)

    @precondition(lambda self: not self.gone)
    @rule(name=st.sampled_from(NAMES))
    def goes(self, name: str) -> None:
        self.post(Offline(name, self.now))

    @precondition(lambda self: not self.gone)
    @rule(name=st.sampled_from(NAMES), samples=st.sampled_from([10, 10, 20]))
    def gets_ready(self, name: str, samples: int) -> None:
        seat = self.machine.roster.seat_of.get(name)
        if seat is not None:
            self.post(Ready(seat, samples, self.now))
            roster, over = self.machine.roster, self.machine.is_over
            assert over or seat not in roster.ready or roster.samples[seat] == samples

    @precondition(lambda self: not self.gone)
    @rule(seat=st.integers(0, 4))
    def delivers(self, seat: int) -> None:
        if self.machine.phase is Phase.OPEN and seat in self.machine.current.cohort:
            digest = b"%d in %d" % (seat, self.machine.round)
            self.spool[self.machine.round, seat] = digest
            self.post(UpdateReceived(self.machine.round, seat, digest, self.now))

    @precondition(lambda self: not self.gone)
    @rule()
    def everybody_delivers(self) -> None:
        for seat in range(5):
            self.delivers(seat)

    @precondition(lambda self: not self.gone)
    @rule(seat=st.integers(0, 3))
    def sends_a_bad_update(self, seat: int) -> None:
        if seat in self.machine.roster.names:
            self.post(Offended(seat, "malformed", self.now))

    @precondition(lambda self: not self.gone)
    @rule(seat=st.integers(0, 3))
    def is_released(self, seat: int) -> None:
        self.post(ReleaseAsked(seat, self.now))

    @precondition(lambda self: not self.gone)
    @rule(round=st.integers(0, 5), seat=st.integers(0, 5))
    def reports_nonsense(self, round: int, seat: int) -> None:
        self.post(TaskRefused(round, seat, self.now))
        if round != self.machine.round:
            self.post(UpdateReceived(round, seat, b"?", self.now))

    # ----------------------------------------------------------------------------- the shell

    @precondition(lambda self: self.pending and not self.gone)
    @rule(which=WHICH, bad=st.sets(st.integers(0, 3), max_size=1), stop=st.sampled_from(["", "", ENOUGH]))
    def carries_out(self, which: int, bad: set[int], stop: str) -> None:
        effect = self.pending.pop(which % len(self.pending))
        match effect:
            case Persist(records=records):
                self.write(*records)
                for record in records:
                    self.post(Persisted(record, self.now))
            case PrepareRound(round=round, cohort=cohort, added=added):
                held = tuple(
                    (seat, self.spool[round, seat])
                    for seat in (*cohort, *added)
                    if (round, seat) in self.spool
                )
                self.post(RoundPrepared(round, held, self.now))
            case FoldRound(round=round, counted=counted):
                assert all((round, seat) in self.spool for seat in counted)
                self.post(Folded(round, dict.fromkeys(bad & set(counted), Verdict.NON_FINITE), self.now))
            case CommitRound():
                self.commit(effect, stop)
            case TestModel(round=round, models=models):
                assert round <= len(self.commits), "what is tested is committed"
                score = Summary(0.95 if round >= self.good else 0.5, 1.0, 10)
                self.post(Tested(round, tuple((name, score) for name in models), self.now, models))
            case _:
                raise AssertionError(effect)

    @precondition(lambda self: self.pending and not self.gone)
    @rule()
    def everything_is_carried_out(self) -> None:
        while self.pending and not self.gone:
            self.carries_out(0, set(), "")

    def commit(self, effect: CommitRound, stop: str) -> None:
        assert effect.round == len(self.commits) + 1, "rounds commit once and in order"
        before = effect.round - 1
        if self.run.tests.target and self.run.tests.includes(before) and before:
            assert before in self.scores(), "whether the target is reached is known before the next commit"
            assert self.scores()[before].value < 0.9
        closed = [r for r in self.journal if isinstance(r, RoundClosed) and r.round == effect.round]
        counted = {item.seat for item in effect.outcomes if item.verdict is Verdict.COUNTED}
        assert counted <= set(closed[-1].counted), "the counted set was journalled before it is acted on"
        if self.last(effect.round):
            assert self.run.closes
            assert effect.next is None
            seated = tuple(sorted(seat for seat, _ in self.seats()))
            changed = any(isinstance(one, Dropped | Placed) for one in self.journal)
            assert self.cohorts(effect.round)[0] == seated or self.run.online or changed
        else:
            assert effect.round <= self.run.rounds
            assert len(counted) >= self.run.min_updates
        for item in effect.outcomes:
            assert item.verdict is not Verdict.COUNTED or item.digest == self.spool[effect.round, item.seat]
        assert tuple(item.seat for item in effect.outcomes) in self.cohorts(effect.round)
        self.commits.append(effect)
        self.due |= {*self.run.tests.of(effect.round, last=bool(self.last(effect.round)))}
        self.write(*effect.conduct)
        if effect.next is not None and not stop:
            held = {one.seat for one in self.conduct() if one.until > effect.round}
            assert not (self.run.quarantine_after and held & set(effect.next.cohort))
            self.write(effect.next)
        self.post(Committed(effect.round, self.now, stop))

    @precondition(lambda self: self.pending and not self.gone)
    @rule(which=WHICH, ask=st.integers(0, 2))
    def has_another_answer(self, which: int, ask: int) -> None:
        """Rarely: the method wants no such round as is decided, or its sums are not finite."""
        if ask:
            return
        effect = self.pending.pop(which % len(self.pending))
        match effect:
            case Persist(records=(RoundOpened(last=last),)):
                self.nothing_to_ask = self.nothing_to_ask or bool(last)
                self.post(Done(ENOUGH, self.now))
            case TestModel(round=round, models=models):
                self.untested.add(effect)
                self.post(TestFailed(round, "ValueError: no such layer", self.now, models))
            case FoldRound(round=round) | CommitRound(round=round):
                self.post(Diverged(round, "the sum is not finite", self.now))
            case _:
                self.pending.insert(0, effect)

    @precondition(lambda self: self.pending and not self.gone)
    @rule(which=WHICH)
    def finds_the_disk_full(self, which: int) -> None:
        effect = self.pending.pop(which % len(self.pending))
        if isinstance(effect, FoldRound | TestModel):
            self.pending.append(effect)  # it only reads
        else:
            self.post(SpaceMissing(effect, FULL, self.now))

    @precondition(lambda self: not self.gone)
    @rule(ask=st.integers(0, 9))
    def a_limit_is_reached(self, ask: int) -> None:
        if ask == 0 and self.machine.phase not in (Phase.IDLE, Phase.GATHERING):
            self.post(LimitReached("the budget is used up", self.now))

    @rule(seconds=st.sampled_from([0.5, 3.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.post(Ticked(self.now))

    @precondition(lambda self: self.journal and not self.over)
    @rule()
    def crashes(self) -> None:
        self.boot()

    # ----------------------------------------------------------------------------- the operator

    @precondition(lambda self: not self.gone)
    @rule()
    def pauses(self) -> None:
        self.post(PauseAsked(self.now))

    @precondition(lambda self: not self.gone)
    @rule()
    def resumes(self) -> None:
        self.post(ResumeAsked(self.now))

    @precondition(lambda self: not self.gone)
    @rule(ask=st.integers(0, 9))
    def stops_or_drains(self, ask: int) -> None:
        """Rarely: it ends most of what could happen."""
        if ask == 0:
            self.post(StopAsked("enough", self.now))
        if ask == 1:
            self.post(DrainAsked(self.now))

    @precondition(lambda self: not self.gone)
    @rule(name=st.sampled_from(NAMES), ask=st.integers(0, 2))
    def drops(self, name: str, ask: int) -> None:
        if ask == 0:
            self.post(DropAsked(name, self.now))

    @precondition(lambda self: not self.gone)
    @rule(name=st.sampled_from(NAMES))
    def adds(self, name: str) -> None:
        self.post(AddAsked(name, self.now))

    @precondition(lambda self: not self.gone)
    @rule(name=st.sampled_from(NAMES), by=st.sampled_from(NAMES), ask=st.integers(0, 1))
    def replaces(self, name: str, by: str, ask: int) -> None:
        if ask == 0:
            self.post(ReplaceAsked(name, by, self.now))

    # ----------------------------------------------------------------------------- what always holds

    @invariant()
    def the_run_agrees_with_itself(self) -> None:
        machine, current = self.machine, self.machine.current
        assert machine.committed <= machine.round <= machine.committed + 1
        assert machine.committed == len(self.commits)
        roster = machine.roster
        seated = {name: seat for seat, name in roster.names.items() if seat not in roster.vacant}
        assert seated == roster.seat_of
        assert not set(roster.dismissed) & set(roster.seat_of)
        assert not set(roster.coming) & set(roster.seat_of)
        assert roster.names.keys() | set(roster.coming.values()) <= set(range(self.run.clients + 1))
        assert (machine.ending is not None) == (machine.phase is Phase.ENDED)
        assert machine.ending is None or machine.wake_at is None  # its loop would turn for ever
        assert not current.last or current.last == machine.over
        between = machine.phase in (Phase.GATHERING, Phase.COMMITTED) and not machine.awaits_test
        if between and not self.gone:
            assert current.cohort == ()

    @invariant()
    def the_round_agrees_with_itself(self) -> None:
        current, phase = self.machine.current, self.machine.phase
        assert current.cohort == tuple(sorted(set(current.cohort)))
        assert set(current.received) | current.refused | current.barred <= set(current.cohort)
        assert not (current.refused | current.barred) & set(current.received)
        if phase is Phase.OPEN:
            assert (current.deadline is None) == bool(current.shortage)
            assert self.gone or current.shortage or self.machine.wake_at is not None
        if phase in (Phase.FOLDING, Phase.COMMITTING):
            assert current.counted is not None
            assert set(current.counted) <= set(current.received)

    def comes_to_its_end(self) -> None:
        self.resumes()
        for _ in range(200):
            if self.gone:
                break
            self.everything_is_carried_out()
            self.everybody_comes()
            self.everybody_delivers()
            self.time_passes(3.0)

    def teardown(self) -> None:
        """From anywhere, a shell without faults and clients who come bring the run to an end, once."""
        if not hasattr(self, "run"):
            return
        if self.gone and not self.over:
            self.boot()
        self.comes_to_its_end()
        if not self.over:  # an extended round may lack who is in quarantine: an operator sees to that
            for seat in range(4):
                self.is_released(seat)
            self.everything_is_carried_out()
            self.boot()
            self.comes_to_its_end()
        assert self.over, (self.machine.phase, self.machine.pause)
        ending = self.ended()
        assert ending is not None
        asked = bool(self.last(len(self.commits)))
        early = ending.reason == "the budget is used up" or ending.reason.startswith("the target")
        wanted = self.run.closes and ending.kind is EndingKind.COMPLETED and bool(self.commits)
        assert asked == wanted or early or self.nothing_to_ask
        self.check_scores(ending)
        self.boot()
        self.everything_is_carried_out()
        assert (self.machine.ending, self.machine.trained) == (ending, len(self.commits) - asked)

    def check_scores(self, ending: Ended) -> None:
        """What the run has come to is known before its end, and a target that was reached is its reason."""
        committed = len(self.commits)
        before = self.journal[: self.journal.index(ending)]
        known = [(one.round, name) for one in before if isinstance(one, Scored) for name in one.models]
        assert len(known) == len(set(known)), "a model is tested once"
        if ending.kind is not EndingKind.FAILED:
            wanted = {*self.run.tests.of(committed, last=True)} | self.due
            lost = {(test.round, name) for test in self.untested for name in test.models}
            assert {(test.round, name) for test in wanted for name in test.models} <= {*known} | lost
        trained = committed - bool(self.last(committed))
        decides = bool(self.run.tests.target) and trained == committed
        score = self.scores().get(committed)
        reached = decides and score is not None and score.value >= 0.9
        assert reached == ending.reason.startswith("the target") or ending.kind is EndingKind.STOPPED


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=100, stateful_step_count=50, deadline=None, derandomize=True)
