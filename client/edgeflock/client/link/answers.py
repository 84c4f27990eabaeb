"""What the server answers, as values: refusals as an exception, its view as the session's."""

from __future__ import annotations

from edgeflock.client.deciding.session import Settlement, View
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.wire.messages import verdict_from_wire
from edgeflock.v1 import aggregator_pb2 as pb

Reason = pb.Reason


class ServerRefused(EdgeflockError):
    """The server refused; `temporary` means that nothing is lost and the same may be tried again."""

    def __init__(self, refusal: pb.Refusal) -> None:
        super().__init__(refusal.sentence or f"the server refused: {reason_name(refusal.reason)}")
        self.reason = refusal.reason
        self.temporary = refusal.temporary
        self.retry_after_ms = refusal.retry_after_ms


def reason_name(reason: int) -> str:
    """Return a reason as words for the log, also one that this version does not know."""
    known = reason in Reason.values()
    return (
        Reason.Name(Reason.ValueType(reason)).removeprefix("REASON_").lower() if known else f"reason {reason}"
    )


def settlement(outcome: pb.Outcome) -> Settlement:
    return Settlement(outcome.round, outcome.digest, verdict_from_wire(outcome))


def view(message: pb.View) -> View:
    return View(
        round=message.round,
        seated=message.HasField("seat"),
        draining=message.state == pb.RUN_STATE_DRAINING,
        task=message.task.round if message.HasField("task") else None,
        closing=message.task.closing,
        settled=tuple(map(settlement, message.outcomes)),
        ending=(message.ending.reason or "the run is over") if _over(message) else None,
        failed=message.ending.kind == pb.ENDING_KIND_FAILED,
    )


def _over(message: pb.View) -> bool:
    return message.state == pb.RUN_STATE_FINISHED or message.HasField("ending")
