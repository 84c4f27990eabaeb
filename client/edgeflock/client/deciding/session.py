"""The client's decisions: what to do next, given view, outbox, kept states and the work at hand.

Pure: frozen values in, one decision out. The agent asks after every change and does what it is told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from edgeflock.client.protocol import START, Generation, Settlement, Task, View


class Stage(Enum):
    """How far the update in the outbox has come in this session."""

    WAITING = "waiting"  # not yet delivered, or to be delivered again
    EARLY = "early"  # the server has not come as far as its round
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
    made_from: bytes = b""  # digest of the shared package of its round; empty: of before that was noted

    @property
    def generation(self) -> Generation:
        """The state that it leads to, if it counts."""
        return Generation(self.round, self.digest)


@dataclass(frozen=True)
class Situation:
    """All that a decision depends on."""

    view: View
    pending: Pending | None = None
    generations: tuple[Generation, ...] = ()  # oldest first, at most two
    candidate: Generation | None = None  # the state of an update that is not settled, or is torn; whole
    forgotten: Generation | None = None  # the state that is known to be lost: the client starts afresh
    ready: bool = False  # data and model are there, and the server knows
    training: Task | None = None  # what is being fetched or trained
    delivering: bool = False
    saving: bool = False  # the run's model is on its way, to be kept
    answered: frozenset[int] = frozenset()  # rounds settled or refused on this connection


@dataclass(frozen=True)
class Promote:
    """The update counted: the candidate state becomes the state, the outbox is emptied."""

    update: Generation


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
    """Go back to the kept state of that round, or to none (0): the server does not know the later ones."""

    keep: int


@dataclass(frozen=True)
class Forget:
    """The state after this counted update is not here: what is here is another, the client starts afresh."""

    update: Generation


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
    if now.view.ending is not None:
        return Wait() if now.saving else Finish(now.view.ending, now.view.failed)
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
    if pending.stage is Stage.EARLY and (asked or is_past(pending.round, view)):
        return replace(pending, stage=Stage.WAITING)
    return pending


def still_asked(answered: frozenset[int], view: View) -> frozenset[int]:
    """Return those of the answered rounds that a later view may name: on one connection none goes back."""
    return frozenset(round for round in answered if round >= view.round)


def corrected(view: View, told: Generation | None) -> View:
    """Return a view with what was told on the same connection since the server made it."""
    if told is None or view.standing is None or view.standing.round >= told.round:
        return view
    return replace(view, standing=told)


def _resolve(view: View, pending: Pending, *, delivering: bool) -> Decision:
    for settlement in view.settled:
        if settlement.round == pending.round:
            return _settle(settlement, pending)
    if pending.refused:
        return Discard(pending.round, pending.refused)
    if view.task is not None and view.task.round == pending.round:
        if view.closing != pending.closing:
            return Discard(pending.round, "the round is held anew, for another task")
        if pending.made_from not in (b"", view.task.made_from):
            return Discard(pending.round, "the round is held anew, from another model")
    asked = pending.stage is not Stage.WAITING and not is_past(
        pending.round, view
    )  # past: the word was missed
    return Wait() if delivering or asked else Deliver(pending.round)


def _settle(settlement: Settlement, pending: Pending) -> Decision:
    if not settlement.counted:
        return Discard(pending.round, str(settlement.verdict))
    if settlement.digest != pending.digest:
        return Discard(pending.round, "another update of this client counted in its place")
    return Promote(pending.generation)


def _keep_training(view: View, training: Task) -> Decision:
    task, round = view.task, training.round
    same = task is not None and (task.round, task.made_from) == (round, training.made_from)
    wanted = view.ending is None and (same or view.draining)
    return Wait() if wanted else Abandon(round)


def _take(now: Situation, task: Task | None) -> Decision:
    if task is None or task.round in now.answered or any(one.round == task.round for one in now.view.settled):
        return Wait()
    return _mend(now, task.round) or Train(task)


def _mend(now: Situation, round: int) -> Promote | Rewind | Forget | None:
    """Return how the state comes to be the one after the last update that the server has counted.

    It is another one after a power cut, where a copy was put back or a second device has the same name, and
    where the server itself came back from an older state. A file of another history is never taken.
    """
    standing, kept = now.view.standing, (START, *now.generations)
    if standing is None:
        return _mend_unsaid(now, round)
    if kept[-1] == standing or (not now.generations and now.forgotten == standing):
        return None
    if now.candidate == standing:  # the server had all of an update that is torn here
        return Promote(standing)
    return Rewind(standing.round) if standing in kept else Forget(standing)


def _mend_unsaid(now: Situation, round: int) -> Promote | Rewind | None:
    """The same where the server knows no more than the last two verdicts."""
    counted = [Generation(one.round, one.digest) for one in now.view.settled if one.counted]
    if now.candidate in counted:
        return Promote(now.candidate)
    earlier = [kept.round for kept in now.generations if kept.round < round]
    return None if len(earlier) == len(now.generations) else Rewind(max(earlier, default=0))
