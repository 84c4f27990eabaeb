"""Random interleavings of a run: clients, faults, crashes and operators in any order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edgeflock.server.core.decisions import (
    Conduct,
    Ended,
    EndingKind,
    Record,
    Released,
    RoundClosed,
    RoundExtended,
    RoundOpened,
    Seated,
    Verdict,
)
from edgeflock.server.core.effects import CommitRound, Effect, Exit, FoldRound, Persist, PrepareRound, Publish
from edgeflock.server.core.events import (
    Committed,
    DrainAsked,
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
    ResumeAsked,
    ResumedRound,
    RoundPrepared,
    SpaceMissing,
    Started,
    StopAsked,
    TargetReached,
    TaskRefused,
    Ticked,
    UpdateReceived,
)
from edgeflock.server.core.phases import Phase
from edgeflock.server.core.rules import Rules
from edgeflock.server.core.run import RunMachine

NAMES = [f"c{index}" for index in range(5)]  # one more than there are seats
FULL = "no space left on the disk"
ALLOWED = {
    (Phase.IDLE, Phase.GATHERING), (Phase.IDLE, Phase.COMMITTED), (Phase.IDLE, Phase.OPENING),
    (Phase.IDLE, Phase.ENDING), (Phase.GATHERING, Phase.OPENING), (Phase.OPENING, Phase.OPEN),
    (Phase.OPENING, Phase.FOLDING), (Phase.OPEN, Phase.FOLDING), (Phase.FOLDING, Phase.COMMITTING),
    (Phase.COMMITTING, Phase.COMMITTED), (Phase.COMMITTING, Phase.OPENING), (Phase.COMMITTED, Phase.OPENING),
    *((phase, Phase.ENDING) for phase in Phase if phase is not Phase.ENDED),
    (Phase.ENDING, Phase.ENDED),
}  # fmt: skip


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
    )
    def begin(
        self, cohort: int, minimum: int, spare: int, online: bool, rounds: int, closes: bool, strict: int
    ) -> None:
        self.run = Rules(
            rounds=rounds,
            clients=4,
            cohort=cohort,
            min_updates=min(minimum, cohort),
            over_select=min(spare, 4 - cohort),
            deadline_s=10.0,
            gather_s=1e6,
            online=online,
            closes=closes,
            quarantine_after=strict,
            quarantine_rounds=2,
        )
        self.now = 0.0
        self.journal: list[Record] = []
        self.commits: list[CommitRound] = []  # durable
        self.spool: dict[tuple[int, int], bytes] = {}
        self.over = False
        self.reached = ""  # what the evaluation of the last committed round says
        self.boot()

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
        going, closed = self.open_round(committed + 1), self.closing(committed)
        known = self.seats(), committed, going, closed, self.limit(), self.reached
        self.post(Started(self.now, *known, conduct=self.conduct()))

    def conduct(self) -> tuple[Conduct, ...]:
        """What the journal holds of bad updates."""
        found: dict[int, Conduct] = {}
        for record in self.journal:
            if isinstance(record, Conduct):
                found[record.seat] = record
            if isinstance(record, Released):
                found[record.seat] = replace(found[record.seat], row=0, until=0)
        return tuple(found.values())

    def seats(self) -> tuple[tuple[int, str], ...]:
        return tuple(seat for record in self.journal if isinstance(record, Seated) for seat in record.seats)

    def cohort(self, round: int) -> tuple[int, ...] | None:
        members: set[int] | None = None
        for record in self.journal:
            if isinstance(record, RoundOpened) and record.round == round:
                members = set(record.cohort)
            if isinstance(record, RoundExtended) and record.round == round and members is not None:
                members |= set(record.added)
        return None if members is None else tuple(sorted(members))

    def open_round(self, round: int) -> ResumedRound | None:
        opened = [r for r in self.journal if isinstance(r, RoundOpened) and r.round == round]
        if not opened:
            return None
        mine = [r for r in self.journal if isinstance(r, RoundExtended | RoundClosed) and r.round == round]
        closed = [record.counted for record in mine if isinstance(record, RoundClosed)]
        added = next((record.added for record in mine if isinstance(record, RoundExtended)), None)
        return ResumedRound(
            round, opened[-1].cohort, added, closed[-1] if closed else None, self.closing(round)
        )

    def closing(self, round: int) -> str:
        """Why training was over when that round was opened; empty for a round of training."""
        opened = [r for r in self.journal if isinstance(r, RoundOpened) and r.round == round]
        return opened[-1].last if opened else ""

    def post(self, event: Event) -> None:
        before = self.machine.phase
        effects = self.machine.handle(event)
        after = self.machine.phase
        assert before is after or (before, after) in ALLOWED, (before, after, event)
        assert not (self.gone and effects), "a process that has said its exit decides nothing"
        for effect in effects:
            if isinstance(effect, Publish):
                self.check_published()
            if isinstance(effect, Exit):
                self.gone = True
                self.over = effect.ending is not None
            if isinstance(effect, Persist | PrepareRound | FoldRound | CommitRound):
                self.pending.append(effect)

    def check_published(self) -> None:
        """What a view shows now is in the journal."""
        machine = self.machine
        assert set(machine.roster.names.items()) <= set(self.seats())
        assert machine.committed <= len(self.commits)
        if machine.phase is Phase.OPEN:
            assert self.cohort(machine.round) == machine.current.cohort
        told = {machine.conduct.known(index) for index in machine.roster.names}
        assert told - {None} <= set(self.conduct())
        if machine.ending is not None:
            assert machine.ending in self.journal

    # ----------------------------------------------------------------------------- clients

    @rule(name=st.sampled_from(NAMES))
    def comes(self, name: str) -> None:
        self.post(Online(name, self.now))

    @rule(name=st.sampled_from(NAMES))
    def goes(self, name: str) -> None:
        self.post(Offline(name, self.now))

    @rule(name=st.sampled_from(NAMES))
    def gets_ready(self, name: str) -> None:
        index = self.machine.roster.seat_of.get(name)
        if index is not None:
            self.post(Ready(index, self.now))

    @rule(index=st.integers(0, 3))
    def delivers(self, index: int) -> None:
        if self.machine.has_task(index):
            digest = b"%d in %d" % (index, self.machine.round)
            self.spool[self.machine.round, index] = digest
            self.post(UpdateReceived(self.machine.round, index, digest, self.now))

    @rule(index=st.integers(0, 3))
    def sends_a_bad_update(self, index: int) -> None:
        if index in self.machine.roster.names:
            self.post(Offended(index, "malformed", self.now))

    @rule(index=st.integers(0, 3))
    def is_released(self, index: int) -> None:
        self.post(ReleaseAsked(index, self.now))

    @rule(round=st.integers(0, 5), index=st.integers(0, 5))
    def reports_nonsense(self, round: int, index: int) -> None:
        self.post(TaskRefused(round, index, self.now))
        if round != self.machine.round:
            self.post(UpdateReceived(round, index, b"?", self.now))

    # ----------------------------------------------------------------------------- the shell

    @rule(which=st.integers(0, 9), bad=st.sets(st.integers(0, 3), max_size=1))
    def carries_out(self, which: int, bad: set[int]) -> None:
        if not self.pending:
            return
        effect = self.pending.pop(which % len(self.pending))
        match effect:
            case Persist(records=records):
                self.journal += records
                for record in records:
                    self.post(Persisted(record, self.now))
            case PrepareRound(round=round, cohort=cohort, added=added):
                held = tuple(
                    (index, self.spool[round, index])
                    for index in (*cohort, *added)
                    if (round, index) in self.spool
                )
                self.post(RoundPrepared(round, held, self.now))
            case FoldRound(round=round, counted=counted):
                assert all((round, index) in self.spool for index in counted)
                self.post(Folded(round, dict.fromkeys(bad & set(counted), Verdict.NON_FINITE), self.now))
            case CommitRound():
                self.commit(effect)
            case _:
                raise AssertionError(effect)

    def commit(self, effect: CommitRound) -> None:
        assert effect.round == len(self.commits) + 1, "rounds commit once and in order"
        closed = [r for r in self.journal if isinstance(r, RoundClosed) and r.round == effect.round]
        counted = {item.seat for item in effect.outcomes if item.verdict is Verdict.COUNTED}
        assert counted <= set(closed[-1].counted), "the counted set was journalled before it is acted on"
        if self.closing(effect.round):
            assert self.run.closes
            assert effect.next is None
            assert self.cohort(effect.round) == tuple(sorted(index for index, _ in self.seats()))
        else:
            assert effect.round <= self.run.rounds
            assert len(counted) >= self.run.min_updates
        for item in effect.outcomes:
            assert item.verdict is not Verdict.COUNTED or item.digest == self.spool[effect.round, item.seat]
        assert tuple(item.seat for item in effect.outcomes) == self.cohort(effect.round)
        self.commits.append(effect)
        self.journal += effect.conduct
        if effect.next is not None:
            held = {one.seat for one in self.conduct() if one.until > effect.round}
            assert not (self.run.quarantine_after and held & set(effect.next.cohort))
            self.journal.append(effect.next)
        self.post(Committed(effect.round, self.now))

    @rule(which=st.integers(0, 9))
    def finds_the_disk_full(self, which: int) -> None:
        if self.pending:
            effect = self.pending.pop(which % len(self.pending))
            if isinstance(effect, FoldRound):
                self.pending.append(effect)  # it only reads
            else:
                self.post(SpaceMissing(effect, FULL, self.now))

    @rule(ask=st.integers(0, 9))
    def a_limit_is_reached(self, ask: int) -> None:
        if ask == 0 and self.machine.phase not in (Phase.IDLE, Phase.GATHERING):
            self.post(LimitReached("the budget is used up", self.now))

    @rule(ask=st.integers(0, 9))
    def the_target_is_reached(self, ask: int) -> None:
        """The evaluation of a round is known before the next one commits, and to every later process."""
        committed = len(self.commits)
        fold = any(isinstance(effect, CommitRound) for effect in self.pending)
        over = self.machine.phase in (Phase.ENDING, Phase.ENDED)
        if ask == 0 and committed and not fold and not over:
            self.reached = f"target in {committed}"
            self.post(TargetReached(committed, self.reached, self.now))

    @rule(seconds=st.sampled_from([0.5, 3.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.post(Ticked(self.now))

    @rule()
    def crashes(self) -> None:
        if not self.over:
            self.boot()

    # ----------------------------------------------------------------------------- the operator

    @rule()
    def pauses(self) -> None:
        self.post(PauseAsked(self.now))

    @rule()
    def resumes(self) -> None:
        self.post(ResumeAsked(self.now))

    @rule(ask=st.integers(0, 9))
    def stops_or_drains(self, ask: int) -> None:
        """Rarely: it ends most of what could happen."""
        if ask == 0:
            self.post(StopAsked("enough", self.now))
        if ask == 1:
            self.post(DrainAsked(self.now))

    # ----------------------------------------------------------------------------- what always holds

    @invariant()
    def the_machine_agrees_with_itself(self) -> None:
        machine = self.machine
        assert machine.committed <= machine.round <= machine.committed + 1
        assert machine.committed == len(self.commits)
        assert {name: index for index, name in machine.roster.names.items()} == machine.roster.seat_of
        assert len(machine.roster.names) <= self.run.clients
        assert set(machine.current.received) <= set(machine.current.cohort)
        assert not (machine.current.refused | machine.current.barred) & set(machine.current.received)
        assert machine.current.cohort == tuple(sorted(set(machine.current.cohort)))
        if machine.current.counted is not None and machine.phase in (Phase.FOLDING, Phase.COMMITTING):
            assert set(machine.current.counted) <= set(machine.current.received)

    @invariant()
    def an_open_round_never_waits_for_nothing(self) -> None:
        machine = self.machine
        if machine.phase is Phase.OPEN and not machine.current.shortage and not self.gone:
            assert machine.wake_at is not None

    def teardown(self) -> None:
        """From anywhere, a shell without faults and clients who come bring the run to an end."""
        if not hasattr(self, "run") or self.over:
            return
        if self.gone:
            self.boot()
        self.resumes()
        for _ in range(200):
            if self.gone:
                break
            while self.pending:
                self.carries_out(0, set())
            for name in NAMES:
                self.comes(name)
                self.gets_ready(name)
            for index in range(4):
                self.delivers(index)
            self.time_passes(3.0)
        assert self.over, (self.machine.phase, self.machine.pause)
        ending = self.journal[-1]
        assert isinstance(ending, Ended)
        closed = bool(self.closing(len(self.commits)))
        early = ending.reason == "the budget is used up" or ending.reason.startswith("target")
        assert closed == (self.run.closes and ending.kind is EndingKind.COMPLETED) or early
        assert not self.reached or ending.reason == self.reached == f"target in {len(self.commits)}"


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=80, stateful_step_count=40, deadline=None, derandomize=True)
