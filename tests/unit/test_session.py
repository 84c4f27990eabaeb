"""The client's decision machine, as a table: a situation, and what is to be done."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from edgeflock.client.deciding.session import (
    Abandon,
    Decision,
    Deliver,
    Discard,
    Finish,
    Forget,
    Pending,
    Prepare,
    Promote,
    Rewind,
    Situation,
    Stage,
    Train,
    Wait,
    corrected,
    decide,
    is_past,
    seen,
    still_asked,
)
from edgeflock.client.protocol import START, Generation, Parcel, Settlement, Task, View
from edgeflock.common.payload.package import Package, Scope
from edgeflock.common.verdict import Verdict

D, E = b"d" * 16, b"e" * 16
COUNTED = Settlement(3, D, Verdict.COUNTED)
OTHER = Settlement(3, E, Verdict.COUNTED)
LATE = Settlement(3, b"", Verdict.LATE)
SEAT = 2
IDLE = View(round=3, seat=SEAT)
ASKED = View(round=3, seat=SEAT, task=Task(3))
HELD = Pending(3, D)
SENT = Pending(3, D, Stage.DELIVERED)
KEPT = (Generation(1, D), Generation(2, E))


def view_of(round: int, standing: Generation) -> View:
    return View(round=round, seat=SEAT, task=Task(round), standing=standing)


def at(view: View, **more: object) -> Situation:
    return replace(Situation(view, ready=True), **more)  # type: ignore[arg-type]


def from_model(round: int, name: bytes) -> Task:
    return Task(round, parcels=(Parcel(Scope.SHARED, Package((), {name.decode(): 1.0})),))


def digest_of(name: bytes) -> bytes:
    return from_model(1, name).made_from


TABLE: dict[str, tuple[Situation, Decision]] = {
    # the state must be the one after the last update that counted
    "a torn update that counted: its whole candidate becomes the state": (
        at(view_of(5, Generation(4, E)), generations=KEPT, candidate=Generation(4, E)),
        Promote(Generation(4, E)),
    ),
    "so also where the server names no more than the last verdicts": (
        at(replace(ASKED, task=Task(4), settled=(COUNTED,)), candidate=Generation(3, D)),
        Promote(Generation(3, D)),
    ),
    "a torn update that counted, its candidate too: the state is behind": (
        at(view_of(5, Generation(4, E)), generations=KEPT),
        Forget(Generation(4, E)),
    ),
    "another update of the round counted, of a clone or a GPU: the state is another": (
        at(view_of(3, Generation(2, D)), generations=KEPT),
        Forget(Generation(2, D)),
    ),
    "nothing is here of what counted": (at(view_of(3, Generation(2, E))), Forget(Generation(2, E))),
    "what is known to be lost is lost once": (
        at(view_of(3, Generation(2, E)), forgotten=Generation(2, E)),
        Train(Task(3)),
    ),
    "a loss of before says nothing of the state now": (
        at(view_of(9, Generation(8, E)), forgotten=Generation(2, E)),
        Forget(Generation(8, E)),
    ),
    "the state is the one after what counted": (
        at(view_of(3, Generation(2, E)), generations=KEPT),
        Train(Task(3)),
    ),
    "a torn update whose place another one took changes nothing": (
        at(view_of(4, Generation(2, E)), generations=KEPT, candidate=Generation(3, D)),
        Train(Task(4)),
    ),
    "a torn update is trained again while its round is open": (
        at(view_of(3, START), candidate=Generation(3, D)),
        Train(Task(3)),
    ),
    "without a task nothing is compared: news may be on the way": (
        at(replace(IDLE, standing=Generation(4, E)), generations=KEPT),
        Wait(),
    ),
    # before the round
    "without a seat it waits": (Situation(View()), Wait()),
    "with a seat it gets its data": (Situation(IDLE), Prepare(SEAT)),
    "without a task it waits": (at(IDLE), Wait()),
    "a task is taken": (at(ASKED), Train(Task(3))),
    "a task is not taken before the data are there": (Situation(ASKED), Prepare(SEAT)),
    "a task of an answered round is not taken again": (at(ASKED, answered=frozenset({3})), Wait()),
    "a task whose verdict is there is not taken": (at(replace(ASKED, settled=(LATE,))), Wait()),
    "a task is taken though the verdict of an older round is there": (
        at(replace(ASKED, settled=(Settlement(2, E, Verdict.COUNTED),))),
        Train(Task(3)),
    ),
    # while training
    "training goes on while the task stands": (at(ASKED, training=Task(3)), Wait()),
    "training goes on while the server is going down": (
        at(replace(IDLE, draining=True), training=Task(3)),
        Wait(),
    ),
    "training stops when the task is gone": (at(IDLE, training=Task(3)), Abandon(3)),
    "training stops when another round is asked for": (
        at(replace(ASKED, task=Task(4)), training=Task(3)),
        Abandon(3),
    ),
    "training stops when the run is over": (at(replace(ASKED, ending="done"), training=Task(3)), Abandon(3)),
    "training stops when the round is held anew from another model": (
        at(ASKED, training=from_model(3, b"another")),
        Abandon(3),
    ),
    # the outbox
    "an update of the round before it was held anew from another model is dropped": (
        at(ASKED, pending=replace(HELD, made_from=b"m" * 16)),
        Discard(3, "the round is held anew, from another model"),
    ),
    "an update from the model of the round is delivered": (
        at(replace(ASKED, task=from_model(3, b"it")), pending=replace(HELD, made_from=digest_of(b"it"))),
        Deliver(3),
    ),
    "an update that is early is not offered again unasked": (
        at(View(round=2, seat=SEAT), pending=Pending(3, D, Stage.EARLY)),
        Wait(),
    ),
    "a full outbox is delivered": (at(ASKED, pending=HELD), Deliver(3)),
    "it is delivered before the data are there": (Situation(ASKED, pending=HELD), Deliver(3)),
    "it is delivered though another round is asked for": (
        at(replace(ASKED, task=Task(5)), pending=HELD),
        Deliver(3),
    ),
    "it is delivered though no task is shown: the header asks for the verdict": (
        at(IDLE, pending=HELD),
        Deliver(3),
    ),
    "it is delivered though the run is over": (at(replace(IDLE, ending="done"), pending=HELD), Deliver(3)),
    "one delivery at a time": (at(ASKED, pending=HELD, delivering=True), Wait()),
    "after RECEIVED it waits for the verdict": (at(ASKED, pending=SENT), Wait()),
    "after RECEIVED no other task is taken: it asks for the verdict that it has missed": (
        at(replace(ASKED, round=5, task=Task(5)), pending=SENT),
        Deliver(3),
    ),
    "the verdict was missed though no task came since": (
        at(View(round=5, seat=SEAT), pending=Pending(3, D, Stage.RELEASED)),
        Deliver(3),
    ),
    "a missed verdict is asked for once at a time": (
        at(View(round=5, seat=SEAT), pending=SENT, delivering=True),
        Wait(),
    ),
    "a released update is not sent again unasked": (at(IDLE, pending=Pending(3, D, Stage.RELEASED)), Wait()),
    # the verdict
    "COUNTED promotes": (at(replace(IDLE, settled=(COUNTED,)), pending=SENT), Promote(Generation(3, D))),
    "COUNTED promotes though RECEIVED was never heard": (
        at(replace(IDLE, settled=(COUNTED,)), pending=HELD),
        Promote(Generation(3, D)),
    ),
    "COUNTED promotes in the midst of a delivery": (
        at(replace(IDLE, settled=(COUNTED,)), pending=HELD, delivering=True),
        Promote(Generation(3, D)),
    ),
    "COUNTED promotes when the run is over": (
        at(replace(IDLE, settled=(COUNTED,), ending="done"), pending=SENT),
        Promote(Generation(3, D)),
    ),
    "NOT_COUNTED discards": (at(replace(IDLE, settled=(LATE,)), pending=HELD), Discard(3, "late")),
    "another update counted: this one never will": (
        at(replace(IDLE, settled=(OTHER,)), pending=HELD),
        Discard(3, "another update of this client counted in its place"),
    ),
    "the verdict of an older round says nothing": (
        at(replace(IDLE, settled=(Settlement(2, D, Verdict.COUNTED),)), pending=SENT),
        Wait(),
    ),
    "a final refusal discards": (at(IDLE, pending=replace(HELD, refused="no")), Discard(3, "no")),
    "the verdict is stronger than a refusal": (
        at(replace(IDLE, settled=(COUNTED,)), pending=replace(HELD, refused="no")),
        Promote(Generation(3, D)),
    ),
    # the end
    "the end is the end": (at(replace(IDLE, ending="done")), Finish("done")),
    "the end comes also to a client without a seat": (Situation(View(ending="done")), Finish("done")),
    # a server that went back
    "a state ahead of the task is left": (
        at(ASKED, generations=(Generation(2, D), Generation(3, E))),
        Rewind(2),
    ),
    "without an older one it starts anew": (at(ASKED, generations=(Generation(4, E),)), Rewind(0)),
    "a state of an earlier round is fine": (at(ASKED, generations=KEPT), Train(Task(3))),
    "after a fall back only what the server knows is kept": (
        at(view_of(2, Generation(1, D)), generations=KEPT),
        Rewind(1),
    ),
    "the same round with another update is another state": (
        at(view_of(2, Generation(1, E)), generations=KEPT),
        Forget(Generation(1, E)),
    ),
    "a server that knows nothing": (at(view_of(1, START), generations=KEPT), Rewind(0)),
    "the outbox is resolved before going back": (
        at(view_of(2, Generation(1, D)), pending=HELD, generations=KEPT),
        Deliver(3),
    ),
}


@pytest.mark.parametrize(("situation", "decision"), TABLE.values(), ids=TABLE.keys())
def test_the_table_of_decisions(situation: Situation, decision: Decision) -> None:
    assert decide(situation) == decision


@pytest.mark.parametrize("closing", [False, True])
def test_an_update_for_a_round_that_another_task_took_is_dropped(closing: bool) -> None:
    """A run went on with more rounds, or ended with fewer: the round of that number is held anew."""

    def asking(closing: bool) -> View:
        return replace(ASKED, task=Task(3, closing=closing))

    held = replace(HELD, closing=closing)
    for stage in Stage:
        asked = at(asking(not closing), pending=replace(held, stage=stage))
        assert decide(asked) == Discard(3, "the round is held anew, for another task")
        same = decide(at(asking(closing), pending=replace(held, stage=stage)))
        assert same == (Deliver(3) if stage is Stage.WAITING else Wait())
    assert decide(at(asking(not closing))) == Train(
        Task(3, closing=not closing)
    )  # and the task is taken then


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize(
    ("view", "past"),
    [
        (IDLE, False),
        (ASKED, False),
        (replace(ASKED, task=Task(9)), True),
        (replace(ASKED, task=Task(2)), True),
        (replace(IDLE, draining=True), False),
        (replace(IDLE, round=4), True),
        (replace(IDLE, ending="done"), True),
    ],
)
def test_an_unresolved_outbox_lets_no_task_be_taken_whatever_else_is_true(
    stage: Stage, view: View, past: bool
) -> None:
    """Exactly once: nothing but a verdict or a refusal empties the outbox, and nothing is trained before.

    What the server has, or is to be asked for later, is not asked for again before its round is past.
    """
    asks = stage is Stage.WAITING or past
    assert decide(at(view, pending=Pending(3, D, stage))) == (Deliver(3) if asks else Wait())
    assert decide(at(view, pending=Pending(3, D, stage), delivering=True)) == Wait()


def test_a_task_that_vanishes_and_comes_back_is_asked_for_again() -> None:
    pending = seen(SENT, ASKED)
    assert pending.stage is Stage.DELIVERED  # a view from before RECEIVED
    pending = seen(pending, IDLE)
    assert pending.stage is Stage.RELEASED
    pending = seen(pending, ASKED)
    assert decide(at(ASKED, pending=pending)) == Deliver(3)


@pytest.mark.parametrize("view", [ASKED, View(round=4, seat=SEAT), View(round=2, ending="done")])
def test_an_update_that_is_early_is_offered_again_when_its_round_comes_or_is_past(view: View) -> None:
    early = Pending(3, D, Stage.EARLY)
    assert seen(early, View(round=2, seat=SEAT)) == early
    assert decide(at(view, pending=seen(early, view))) == Deliver(3)


def test_a_view_of_before_the_last_word_takes_nothing_back() -> None:
    """A verdict may come as the answer to a header, ahead of a view that was made before it."""
    told = Generation(3, D)
    assert corrected(view_of(3, Generation(2, E)), told).standing == told
    for view in (view_of(4, Generation(4, E)), view_of(4, told), ASKED):
        assert corrected(view, told) is view
    assert corrected(ASKED, None) is ASKED


def test_what_was_not_delivered_stays_so_whatever_is_seen() -> None:
    assert seen(HELD, IDLE) == HELD
    assert seen(HELD, ASKED) == HELD


@pytest.mark.parametrize(
    ("view", "past"),
    [
        (View(round=2), False),  # the server has not come as far
        (View(round=3), False),
        (View(round=3, task=Task(3)), False),
        (View(round=4), True),
        (View(round=3, task=Task(2)), True),  # it is busy with an earlier one: it fell back
        (View(round=2, ending="done"), True),
    ],
)
def test_when_the_server_has_no_use_for_a_round_any_more(view: View, past: bool) -> None:
    assert is_past(3, view) is past


def test_deciding_needs_neither_torch_nor_a_network() -> None:
    check = "import sys, edgeflock.client.deciding.session, edgeflock.client.deciding.backoff; "
    check += "print({'torch', 'grpc', 'google.protobuf', 'asyncio', 'sqlite3'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_a_round_that_no_view_can_name_any_more_is_not_remembered() -> None:
    """A client is asked again and again, for as long as a run lasts."""
    assert still_asked(frozenset({1, 2, 3}), replace(ASKED, round=3)) == {3}
