"""The round after training, in which all are asked once more, stepped in microseconds."""

from __future__ import annotations

import pytest

from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Ended, EndingKind, RoundOpened
from edgeflock.server.core.effects import Announce, CommitRound, Persist, PrepareRound, TestModel
from edgeflock.server.core.events import (
    Committed,
    Done,
    DrainAsked,
    LimitReached,
    PauseAsked,
    Ready,
    ResumeAsked,
    ResumedRound,
    Started,
    StopAsked,
)
from edgeflock.server.core.phases import Phase
from edgeflock.server.core.target import Target
from edgeflock.server.core.testing import Tests
from support.desk import SEATS, Desk, back

ALL_DONE = "all 2 rounds are done"
USED_UP = "the budget of time is used up"
REACHED = "the target is reached: accuracy 0.9500 of 0.9 in round 1"


def _trained(**rules: object) -> Desk:
    """Everybody has taken part in both rounds of a method that may close."""
    desk = Desk(3, **{"closes": True, **rules}).gather()  # type: ignore[arg-type]
    for _ in range(2):
        desk.deliver(*desk.machine.current.cohort)
    return desk


def test_after_the_last_round_everybody_is_asked_once_more() -> None:
    desk = _trained(cohort=1)
    assert desk.records()[-1] == RoundOpened(3, (0, 1, 2), ALL_DONE)
    assert desk.of(PrepareRound)[-1] == PrepareRound(3, (0, 1, 2), last=True)
    assert (desk.machine.phase, desk.machine.trained) == (Phase.OPEN, 2)
    assert Announce("last_round_opened", {"round": 3, "cohort": ["c0", "c1", "c2"]}) in desk.done
    assert desk.exits() == []
    desk.deliver(1, 0)
    assert desk.machine.phase is Phase.OPEN
    desk.deliver(2)
    assert desk.exits() == [Ended(EndingKind.COMPLETED, ALL_DONE, 3)]
    assert (desk.machine.committed, desk.machine.trained) == (3, 2)
    assert desk.verdicts() == dict.fromkeys(range(3), Verdict.COUNTED)


@pytest.mark.parametrize("answers", [(), (1,)])
def test_it_closes_at_its_deadline_with_whatever_came(answers: tuple[int, ...]) -> None:
    desk = _trained()
    desk.deliver(*answers)
    desk.pass_deadline()
    counted = {seat for seat, verdict in desk.verdicts().items() if verdict is Verdict.COUNTED}
    assert counted == set(answers)
    assert desk.exits() == [Ended(EndingKind.COMPLETED, ALL_DONE, 3)]


def test_it_does_not_fail_for_answers_that_are_no_numbers() -> None:
    desk = _trained()
    desk.rejected = dict.fromkeys(range(3), Verdict.NON_FINITE)
    desk.deliver(0, 1, 2)
    assert desk.exits() == [Ended(EndingKind.COMPLETED, ALL_DONE, 3)]


def test_it_follows_a_stop_of_the_method_too() -> None:
    desk = Desk(2, rounds=9, closes=True).gather()
    desk.holding = (CommitRound,)
    desk.deliver(0, 1)
    desk.holding = ()
    desk.post(Committed(1, 0.0, stop="the budget of 3 MB is used up"))
    assert desk.records()[-1] == RoundOpened(2, (0, 1), "the budget of 3 MB is used up")
    desk.deliver(0, 1)
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "the budget of 3 MB is used up", 2)]


def test_a_method_that_is_done_when_a_round_is_opened_closes_and_may_have_nothing_to_ask() -> None:
    desk = Desk(3, closes=True, rounds=9)
    desk.holding = (Persist,)
    desk.post(Started(0.0, SEATS, 1, samples=dict.fromkeys(range(3), 10)))
    assert desk.post(Done("enough is learnt", 0.0)) == [
        Persist((RoundOpened(2, (0, 1, 2), "enough is learnt"),))
    ]
    desk.holding = ()
    desk.post(Done("there is nothing to ask", 0.0))
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "enough is learnt", 1)]


def test_without_a_round_of_training_nobody_is_asked() -> None:
    desk = Desk(3, closes=True)
    desk.holding = (Persist,)
    desk.post(Started(0.0, SEATS, samples=dict.fromkeys(range(3), 10)))
    for seat in range(3):
        desk.post(Ready(seat, 10, 0.0))
    assert desk.held == [Persist((RoundOpened(1, (0, 1, 2)),))]
    desk.holding = ()
    desk.post(Done("there is no budget at all", 0.0))
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "there is no budget at all", 0)]


def test_an_operators_stop_comes_before_it() -> None:
    desk = Desk(3, closes=True, rounds=1).gather()
    desk.holding = (CommitRound,)
    desk.deliver(0, 1, 2)
    desk.post(StopAsked("enough", 0.0))
    desk.release()
    assert desk.exits() == [Ended(EndingKind.STOPPED, "enough", 1)]


def test_a_pause_holds_it_and_a_drain_leaves_it_to_the_next_process() -> None:
    desk = Desk(3, closes=True, rounds=1).gather()
    desk.post(PauseAsked(0.0))
    desk.deliver(0, 1, 2)
    assert (desk.machine.phase, desk.machine.pause) == (Phase.COMMITTED, "paused by the operator")
    desk.post(ResumeAsked(0.0))
    assert desk.machine.phase is Phase.OPEN
    other = Desk(3, closes=True, rounds=1).gather()
    other.holding = (CommitRound,)
    other.deliver(0, 1, 2)
    other.post(DrainAsked(0.0))
    other.release()
    assert other.exits() == [None]
    assert back(None, committed=1, rounds=1, closes=True).records() == [
        RoundOpened(2, (0, 1, 2), "all 1 rounds are done")
    ]


def test_an_open_last_round_goes_on_after_a_crash() -> None:
    """Although fewer rounds are committed than may be: its method had stopped."""
    going = ResumedRound(3, (0, 1, 2), last="two are enough")
    desk = back(going, committed=2, rounds=9, closes=True, c1=b"one")
    assert desk.of(PrepareRound) == [PrepareRound(3, (0, 1, 2), last=True)]
    assert desk.machine.current.received == {1: b"one"}
    desk.deliver(0, 2)
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "two are enough", 3)]


def test_a_limit_closes_a_last_round_with_whoever_has_answered() -> None:
    desk = Desk(2, rounds=1, closes=True).gather()
    desk.deliver(0, 1)
    assert desk.machine.over == "all 1 rounds are done"
    desk.deliver(1)
    desk.post(LimitReached(USED_UP, desk.now))
    assert desk.verdicts() == {0: Verdict.LATE, 1: Verdict.COUNTED}
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "all 1 rounds are done", 2)]


def test_no_last_round_is_asked_when_a_limit_is_reached_in_mid_round() -> None:
    desk = Desk(2, min_updates=1, closes=True).gather()
    desk.deliver(0)
    desk.post(LimitReached(USED_UP, desk.now))
    assert desk.exits() == [Ended(EndingKind.COMPLETED, USED_UP, 1)]


def test_the_last_round_s_target_is_the_reason_of_the_end_and_asks_for_no_last_round() -> None:
    """Nor does the last round count that was opened before the score was known."""
    desk = Desk(2, rounds=1, closes=True, tests=Tests(1, 1, target=Target(0.9)))
    desk.holding = (TestModel,)
    desk.gather()
    desk.deliver(0, 1)
    desk.score(1, 0.95)
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, ending.reason, desk.machine.committed) == (EndingKind.COMPLETED, REACHED, 1)
