"""The machine of a run and a shell that does what it says, stepped by hand."""

from __future__ import annotations

from typing import TypeVar

from edgeflock.common.scores import Summary
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Ended
from edgeflock.server.core.effects import (
    CommitRound,
    Effect,
    Exit,
    FoldRound,
    Persist,
    PrepareRound,
    TestModel,
)
from edgeflock.server.core.events import (
    Committed,
    Event,
    Folded,
    Online,
    PauseAsked,
    Persisted,
    Ready,
    ResumedRound,
    RoundPrepared,
    Started,
    StopAsked,
    Tested,
    Ticked,
    UpdateReceived,
)
from edgeflock.server.core.phases import Phase
from edgeflock.server.core.rules import Rules
from edgeflock.server.core.run import RunMachine

E = TypeVar("E")
NOTHING: dict[int, Verdict] = {}
SEATS = ((0, "c0"), (1, "c1"), (2, "c2"))
HELD: dict[Phase, tuple[type[Effect], ...]] = {  # what is not carried out, so that the phase lasts
    Phase.OPENING: (PrepareRound,), Phase.FOLDING: (FoldRound,), Phase.COMMITTING: (CommitRound,)
}  # fmt: skip


class Desk:
    """A machine and a shell that does what it says, at once and without fault, unless told to hold back."""

    def __init__(
        self, clients: int = 3, *, rounds: int = 2, cohort: int = 0, min_updates: int = 0, **rules: object
    ) -> None:
        size = cohort or clients
        self.now = 100.0
        self.machine = RunMachine(
            Rules(rounds=rounds, clients=clients, cohort=size, min_updates=min_updates or size, **rules)  # type: ignore[arg-type]
        )
        self.done: list[Effect] = []  # all effects so far
        self.held: list[Effect] = []  # those that were not carried out
        self.holding: tuple[type[Effect], ...] = ()
        self.rejected = NOTHING
        self.spooled: dict[int, bytes] = {}

    def post(self, event: Event) -> list[Effect]:
        """Give the machine an event; return what it decides, after carrying it out."""
        effects = self.machine.handle(event)
        for effect in effects:
            self.done.append(effect)
            if isinstance(effect, self.holding):
                self.held.append(effect)
            else:
                self.carry_out(effect)
        return effects

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case Persist(records=records):
                for record in records:
                    self.post(Persisted(record, self.now))
            case PrepareRound(round=number):
                received, self.spooled = tuple(self.spooled.items()), {}
                self.post(RoundPrepared(number, received, self.now))
            case FoldRound(round=number):
                self.post(Folded(number, self.rejected, self.now))
            case CommitRound(round=number):
                self.post(Committed(number, self.now))
            case TestModel(round=number):
                self.score(number)
            case _:
                pass

    def score(self, round: int, accuracy: float = 0.5) -> list[Effect]:
        """A test is over."""
        return self.post(Tested(round, (("global", Summary(accuracy, 1.0, 10)),), self.now))

    def release(self) -> None:
        """Carry out what was held back, and hold nothing back any more."""
        self.holding, held, self.held = (), self.held, []
        for effect in held:
            self.carry_out(effect)

    def gather(self, *names: str) -> Desk:
        """Start, let the clients come and be ready."""
        self.post(Started(self.now))
        ids = names or tuple(f"c{number}" for number in range(self.machine.rules.clients))
        for name in ids:
            self.post(Online(name, self.now))
        for seat in sorted(self.machine.roster.names):
            self.post(Ready(seat, 10, self.now))
        return self

    def deliver(self, *seats: int) -> None:
        for seat in seats:
            self.post(UpdateReceived(self.machine.round, seat, b"digest%d" % seat, self.now))

    def pass_time(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.post(Ticked(self.now))

    def pass_deadline(self) -> list[Effect]:
        assert self.machine.deadline is not None
        return self.pass_time(self.machine.deadline - self.now)

    def of(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.done if isinstance(effect, kind)]

    def records(self) -> list[object]:
        return [record for effect in self.of(Persist) for record in effect.records]

    def exits(self) -> list[Ended | None]:
        return [effect.ending for effect in self.of(Exit)]

    def verdicts(self) -> dict[int, Verdict]:
        """Outcomes of the last commit."""
        return {outcome.seat: outcome.verdict for outcome in self.of(CommitRound)[-1].outcomes}


def back(
    opened: ResumedRound | None,
    *,
    committed: int = 0,
    rounds: int = 3,
    closes: bool = False,
    **spooled: bytes,
) -> Desk:
    """Return a desk whose machine begins again with that, and with these updates in the spool."""
    desk = Desk(3, rounds=rounds, min_updates=2, closes=closes)
    desk.spooled = {int(name[1:]): digest for name, digest in spooled.items()}
    desk.post(Started(desk.now, SEATS, committed, opened, samples=dict.fromkeys(range(3), 10)))
    return desk


def desk_in(phase: Phase) -> Desk:
    """Return a desk whose machine stands in that phase of its first round; what was begun is held back."""
    desk = Desk(2, rounds=3)
    if phase is Phase.IDLE:
        return desk
    if phase is Phase.GATHERING:
        desk.post(Started(0.0))
        return desk
    desk.holding = HELD.get(phase, ())
    desk.gather()
    if phase is Phase.COMMITTED:
        desk.post(PauseAsked(desk.now))
    if phase in (Phase.FOLDING, Phase.COMMITTING, Phase.COMMITTED):
        desk.deliver(0, 1)
    if phase in (Phase.ENDING, Phase.ENDED):
        desk.holding = (Persist,) if phase is Phase.ENDING else ()
        desk.post(StopAsked("enough", desk.now))
        for effect in list(desk.held):  # what an operator wants is written down first
            desk.carry_out(effect)
    assert desk.machine.phase is phase
    return desk
