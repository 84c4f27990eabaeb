"""What the operator and the dashboard are told: where the run is, and what every client does."""

from __future__ import annotations

import math
import time

from edgeflock.server.core.phases import Phase
from edgeflock.server.engine.engine import Engine
from edgeflock.server.service.sessions import Session
from edgeflock.server.service.views import quarantine_of, run_state
from edgeflock.v1 import aggregator_pb2
from edgeflock.v1 import control_pb2 as pb

_AT_HAND = (Phase.OPENING, Phase.OPEN, Phase.FOLDING, Phase.COMMITTING)
_DEVICE = frozenset(aggregator_pb2.Device.DESCRIPTOR.fields_by_name)


def status_of(engine: Engine, run_id: str, run_dir: str) -> pb.StatusResponse:
    """Return the whole status, as it is now."""
    machine, now = engine.machine, time.monotonic()
    reason = machine.ending.reason if machine.ending is not None else machine.pause
    status = pb.StatusResponse(
        run_id=run_id,
        run_dir=run_dir,
        state=run_state(engine),
        reason=reason,
        round=machine.trained,
        rounds=machine.rules.rounds,
        clients=machine.rules.clients,
        members=_members(engine, now),
        method=engine.learner.method.name,
        budgets=_budgets(engine),
    )
    if machine.phase in _AT_HAND:
        status.open.CopyFrom(_open_round(engine, now))
    return status


def _open_round(engine: Engine, now: float) -> pb.OpenRound:
    machine, opened = engine.machine, engine.opened
    found = pb.OpenRound(round=machine.round, phase=str(machine.phase), closing=bool(machine.over))
    if opened is not None and opened.number == machine.round:
        found.elapsed_s = now - opened.began
    if machine.deadline is not None:
        found.remaining_s = max(0.0, machine.deadline - now)
    return found


def _budgets(engine: Engine) -> list[pb.BudgetShare]:
    shares = engine.accounts.shares().items()
    return [pb.BudgetShare(name=name, used=used, limit=limit) for name, (used, limit) in shares]


def _members(engine: Engine, now: float) -> list[pb.ClientStatus]:
    """Return all who have a seat, by seat, then those who are here without one."""
    seats, cohort = engine.machine.roster, frozenset(engine.machine.current.cohort)
    seated = [_seated(engine, name, seat, seat in cohort) for seat, name in sorted(seats.names.items())]
    waiting = sorted(seats.online - set(seats.seat_of))
    members = seated + [pb.ClientStatus(client_id=name, online=True) for name in waiting]
    for member in members:
        if (session := engine.sessions.by_id(member.client_id)) is not None:
            _describe(member, session, now)
            if engine.machine.phase is Phase.OPEN and member.in_cohort and not member.received:
                _add_work(member, session, engine.machine.round)
    return members


def _seated(engine: Engine, client_id: str, seat: int, in_cohort: bool) -> pb.ClientStatus:
    machine, conduct = engine.machine, engine.machine.conduct.known(seat)
    return pb.ClientStatus(
        client_id=client_id,
        index=seat,
        seated=True,
        online=client_id in machine.roster.online,
        ready=seat in machine.roster.ready,
        samples=engine.samples.get(seat, 0),
        in_cohort=in_cohort,
        received=seat in machine.current.received,
        refused=seat in machine.current.refused,
        bad_updates=conduct.refused if conduct is not None else 0,
        quarantine=quarantine_of(engine, seat),
    )


def _add_work(member: pb.ClientStatus, session: Session, round: int) -> None:
    """Say how far its training and its upload are."""
    said = session.progress
    if said.round == round:
        member.steps_done, member.steps_total = min(said.steps_done, said.steps_total), said.steps_total
        member.cpu_s = said.cpu_s if math.isfinite(said.cpu_s) else 0.0
        if said.HasField("temperature_c") and math.isfinite(said.temperature_c):
            member.temperature_c = said.temperature_c
    if session.fetching is not None:
        member.download_sent, member.download_size = session.fetching
    if session.arriving is not None:
        entry, member.upload_size = session.arriving
        member.upload_held = entry.held


def _describe(member: pb.ClientStatus, session: Session, now: float) -> None:
    """Add what its session knows of it."""
    member.unseen_s = max(0.0, now - session.seen)
    member.software = session.software
    known = {name: value for name, value in session.device.items() if name in _DEVICE}
    member.device.CopyFrom(aggregator_pb2.Device(**known))  # type: ignore[arg-type]
