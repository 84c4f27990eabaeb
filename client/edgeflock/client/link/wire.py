"""Between messages and the client's values: what the server says, and what is told to it."""

from __future__ import annotations

from dataclasses import asdict

from edgeflock.client.costs import RoundCost
from edgeflock.client.keeping.outbox import OutboxEntry
from edgeflock.client.protocol import (
    Generation,
    Introduction,
    Offered,
    Parcel,
    Quarantine,
    ServerRefused,
    Settlement,
    Task,
    View,
    WantedBundle,
)
from edgeflock.common.datasets.kit.own import OwnPart
from edgeflock.common.errors import EdgeflockError, LayoutMismatch, MalformedMessage
from edgeflock.common.reason import Reason
from edgeflock.common.wire.messages import (
    REASONS,
    REASONS_BACK,
    choice_from_wire,
    code_to_wire,
    kind_from_wire,
    package_from_wire,
    package_to_wire,
    scope_from_wire,
    score_to_wire,
    verdict_from_wire,
)
from edgeflock.common.wire.transport import spoken
from edgeflock.methods.kit.values import Plan
from edgeflock.v1 import aggregator_pb2 as pb

_LONGEST = 500  # characters of a sentence
_came: dict[int, bytes] = {}  # what came with a task last, by its size


# ------------------------------------------------------------------------------------------------ heard


def refused(message: pb.Refusal) -> ServerRefused:
    """Return a refusal as what is raised for it."""
    reason = REASONS_BACK.get(message.reason)
    words = f"the server refused: {reason or f'reason {message.reason}'}"
    return ServerRefused(
        reason,
        message.sentence or words,
        temporary=message.temporary,
        retry_after_ms=message.retry_after_ms,
    )


def settlement(message: pb.Outcome) -> Settlement:
    return Settlement(message.round, message.digest, verdict_from_wire(message))


def view(message: pb.View) -> View:
    """Return the whole of a view."""
    over = message.state == pb.RUN_STATE_FINISHED or message.HasField("ending")
    quarantine, standing = message.quarantine, message.standing
    return View(
        round=message.round,
        seat=message.seat.index if message.HasField("seat") else None,
        draining=message.state == pb.RUN_STATE_DRAINING,
        task=_task(message.task) if message.HasField("task") else None,
        settled=tuple(map(settlement, message.outcomes)),
        standing=Generation(standing.round, standing.digest) if message.HasField("standing") else None,
        ending=(message.ending.reason or "the run is over") if over else None,
        failed=message.ending.kind == pb.ENDING_KIND_FAILED,
        quarantine=Quarantine(quarantine.until_round, quarantine.reason) if quarantine.until_round else None,
        offer=Offered(message.offer.round, message.offer.best) if message.HasField("offer") else None,
        return_within_ms=message.return_within_ms,
    )


def _task(message: pb.Task) -> Task:
    """Return a task; one that makes no sense is a task, too: it is refused."""
    try:
        return Task(
            round=message.round,
            plan=_plan(message),
            parcels=tuple(map(_parcel, message.downloads)),
            uploads=tuple(map(_wanted, message.uploads)),
            closing=message.closing,
            scores=tuple(message.scores),
            allowances=dict(message.allowances),
        )
    except MalformedMessage as error:
        return Task(round=message.round, closing=message.closing, fault=error)


def _plan(message: pb.Task) -> Plan:
    return Plan(
        lr=message.lr,
        epochs=message.epochs,
        steps=message.steps if message.HasField("steps") else None,
        batch_size=message.batch_size,
        momentum=message.momentum,
        weight_decay=message.weight_decay,
        clip=message.clip,
        flags=dict(message.flags),
    )


def _parcel(message: pb.Download) -> Parcel:
    package = package_from_wire(message.package) if message.HasField("package") else None
    return Parcel(scope_from_wire(message.scope), package, _once(message.payload))


def _once(payload: bytes) -> bytes:
    """Return the same bytes for all who got the same: of a round, one model for all clients of a process."""
    kept = _came.get(len(payload))
    if payload and kept != payload:
        _came.clear()
        kept = _came[len(payload)] = payload
    return kept or payload


def _wanted(message: pb.Upload) -> WantedBundle:
    return WantedBundle(kind_from_wire(message.kind), message.layout_digest, choice_from_wire(message.codec))


# ------------------------------------------------------------------------------------------------ told


def join_request(who: Introduction, software: str, *, digests: bool) -> pb.JoinRequest:
    least, newest = spoken()
    return pb.JoinRequest(
        protocol=newest,
        protocol_least=least,
        digests=digests,
        software=software,
        client_id=who.client_id,
        instance_id=who.instance,
        life=who.life,
        saves=who.saves,
        moves=True,
        own_data=None if who.own is None else _own_data(who.own),
        device=pb.Device(**asdict(who.device)),
        code=code_to_wire(who.code),
    )


def _own_data(own: OwnPart) -> pb.OwnData:
    return pb.OwnData(samples=len(own.train), input_shape=own.input_shape, highest_label=own.highest_label)


def update_header(entry: OutboxEntry, session: bytes, previous: RoundCost | None) -> pb.UpdateHeader:
    """Return an update's header, with the costs of the round before, if these are owed."""
    described = entry.description
    return pb.UpdateHeader(
        session=session,
        round=described.round,
        package=package_to_wire(described.package),
        samples=described.samples,
        cost=pb.TrainCost(**entry.cost.fields()),
        previous=None if previous is None else round_cost(previous),
        scores=[score_to_wire(score) for score in described.scores],
        made_from=described.made_from,
        moves_state=described.moved,
    )


def round_cost(cost: RoundCost) -> pb.RoundCost:
    return pb.RoundCost(**cost.fields())


def task_refused(round: int, error: EdgeflockError) -> pb.TaskRefused:
    """Return why this client cannot do a task."""
    reason = Reason.WRONG_LAYOUT if isinstance(error, LayoutMismatch) else Reason.REFUSED_BY_CLIENT
    refusal = pb.Refusal(reason=REASONS[reason], sentence=str(error)[:_LONGEST])
    return pb.TaskRefused(round=round, refusal=refusal)
