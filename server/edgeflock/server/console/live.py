"""What a run does at this moment, in one line: from the server's status. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgeflock.common.command.crowd import some
from edgeflock.common.command.terminal import Line, Piece, length, spark
from edgeflock.server.console.rows import share
from edgeflock.server.web.members import doing
from edgeflock.v1 import aggregator_pb2
from edgeflock.v1 import control_pb2 as pb

Part = Sequence[Line]  # what is said of one thing, the fullest form first
_DROPPED: Part = ((),)
_SPARKS = (24, 12, 6)
_PHASES = {
    "opening": "is being opened",
    "folding": "updates are added up",
    "committing": "is being written down",
}


@dataclass(frozen=True)
class Moment:
    """What is known at this moment."""

    status: pb.StatusResponse
    waited_s: float  # in the same state; for an open round, since it was decided to open it
    values: Sequence[float] = ()  # of the rounds so far, of what the model is judged by
    start: str = ""  # what to type where a client is missing
    unicode: bool = True


def line(moment: Moment, width: int | None) -> Line:
    """Return the line, in the fullest form for which there is room."""
    parts = list(_parts(moment))
    return _fitted(parts, width)


def kind(status: pb.StatusResponse) -> tuple[int, int]:
    """Return what a moment is of: as long as it is the same, it goes on."""
    return status.state, status.open.round


def seconds(value: float) -> str:
    """Return whole seconds for people."""
    whole = int(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole // 60 % 60:02d} h"


def _fitted(parts: list[Part], width: int | None) -> Line:
    """Take from the last parts first: what stands before them is more important."""
    chosen = [0] * len(parts)
    for number in reversed(range(1, len(parts))):
        while width is not None and length(_joined(parts, chosen)) > width:
            if chosen[number] == len(parts[number]) - 1:
                break
            chosen[number] += 1
    return _joined(parts, chosen)


def _joined(parts: Sequence[Part], chosen: Sequence[int]) -> Line:
    said = [part[form] for part, form in zip(parts, chosen, strict=True) if part[form]]
    return [
        piece for number, piece_line in enumerate(said) for piece in (_gap(number), *piece_line) if piece[0]
    ]


def _gap(number: int) -> Piece:
    return ("  " if number else "", "")


def _parts(moment: Moment) -> Iterator[Part]:
    status = moment.status
    match status.state:
        case aggregator_pb2.RUN_STATE_PAUSED:
            yield ([(f"paused: {status.reason}", "warning")],)
        case aggregator_pb2.RUN_STATE_DRAINING:
            yield ([("the run is being parked", "live")],)
        case aggregator_pb2.RUN_STATE_FINISHED:
            here = sum(member.online and member.seated for member in status.members)
            yield ([(f"the run is over: {here} clients are still here", "live")],)
        case aggregator_pb2.RUN_STATE_GATHERING:
            yield from _gathering(moment)
        case _:
            yield from _running(moment)


def _gathering(moment: Moment) -> Iterator[Part]:
    status = moment.status
    here = sum(member.online for member in status.members)
    ready = sum(member.ready for member in status.members)
    if here >= status.clients:
        yield ([(f"clients get ready: {ready} of {status.clients}", "live")],)
    else:
        yield ([(f"waiting for clients: {here} of {status.clients}", "live")],)
    yield _elapsed(moment)
    away = [member.client_id for member in status.members if member.seated and not member.online]
    if away:
        yield _who("missing", away, "warning")
    if moment.start and here < status.clients:
        yield ([(f"start: {moment.start}", "")], [(moment.start, "")], ())


def _running(moment: Moment) -> Iterator[Part]:
    status = moment.status
    if not status.HasField("open"):
        ready = sum(member.ready and member.online for member in status.members)
        yield ([(f"waiting for clients: {ready} of {status.clients} are ready", "live")],)
        yield _elapsed(moment)
        return
    yield ([(_name(status), "live")],)
    yield _elapsed(moment)
    if status.open.phase != "open":
        yield ([(_PHASES.get(status.open.phase, status.open.phase), "")], ())
        yield _course(moment)
        return
    yield from _work(moment)


def _work(moment: Moment) -> Iterator[Part]:
    """Who does what in the open round."""
    status = moment.status
    overdue = not status.open.HasField("remaining_s")
    cohort = [member for member in status.members if member.in_cohort and not member.HasField("quarantine")]
    doings = {member.client_id: doing(member, open=True, overdue=overdue) for member in cohort}
    came = sum(member.received for member in cohort)
    yield ([(f"updates {came} of {len(cohort)}", "bold")], [(f"{came}/{len(cohort)}", "bold")])
    away = [name for name, what in doings.items() if what == "away"]
    training = [name for name, what in doings.items() if what in ("training", "overdue", "preparing")]
    if moving := [member for member in cohort if _moved(member)]:
        share_of = sum(held for held, _ in map(_transfer, moving)) / sum(
            size for _, size in map(_transfer, moving)
        )
        said = f"transfers {share_of:.0%}"
        yield ([(said, "")], [(f"{share_of:.0%}", "")], ())
    if away:
        yield _who("away", away, "warning")
    if training:
        yield _who("training", training, "")
    yield _budgets(status)
    yield _course(moment)


def _moved(member: pb.ClientStatus) -> bool:
    return not member.received and _transfer(member)[1] > 0


def _transfer(member: pb.ClientStatus) -> tuple[int, int]:
    """Return bytes that have crossed and all, of what is on its way to or from a client."""
    if member.upload_size:
        return member.upload_held, member.upload_size
    return member.download_sent, member.download_size


def _name(status: pb.StatusResponse) -> str:
    width = len(str(status.rounds))
    if status.open.closing:
        return "closing".ljust(2 * width + 7)
    return f"round {status.open.round:>{width}}/{status.rounds}"


def _elapsed(moment: Moment) -> Part:
    return ([(seconds(moment.waited_s), "dim")],)


def _who(what: str, names: Sequence[str], style: str) -> Part:
    """Name as many as there is room for, then count them."""
    forms = [[(f"{what} {some(names, most)}", style)] for most in (12, 8, 4, 2, 1)]
    return (*forms, [(f"{len(names)} {what}", style)], ())


def _budgets(status: pb.StatusResponse) -> Part:
    if not status.budgets:
        return _DROPPED
    said = ", ".join(f"{one.name} {share(one.name, one.used, one.limit).strip()}" for one in status.budgets)
    return ([(f"budget {said}", "")], [(said, "")], ())


def _course(moment: Moment) -> Part:
    """How the model has come along."""
    if not moment.values:
        return _DROPPED
    last: Piece = (f"{moment.values[-1]:.4f}", "good")
    drawn = _SPARKS if moment.unicode and len(moment.values) > 1 else ()
    curves: list[Line] = [[(spark(moment.values, most) + " ", "good"), last] for most in drawn]
    return (*curves, [last], ())
