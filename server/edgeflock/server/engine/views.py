"""Views of a run: all that one client may know, and what operators see; frozen values, made when asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from edgeflock.server.core.decisions import Conduct, Ended, Outcome
from edgeflock.server.core.phases import Phase
from edgeflock.server.core.run import RunMachine
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.results import Offer, offered
from edgeflock.server.learning.work import RoundWork


class RunState(StrEnum):
    """Where a run is, for everybody; the names of the wire's states."""

    GATHERING = "gathering"
    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"
    FINISHED = "finished"


@dataclass(frozen=True)
class ClientView:
    """All that one client may know of the run. Two views are equal if there is no news between them."""

    round: int = field(compare=False)  # the last one opened: no news for who has no task in it
    state: RunState
    pause: str  # why no round goes on
    seat: int | None
    seats: int
    conduct: Conduct | None  # why it takes no part; None: it does
    outcomes: tuple[tuple[int, Outcome], ...]  # the last two, each with its round
    standing: tuple[int, Outcome] | None  # the last one that moved its own state, with its round
    ending: Ended | None
    work: RoundWork | None  # its task
    offer: Offer | None  # a model that it may fetch to keep
    deadline: float | None = field(compare=False)  # of that
    online: int = field(compare=False)  # clients that are here


@dataclass(frozen=True)
class MemberStatus:
    """One client as an operator sees it."""

    client_id: str
    online: bool
    seat: int | None = None
    ready: bool = False
    samples: int = 0
    in_cohort: bool = False
    received: bool = False
    refused: bool = False
    conduct: Conduct | None = None  # its bad updates
    held: bool = False  # in quarantine


@dataclass(frozen=True)
class RunStatus:
    """The run as an operator sees it."""

    state: RunState
    phase: Phase
    reason: str  # of a pause, or of the ending
    round: int  # the last one opened
    committed: int
    trained: int  # committed rounds of training
    rounds: int
    clients: int
    method: str
    over: str  # why training is over
    began: float | None  # when it was decided to open the round at hand
    deadline: float | None
    ending: Ended | None
    members: tuple[MemberStatus, ...]  # all who have a seat, by seat, then those who are here without one
    budgets: Mapping[str, Sequence[float]]  # used, limit


def view_of(engine: Engine, client_id: str, saves: str = "") -> ClientView:
    """Return all that a client may know now."""
    machine = engine.machine
    seat = machine.roster.seat_of.get(client_id)
    busy = seat is not None and machine.has_task(seat) and not machine.draining
    return ClientView(
        round=machine.round,
        state=_state(machine),
        pause=machine.pause,
        seat=seat,
        seats=machine.roster.seats,
        conduct=None if seat is None else machine.quarantined(seat),
        outcomes=() if seat is None else tuple(engine.means.verdicts.last(seat)),
        standing=None if seat is None else engine.means.verdicts.standing(seat),
        ending=machine.ending,
        work=engine.opened.work if busy and engine.opened is not None else None,
        offer=None if seat is None else offered(machine, saves),
        deadline=machine.deadline,
        online=len(machine.roster.online),
    )


def status_of(engine: Engine) -> RunStatus:
    """Return where the run is, and everybody in it."""
    machine, opened = engine.machine, engine.opened
    return RunStatus(
        state=_state(machine),
        phase=machine.phase,
        reason=machine.ending.reason if machine.ending is not None else machine.pause,
        round=machine.round,
        committed=machine.committed,
        trained=machine.trained,
        rounds=machine.rules.rounds,
        clients=machine.roster.seats - len(machine.roster.vacant),
        method=engine.means.learner.method.name,
        over=machine.over,
        began=opened.began if opened is not None and opened.number == machine.round else None,
        deadline=machine.deadline,
        ending=machine.ending,
        members=_members(machine, engine.means.samples),
        budgets=engine.means.bookkeeping.spending.spent().shares,
    )


def _state(machine: RunMachine) -> RunState:
    if machine.ending is not None:
        return RunState.FINISHED
    if machine.draining:
        return RunState.DRAINING
    if machine.pause:
        return RunState.PAUSED
    gathering = machine.phase in (Phase.IDLE, Phase.GATHERING)
    return RunState.GATHERING if gathering else RunState.RUNNING


def _members(machine: RunMachine, samples: Mapping[int, int]) -> tuple[MemberStatus, ...]:
    roster, current, cohort = machine.roster, machine.current, frozenset(machine.current.cohort)
    seated = [
        MemberStatus(
            client_id,
            online=client_id in roster.online,
            seat=seat,
            ready=seat in roster.ready,
            samples=samples.get(seat, 0),
            in_cohort=seat in cohort,
            received=seat in current.received,
            refused=seat in current.refused,
            conduct=machine.conduct.known(seat),
            held=machine.quarantined(seat) is not None,
        )
        for seat, client_id in sorted(roster.names.items())
        if seat not in roster.vacant
    ]
    waiting = sorted(roster.online - set(roster.seat_of))
    return (*seated, *(MemberStatus(name, online=True) for name in waiting))
