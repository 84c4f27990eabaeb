"""The client's decisions: what to do next, given view, outbox, kept states and the work at hand.

Pure: frozen values in, one decision out. The agent asks after every change and does what it is told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from edgeflock.client.protocol import Settlement, Task, View


class Stage(Enum):
    """How far the update in the outbox has come in this session."""

    WAITING = "waiting"  # not yet delivered, or to be delivered again
    DELIVERED = "delivered"  # RECEIVED was heard
    RELEASED = "released"  # since then the server has shown a view without its task


@dataclass(frozen=True)
class Pending:
    """The update in the outbox."""

    round: int
    digest: bytes
    stage: Stage = Stage.WAITING
    refused: str = ""  # the server's sentence, once it has refused the update for good
    closing: bool = False  # it answers a closing task


@dataclass(frozen=True)
class Generation:
    """A kept method state: of which counted update it is."""

    round: int
    digest: bytes


@dataclass(frozen=True)
class Situation:
    """All that a decision depends on."""

    view: View
    pending: Pending | None = None
    generations: tuple[Generation, ...] = ()  # oldest first, at most two
    went_back: bool = False  # the server came back from an older state (rule 4)
    ready: bool = False  # data and model are there, and the server knows
    training: int | None = None  # the round being fetched or trained
    delivering: bool = False
    staged: Generation | None = None  # of an update that is torn: its candidate state, which is whole
    lost: Generation | None = None  # of an update that was dropped because its candidate state is torn
    answered: frozenset[int] = frozenset()  # rounds settled or refused on this connection


@dataclass(frozen=True)
class Promote:
    """The update counted: the candidate state becomes the state, the outbox is emptied."""

    settlement: Settlement


@dataclass(frozen=True)
class Discard:
    """The update did not count: candidate state and update are dropped."""

    round: int
    reason: str


@dataclass(frozen=True)
class Deliver:
    """Deliver the update in the outbox (again), or ask for its verdict: the header does both."""

    round: int


@dataclass(frozen=True)
class Rewind:
    """Go back to the kept state of that round, or to none: the server does not know the later ones."""

    keep: int | None


@dataclass(frozen=True)
class Forget:
    """An update counted whose candidate state is torn: the state is behind, the client starts afresh."""

    round: int


@dataclass(frozen=True)
class Prepare:
    """Get the data of the seat and say so."""

    seat: int


@dataclass(frozen=True)
class Train:
    """Take the task: fetch, train, fill the outbox."""

    task: Task


@dataclass(frozen=True)
class Abandon:
    """Stop the work at hand: nobody waits for it any more."""

    round: int


@dataclass(frozen=True)
class Wait:
    """Nothing to do until something changes."""


@dataclass(frozen=True)
class Finish:
    """The run is over and nothing is unresolved."""

    reason: str
    failed: bool = False


Decision: TypeAlias = (
    Promote | Discard | Deliver | Rewind | Forget | Prepare | Train | Abandon | Wait | Finish
)


def decide(now: Situation) -> Decision:
    """Return what to do next. An unresolved outbox comes before everything else."""
    if now.pending:
        return _resolve(now.view, now.pending, delivering=now.delivering)
    if now.training is not None:
        return _keep_training(now.view, now.training)
    if word := _missed(now):
        return word
    if now.went_back:
        return Rewind(_last_known(now.view, now.generations))
    if now.view.ending is not None:
        return Finish(now.view.ending, now.view.failed)
    if now.view.seat is None:
        return Wait()
    return _take(now, now.view.task) if now.ready else Prepare(now.view.seat)


def is_past(round: int, view: View) -> bool:
    """Whether the server can have no use for an update of that round any more, whatever it is busy with."""
    return view.ending is not None or view.round > round or view.asked not in (None, round)


def seen(pending: Pending, view: View) -> Pending:
    """Return the pending update after a new view: a task that vanishes and comes back is asked for again."""
    asked = view.asked == pending.round
    if pending.stage is Stage.DELIVERED and not asked:
        return replace(pending, stage=Stage.RELEASED)
    if pending.stage is Stage.RELEASED and asked:
        return replace(pending, stage=Stage.WAITING)
    return pending


def _resolve(view: View, pending: Pending, *, delivering: bool) -> Decision:
    for settlement in view.settled:
        if settlement.round == pending.round:
            return _settle(settlement, pending)
    if pending.refused:
        return Discard(pending.round, pending.refused)
    if view.asked == pending.round and view.closing != pending.closing:
        return Discard(pending.round, "the round is held anew, for another task")
    asked = pending.stage is not Stage.WAITING and not is_past(
        pending.round, view
    )  # past: the word was missed
    return Wait() if delivering or asked else Deliver(pending.round)


def _settle(settlement: Settlement, pending: Pending) -> Decision:
    if not settlement.counted:
        return Discard(pending.round, str(settlement.verdict))
    if settlement.digest != pending.digest:
        return Discard(pending.round, "another update of this client counted in its place")
    return Promote(settlement)


def _missed(now: Situation) -> Promote | Forget | None:
    """The server had all of an update that is torn here, and counted it before it was trained again."""
    for settlement in now.view.settled:
        update = Generation(settlement.round, settlement.digest)
        if settlement.counted and update == now.staged:
            return Promote(settlement)
        if settlement.counted and update == now.lost:
            return Forget(settlement.round)
    return None


def _keep_training(view: View, training: int) -> Decision:
    wanted = view.ending is None and (view.asked == training or view.draining)
    return Wait() if wanted else Abandon(training)


def _take(now: Situation, task: Task | None) -> Decision:
    if task is None or task.round in now.answered or any(one.round == task.round for one in now.view.settled):
        return Wait()
    if now.generations and now.generations[-1].round >= task.round:
        older = [kept.round for kept in now.generations if kept.round < task.round]
        return Rewind(older[-1] if older else None)
    return Train(task)


def _last_known(view: View, generations: tuple[Generation, ...]) -> int | None:
    """Return the newest kept round that the server's own books still hold."""
    counted = {(one.round, one.digest) for one in view.settled if one.counted}
    known = [kept.round for kept in generations if (kept.round, kept.digest) in counted]
    if (
        not known and view.settled
    ):  # older than the server's last two words about us: nothing speaks against it
        known = [kept.round for kept in generations if kept.round < view.settled[0].round]
    return known[-1] if known else None
