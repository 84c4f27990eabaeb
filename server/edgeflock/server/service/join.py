"""What a client must be to take part: the checks of a Join and of a Ready report, whatever the run is at."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from edgeflock.common.client_id import WORDS, is_client_id
from edgeflock.common.plugins.digest import differences
from edgeflock.common.reason import Reason
from edgeflock.common.run import RunDescription
from edgeflock.common.tasks.kit import registry as tasks
from edgeflock.common.tuning.tuning import Tuning
from edgeflock.common.wire.messages import (
    augment_from_wire,
    code_from_wire,
    task_from_wire,
    tuning_from_wire,
)
from edgeflock.common.wire.transport import Revisions, common_revision, in_words, spoken
from edgeflock.server.core.refusal import Refused
from edgeflock.v1 import aggregator_pb2 as pb

_INSTANCE_BYTES = 16
_MOST_TOLD = 10_000  # clients

log = structlog.get_logger()


def check_join(request: pb.JoinRequest, software: str) -> Refused | None:
    """Return why the request cannot be taken, whatever the state of the run."""
    if revision(request) is None:
        theirs = in_words(_revisions(request))
        return Refused(
            Reason.VERSION,
            f"you speak revision {theirs} of edgeflock.v1 (edgeflock {request.software[:40]}), "
            f"this server speaks {in_words(spoken())} (edgeflock {software})",
        )
    if not is_client_id(request.client_id):
        shown = request.client_id[:80].encode("unicode_escape").decode()
        return Refused(
            Reason.BAD_CLIENT_ID,
            f"{shown!r} is no client id: allowed is {WORDS}",
        )
    if len(request.instance_id) != _INSTANCE_BYTES:
        return Refused(Reason.MALFORMED, f"instance_id has {len(request.instance_id)} bytes, not 16")
    return None


def revision(request: pb.JoinRequest) -> int | None:
    """Return the revision that is spoken with this client, if there is one."""
    return common_revision(spoken(), _revisions(request))


def _revisions(request: pb.JoinRequest) -> Revisions:
    return request.protocol_least or request.protocol, request.protocol


def check_data(request: pb.JoinRequest, run: RunDescription) -> Refused | None:
    """Return why the client's data do not fit the run."""
    if not request.HasField("own_data"):
        if run.data is not None:
            return None
        return Refused(Reason.WRONG_DATA, "this run names no data set: start the client with --data FILE")
    own, model = request.own_data, run.model
    if own.samples < 1:
        return Refused(Reason.WRONG_DATA, "own data without samples cannot take part")
    if _sides(own.input_shape) != _sides(model.input_shape):
        said = f"your samples have shape {list(own.input_shape)}, this run's have {list(model.input_shape)}"
        rows = len(own.input_shape) == len(model.input_shape) == 1
        hint = ": of a table --label and --columns say which columns they are" if rows else ""
        if run.data is not None:
            hint = f", those of {run.data.dataset}: for others the server needs --eval-data or --input-shape"
        return Refused(Reason.WRONG_DATA, said + hint)
    if tasks.load(model.task).classes and own.highest_label >= model.classes:
        return Refused(
            Reason.WRONG_DATA,
            f"your labels go up to {own.highest_label}, this run has classes 0 to {model.classes - 1}",
        )
    return None


def check_code(request: pb.JoinRequest, run: RunDescription, *, same: bool) -> Refused | None:
    """Return why the client's foreign code cannot be taken, where it has to be the same."""
    if not same or not (found := code_differences(request, run)):
        return None
    return Refused(Reason.OTHER_CODE, f"{'; '.join(found)}: this server wants the same (--same-code)")


def code_differences(request: pb.JoinRequest, run: RunDescription) -> list[str]:
    """Return in sentences what the client has otherwise of the code that the run names."""
    return list(differences(run.code, code_from_wire(request.code)))


class Differing:
    """Says once of each client that its foreign code is not the server's."""

    def __init__(self, note: Callable[..., None]) -> None:
        self._note = note
        self._told: dict[str, list[str]] = {}

    def tell(self, client: str, found: list[str]) -> None:
        if found and self._told.get(client) != found and len(self._told) < _MOST_TOLD:
            self._told[client] = found
            self._note("code_differs", client=client, reason="; ".join(found))
            log.warning("code_differs", client=client, reason="; ".join(found))


def check_ready(report: pb.Ready, run: RunDescription) -> Refused | None:
    """Return why the client's model or shard cannot be right."""
    if report.layout_digest != run.layouts.parameters.digest:
        return Refused(
            Reason.WRONG_LAYOUT,
            f"your model {run.model.name!r} has another layout than the server's: compare the versions",
        )
    if augment_from_wire(report.augment) != run.augment:
        return Refused(
            Reason.VERSION,
            f"this run augments its pictures ({run.augment}), which your edgeflock does not do: "
            "bring it up to date",
        )
    if task_from_wire(report.task) != run.model.task:
        return Refused(
            Reason.VERSION,
            f"this run is of the task {run.model.task}, which your edgeflock does not know: "
            "bring it up to date",
        )
    if tuning_from_wire(report.tuning) != run.tuning:
        return Refused(
            Reason.VERSION,
            f"this run trains with {_tuned(run.tuning)}, which your edgeflock does not know: "
            "bring it up to date",
        )
    if len(report.class_counts) > run.model.classes or sum(report.class_counts) not in (0, report.samples):
        return Refused(Reason.MALFORMED, "class_counts do not add up to samples")
    return None


def _tuned(tuning: Tuning) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in vars(tuning).items() if text)


def _sides(shape: Iterable[int]) -> list[int]:
    """A channel dimension of one may be missing or too many."""
    return [side for side in shape if side != 1]
