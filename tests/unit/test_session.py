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
    Generation,
    Pending,
    Prepare,
    Promote,
    Rewind,
    Situation,
    Stage,
    Train,
    Wait,
    decide,
    is_past,
    seen,
)
from edgeflock.client.protocol import Settlement, Task, View
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


def at(view: View, **more: object) -> Situation:
    return replace(Situation(view, ready=True), **more)  # type: ignore[arg-type]


TABLE: dict[str, tuple[Situation, Decision]] = {
    # an update that is torn: the server may have had all of it
    "a torn update that counted: its whole candidate becomes the state": (
        at(replace(IDLE, settled=(COUNTED,)), staged=Generation(3, D)),
        Promote(COUNTED),
    ),
    "a torn update that counted, its candidate too: the state is behind": (
        at(replace(IDLE, settled=(COUNTED,)), lost=Generation(3, D)),
        Forget(3),
    ),
    "a torn update whose place another one took changes nothing": (
        at(replace(ASKED, task=Task(4), settled=(OTHER,)), staged=Generation(3, D)),
        Train(Task(4)),
    ),
    "a torn update is trained again while its round is open": (
        at(ASKED, staged=Generation(3, D)),
        Train(Task(3)),
    ),
    "a torn update that counts while it is trained again": (
        at(replace(IDLE, settled=(COUNTED,)), staged=Generation(3, D), training=3),
        Abandon(3),
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
    "training goes on while the task stands": (at(ASKED, training=3), Wait()),
    "training goes on while the server is going down": (at(replace(IDLE, draining=True), training=3), Wait()),
    "training stops when the task is gone": (at(IDLE, training=3), Abandon(3)),
    "training stops when another round is asked for": (
        at(replace(ASKED, task=Task(4)), training=3),
        Abandon(3),
    ),
    "training stops when the run is over": (at(replace(ASKED, ending="done"), training=3), Abandon(3)),
    # the outbox
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
    "COUNTED promotes": (at(replace(IDLE, settled=(COUNTED,)), pending=SENT), Promote(COUNTED)),
    "COUNTED promotes though RECEIVED was never heard": (
        at(replace(IDLE, settled=(COUNTED,)), pending=HELD),
        Promote(COUNTED),
    ),
    "COUNTED promotes in the midst of a delivery": (
        at(replace(IDLE, settled=(COUNTED,)), pending=HELD, delivering=True),
        Promote(COUNTED),
    ),
    "COUNTED promotes when the run is over": (
        at(replace(IDLE, settled=(COUNTED,), ending="done"), pending=SENT),
        Promote(COUNTED),
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
        Promote(COUNTED),
    ),
    # the end
    "the end is the end": (at(replace(IDLE, ending="done")), Finish("done")),
    "the end comes also to a client without a seat": (Situation(View(ending="done")), Finish("done")),
    # a server that went back
    "a state ahead of the task is left": (
        at(ASKED, generations=(Generation(2, D), Generation(3, E))),
        Rewind(2),
    ),
    "without an older one it starts anew": (at(ASKED, generations=(Generation(4, E),)), Rewind(None)),
    "a state of an earlier round is fine": (at(ASKED, generations=KEPT), Train(Task(3))),
    "after a fall back only what the server knows is kept": (
        at(replace(IDLE, settled=(Settlement(1, D, Verdict.COUNTED),)), generations=KEPT, went_back=True),
        Rewind(1),
    ),
    "the newest it knows": (
        at(replace(IDLE, settled=(Settlement(2, E, Verdict.COUNTED),)), generations=KEPT, went_back=True),
        Rewind(2),
    ),
    "the same round with another update is another state": (
        at(replace(IDLE, settled=(Settlement(1, E, Verdict.COUNTED),)), generations=KEPT, went_back=True),
        Rewind(None),
    ),
    "older than all it says: nothing speaks against it": (
        at(replace(IDLE, settled=(Settlement(7, b"", Verdict.LATE),)), generations=KEPT, went_back=True),
        Rewind(2),
    ),
    "a server that knows nothing": (at(IDLE, generations=KEPT, went_back=True), Rewind(None)),
    "the outbox is resolved before going back": (
        at(IDLE, pending=HELD, generations=KEPT, went_back=True),
        Deliver(3),
    ),
    "it goes back before it finishes": (
        at(replace(IDLE, ending="done"), generations=KEPT, went_back=True),
        Rewind(None),
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
        assert not isinstance(same, Discard)
    assert decide(at(asking(not closing))) == Train(
        Task(3, closing=not closing)
    )  # and the task is taken then


def test_an_unresolved_outbox_lets_no_task_be_taken_whatever_else_is_true() -> None:
    """Exactly once: nothing but a verdict or a refusal empties the outbox, and nothing is trained before."""
    for stage in Stage:
        for view in (IDLE, ASKED, replace(ASKED, task=Task(9)), replace(IDLE, draining=True)):
            decision = decide(at(view, pending=Pending(3, D, stage)))
            assert isinstance(decision, Deliver | Wait)


def test_a_task_that_vanishes_and_comes_back_is_asked_for_again() -> None:
    pending = seen(SENT, ASKED)
    assert pending.stage is Stage.DELIVERED  # a view from before RECEIVED
    pending = seen(pending, IDLE)
    assert pending.stage is Stage.RELEASED
    pending = seen(pending, ASKED)
    assert decide(at(ASKED, pending=pending)) == Deliver(3)


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
