"""What each client is told: its View of the run, made from the machine's state."""

from __future__ import annotations

import time
from functools import lru_cache

from edgeflock.common.wire.messages import choice_to_wire, kind_to_wire, package_to_wire
from edgeflock.server.core.decisions import EndingKind, Outcome, Verdict
from edgeflock.server.core.phases import Phase
from edgeflock.server.engine.engine import Engine
from edgeflock.server.files.packages import Broadcast
from edgeflock.server.learning.work import RoundWork
from edgeflock.v1 import aggregator_pb2 as pb

# Clients of a server that goes down spread their return: so long for each of them, at most so long.
RETURN_MS_EACH = 10
RETURN_WITHIN_MS = 10_000

_ENDINGS = {
    EndingKind.COMPLETED: pb.ENDING_KIND_COMPLETED,
    EndingKind.STOPPED: pb.ENDING_KIND_STOPPED,
    EndingKind.FAILED: pb.ENDING_KIND_FAILED,
}
_REASONS = {
    Verdict.COUNTED: pb.REASON_UNSPECIFIED,
    Verdict.LATE: pb.REASON_LATE,
    Verdict.NON_FINITE: pb.REASON_NON_FINITE,
    Verdict.MALFORMED: pb.REASON_MALFORMED,
    Verdict.DISCARDED: pb.REASON_DISCARDED,
    Verdict.REFUSED_BY_CLIENT: pb.REASON_REFUSED_BY_CLIENT,
    Verdict.QUARANTINED: pb.REASON_QUARANTINED,
}


def run_state(engine: Engine) -> pb.RunState.ValueType:
    """Return the run's state in the wire's words."""
    machine = engine.machine
    if machine.phase is Phase.ENDED and machine.ending is not None:
        return pb.RUN_STATE_FINISHED
    if machine.draining:
        return pb.RUN_STATE_DRAINING
    if machine.pause:
        return pb.RUN_STATE_PAUSED
    gathering = machine.phase in (Phase.IDLE, Phase.GATHERING)
    return pb.RUN_STATE_GATHERING if gathering else pb.RUN_STATE_RUNNING


def view_of(engine: Engine, client_id: str) -> pb.View:
    """Return the whole current view of one client."""
    machine = engine.machine
    view = pb.View(round=machine.round, state=run_state(engine), reason=machine.pause)
    if view.state == pb.RUN_STATE_DRAINING:
        view.return_within_ms = min(RETURN_WITHIN_MS, RETURN_MS_EACH * len(machine.roster.online))
    if machine.phase is Phase.ENDED and machine.ending is not None:
        view.ending.CopyFrom(pb.Ending(kind=_ENDINGS[machine.ending.kind], reason=machine.ending.reason))
    seat = machine.roster.seat_of.get(client_id)
    if seat is not None:
        view.seat.CopyFrom(pb.Seat(index=seat, seats=machine.rules.clients))
        if (quarantine := quarantine_of(engine, seat)) is not None:
            view.quarantine.CopyFrom(quarantine)
        view.outcomes.extend(outcome_to_wire(*told) for told in engine.verdicts.last(seat))
        if machine.has_task(seat) and engine.opened is not None and not machine.draining:
            view.task.CopyFrom(_task(engine, engine.opened.work))
    return view


def quarantine_of(engine: Engine, seat: int) -> pb.Quarantine | None:
    """Return the quarantine that a client is in, if it is in one."""
    conduct = engine.machine.quarantined(seat)
    return pb.Quarantine(until_round=conduct.until, reason=conduct.reason) if conduct else None


def send_once(view: pb.View, last: pb.View | None) -> None:
    """A small package goes with the first view of its task only."""
    if last is not None and last.task.round == view.task.round:
        for download in view.task.downloads:
            download.ClearField("payload")


def same(view: pb.View, other: pb.View) -> bool:
    """Whether two views say the same; the time left is not news."""
    if view.task.round != other.task.round or view.outcomes != other.outcomes or view.seat != other.seat:
        return False
    names = ("round", "state", "reason", "ending", "quarantine")
    return all(getattr(view, name) == getattr(other, name) for name in names)


def outcome_to_wire(round: int, outcome: Outcome) -> pb.Outcome:
    counted = outcome.verdict is Verdict.COUNTED
    return pb.Outcome(round=round, digest=outcome.digest, counted=counted, reason=_REASONS[outcome.verdict])


def _task(engine: Engine, work: RoundWork) -> pb.Task:
    """The task of the open round; only the time left differs from view to view."""
    deadline = engine.machine.deadline
    remaining = 0.0 if deadline is None else max(0.0, deadline - time.monotonic())
    task = pb.Task()
    task.CopyFrom(task_of(work))
    task.remaining_ms = int(remaining * 1000)
    return task


@lru_cache(maxsize=2)
def task_of(work: RoundWork) -> pb.Task:
    plan = work.plan
    task = pb.Task(
        round=work.round.number,
        epochs=plan.epochs,
        steps=plan.steps,
        batch_size=plan.batch_size,
        lr=plan.lr,
        momentum=plan.momentum,
        weight_decay=plan.weight_decay,
        clip=plan.clip,
        flags=plan.flags,
        closing=work.round.closing,
        scores=work.scores,
        allowances=work.allowances,
        upload_limit_bytes=work.upload_limit,
    )
    task.downloads.append(_download(pb.SCOPE_SHARED, work.shared))
    if work.optional is not None:
        task.downloads.append(_download(pb.SCOPE_OPTIONAL, work.optional))
    if work.personal:
        task.downloads.append(pb.Download(scope=pb.SCOPE_PERSONAL))
    for spec in work.uploads:
        codec = choice_to_wire(spec.codec)
        task.uploads.add(kind=kind_to_wire(spec.kind), layout_digest=spec.layout.digest, codec=codec)
    return task


def _download(scope: pb.Scope.ValueType, broadcast: Broadcast) -> pb.Download:
    payload = broadcast.inline if scope == pb.SCOPE_SHARED else b""
    return pb.Download(scope=scope, package=package_to_wire(broadcast.package), payload=payload)
