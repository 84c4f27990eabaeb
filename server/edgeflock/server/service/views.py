"""Views as messages: what each client is told of the run."""

from __future__ import annotations

import time
from functools import lru_cache

from edgeflock.common.wire import chunks
from edgeflock.common.wire.messages import choice_to_wire, kind_to_wire, package_to_wire, verdict_to_wire
from edgeflock.server.core.decisions import Conduct, EndingKind, Outcome
from edgeflock.server.engine.views import ClientView, RunState
from edgeflock.server.files.packages import Broadcast
from edgeflock.server.learning.work import RoundWork
from edgeflock.v1 import aggregator_pb2 as pb

# Clients of a server that goes down spread their return: so long for each of them. Of many each has less, and
# never less than twice what its Join costs the server.
RETURN_MS_EACH, RETURN_MS_LEAST = 10, 2
RETURN_UNHURRIED_MS = 10_000

_STATES = {state: pb.RunState.Value(f"RUN_STATE_{state.name}") for state in RunState}
_ENDINGS = {kind: pb.EndingKind.Value(f"ENDING_KIND_{kind.name}") for kind in EndingKind}


def view_to_wire(view: ClientView) -> pb.View:
    """Return a whole view as a message; what its task has to fetch is not in it."""
    message = _beside_task(view)
    if view.work is not None:
        message.task.CopyFrom(_named(view.work))
        message.task.remaining_ms = _remaining_ms(view)
    return message


Parted = tuple[bytes, bytes, bytes]  # an answer: what is before the task, what the task is for all, the rest


def view_with_payload(view: ClientView) -> Parted:
    """Return the whole answer with a view and the package of its task, written past protobuf's copies."""
    assert view.work is not None  # `inline` has said so
    task = (_complete(view.work), pb.Task(remaining_ms=_remaining_ms(view)).SerializeToString())
    around = _beside_task(view).SerializeToString()
    inner = (around, chunks.head(pb.View.TASK_FIELD_NUMBER, sum(map(len, task))))
    size = sum(map(len, (*inner, *task)))
    return b"".join((chunks.head(pb.WatchResponse.VIEW_FIELD_NUMBER, size), *inner)), *task


def _beside_task(view: ClientView) -> pb.View:
    message = pb.View(round=view.round, state=state_to_wire(view.state), reason=view.pause)
    if view.state is RunState.DRAINING:
        message.return_within_ms = spread_ms(view.online)
    if view.ending is not None:
        message.ending.CopyFrom(pb.Ending(kind=_ENDINGS[view.ending.kind], reason=view.ending.reason))
    if view.seat is not None:
        message.seat.CopyFrom(pb.Seat(index=view.seat, seats=view.seats))
    if view.conduct is not None:
        message.quarantine.CopyFrom(quarantine_to_wire(view.conduct))
    message.outcomes.extend(outcome_to_wire(*told) for told in view.outcomes)
    _say_standing(message, view)
    if view.offer is not None:
        message.offer.CopyFrom(pb.Offer(round=view.offer.round, best=view.offer.best))
    return message


def spread_ms(clients: int) -> int:
    """Return over how long so many clients spread their return."""
    return max(RETURN_MS_LEAST * clients, min(RETURN_UNHURRIED_MS, RETURN_MS_EACH * clients))


def inline(view: ClientView) -> int:
    """Return how many bytes of payload go with the first view of a task."""
    return 0 if view.work is None else len(view.work.shared.inline)


def state_to_wire(state: RunState) -> pb.RunState.ValueType:
    return _STATES[state]


def quarantine_to_wire(conduct: Conduct) -> pb.Quarantine:
    return pb.Quarantine(until_round=conduct.until, reason=conduct.reason)


def outcome_to_wire(round: int, outcome: Outcome) -> pb.Outcome:
    return verdict_to_wire(round, outcome.digest, outcome.verdict)


def _say_standing(message: pb.View, view: ClientView) -> None:
    """Say where the client's own state must be, unless a client of before has not said enough."""
    if view.seat is None:
        return
    if view.standing is None:
        message.standing.SetInParent()
    elif view.standing[1].moved:
        message.standing.round, message.standing.digest = view.standing[0], view.standing[1].digest


def _remaining_ms(view: ClientView) -> int:
    """The one thing of a round's task that differs from view to view."""
    return 0 if view.deadline is None else int(max(0.0, view.deadline - time.monotonic()) * 1000)


@lru_cache(maxsize=2)
def _complete(work: RoundWork) -> bytes:
    return task_of(work).SerializeToString()


@lru_cache(maxsize=2)
def _named(work: RoundWork) -> pb.Task:
    task = task_of(work)
    for download in task.downloads:
        download.ClearField("payload")
    return task


def task_of(work: RoundWork) -> pb.Task:
    """Return the task of an open round, with the package that may go along."""
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
    if work.base is not None:
        task.downloads.append(_download(pb.SCOPE_BASE, work.base))
    if work.personal:
        task.downloads.append(pb.Download(scope=pb.SCOPE_PERSONAL))
    for spec in work.uploads:
        codec = choice_to_wire(spec.codec)
        task.uploads.add(kind=kind_to_wire(spec.kind), layout_digest=spec.layout.digest, codec=codec)
    return task


def _download(scope: pb.Scope.ValueType, broadcast: Broadcast) -> pb.Download:
    payload = broadcast.inline if scope == pb.SCOPE_SHARED else b""
    return pb.Download(scope=scope, package=package_to_wire(broadcast.package), payload=payload)
