"""The status as a message: where the run is, and what every client does, as far as its session tells."""

from __future__ import annotations

import math
import time

from edgeflock.server.core.phases import Phase
from edgeflock.server.engine.intake import Intake
from edgeflock.server.engine.views import MemberStatus, RunStatus
from edgeflock.server.service.sessions import Session, Sessions
from edgeflock.server.service.views import quarantine_to_wire, state_to_wire
from edgeflock.v1 import aggregator_pb2
from edgeflock.v1 import control_pb2 as pb

_AT_HAND = (Phase.OPENING, Phase.OPEN, Phase.FOLDING, Phase.COMMITTING)
_DEVICE = frozenset(aggregator_pb2.Device.DESCRIPTOR.fields_by_name)


def status_of(intake: Intake, sessions: Sessions, run_id: str, run_dir: str) -> pb.StatusResponse:
    """Return the whole status, as it is now."""
    run, now = intake.status(), time.monotonic()
    shares = run.budgets.items()
    status = pb.StatusResponse(
        run_id=run_id,
        run_dir=run_dir,
        state=state_to_wire(run.state),
        reason=run.reason,
        round=run.trained,
        rounds=run.rounds,
        clients=run.clients,
        members=[_member(run, one, sessions.by_id(one.client_id), now) for one in run.members],
        method=run.method,
        budgets=[pb.BudgetShare(name=name, used=used, limit=limit) for name, (used, limit) in shares],
    )
    if run.phase in _AT_HAND:
        status.open.CopyFrom(_open_round(run, now))
    return status


def _open_round(run: RunStatus, now: float) -> pb.OpenRound:
    found = pb.OpenRound(round=run.round, phase=str(run.phase), closing=bool(run.over))
    if run.began is not None:
        found.elapsed_s = now - run.began
    if run.deadline is not None:
        found.remaining_s = max(0.0, run.deadline - now)
    return found


def _member(run: RunStatus, one: MemberStatus, session: Session | None, now: float) -> pb.ClientStatus:
    member = pb.ClientStatus(
        client_id=one.client_id,
        index=one.seat or 0,
        seated=one.seat is not None,
        online=one.online,
        ready=one.ready,
        samples=one.samples,
        in_cohort=one.in_cohort,
        received=one.received,
        refused=one.refused,
        bad_updates=one.conduct.refused if one.conduct is not None else 0,
    )
    if one.held and one.conduct is not None:
        member.quarantine.CopyFrom(quarantine_to_wire(one.conduct))
    if session is not None:
        _describe(member, session, now)
        if run.phase is Phase.OPEN and one.in_cohort and not one.received:
            _add_work(member, session, run.round)
    return member


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
        member.upload_held, member.upload_size = session.arriving.held, session.arriving.size


def _describe(member: pb.ClientStatus, session: Session, now: float) -> None:
    """Add what its session knows of it."""
    member.unseen_s = max(0.0, now - session.seen)
    member.software = session.software
    known = {name: value for name, value in session.device.items() if name in _DEVICE}
    member.device.CopyFrom(aggregator_pb2.Device(**known))  # type: ignore[arg-type]
