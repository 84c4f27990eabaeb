"""Time lines: exclusive, complete, and nothing is lost when a transaction fails."""

from __future__ import annotations

import pytest

from edgeflock.common.time_line import TimeLine
from edgeflock.server.core.events import Offline, Ready, ResumedRound, SpaceMissing
from edgeflock.server.core.phases import Phase
from edgeflock.server.costs.time_line import RoundTimes
from edgeflock.server.engine.loop import doing_of
from support.desk import Desk, back, desk_in


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_at_any_instant_one_thing_is_done_and_the_seconds_add_up() -> None:
    clock = Clock()
    line = TimeLine[str]("wait", clock)
    for what, seconds in [("train", 2.0), ("wait", 1.0), ("train", 4.0), (None, 100.0), ("wait", 0.5)]:
        line.enter(what)
        clock.now += seconds
    assert line.spent() == line.spent() == {"wait": 1.5, "train": 6.0}
    clock.now += 8.0
    assert line.take() == {"wait": 9.5, "train": 6.0}
    clock.now += 1.0
    assert line.take() == {"wait": 1.0}


def test_what_is_entered_leaves_the_other_and_all_adds_up() -> None:
    clock = Clock()
    line = RoundTimes(clock)
    walk = [("gather_s", 1, 5.0), ("select_s", 1, 0.5), ("open_s", 1, 3.0), ("paused_s", 1, 7.0)]
    walk += [("open_s", 1, 1.0), ("fold_s", 1, 0.25), ("commit_s", 1, 0.125), ("select_s", 2, 0.5)]
    for name, round, seconds in walk:
        line.enter(name, round)
        clock.now += seconds
    line.leave()
    clock.now += 1e6  # the run is over
    line.now()
    assert line.of(1) == {
        "gather_s": 5.0, "select_s": 0.5, "open_s": 4.0, "fold_s": 0.25, "commit_s": 0.125, "paused_s": 7.0
    }  # fmt: skip
    taken = line.take()
    assert sum(sum(values.values()) for values in taken.values()) == 17.375
    assert taken[2] == {"select_s": 0.5}


def test_the_line_of_the_round_before_is_known_and_older_ones_are_forgotten() -> None:
    line = RoundTimes(Clock())
    for number in (1, 2, 3):
        line.add(number, "fold_s", 0.5)
        line.add(number, "fold_busy", 0.25)  # which stands beside the line
    assert (line.of(2), line.of(1), line.of(3), line.of(2)) == ({"fold_s": 0.5},) * 4
    assert line.of(1) == {}
    assert line.take()[1] == {"fold_s": 0.5, "fold_busy": 0.25}, "it is written all the same"


def test_the_time_of_a_round_runs_while_something_is_done_for_it_and_not_when_all_is_over() -> None:
    line, found = RoundTimes(Clock()), []
    for name in ("gather_s", "open_s", "held_s", "commit_s"):
        line.enter(name, 1)
        found.append(line.running)
    line.leave()
    assert [*found, line.running] == [False, True, False, True, False]


def test_what_is_noted_of_a_long_round_stays_small() -> None:
    line = RoundTimes(Clock())
    for _ in range(1000):
        line.add(1, "fold_s", 0.5)
    assert len(line._noted) < 100
    assert line.counted_s == 500.0


def test_what_a_failed_transaction_took_is_written_by_the_next() -> None:
    clock = Clock()
    line = RoundTimes(clock)
    line.enter("open_s", 3)
    clock.now += 2
    line.now()
    taken = line.take()
    clock.now += 1
    line.now()
    line.give_back(taken)
    assert line.take() == {3: {"gather_s": 0.0, "open_s": 3.0}}
    assert line.take() == {}
    assert line.of(3) == {"open_s": 3.0}  # whatever is written


def test_while_everything_waits_for_a_test_nothing_else_is_done() -> None:
    clock = Clock()
    line = RoundTimes(clock)
    with line.instead("evaluate_s"):  # no round is known yet
        clock.now += 1
    line.enter("commit_s", 1)
    with line.instead("evaluate_s"):
        clock.now += 2
        line.enter("paused_s", 1)
        clock.now += 4
    clock.now += 8
    line.now()
    assert line.of(1) == {"gather_s": 1.0, "evaluate_s": 6.0, "paused_s": 8.0}


def test_a_test_within_the_commit_is_moved_and_the_sum_stays() -> None:
    line = RoundTimes(Clock())
    line.add(1, "commit_s", 2.0)
    line.move(1, "commit_s", "evaluate_s", 0.5)
    line.add(1, "fold_busy", 9.0)
    assert line.of(1) == {"commit_s": 1.5, "evaluate_s": 0.5}


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.IDLE, ("gather_s", 1)),
        (Phase.GATHERING, ("gather_s", 1)),
        (Phase.OPENING, ("select_s", 1)),
        (Phase.OPEN, ("open_s", 1)),
        (Phase.FOLDING, ("fold_s", 1)),
        (Phase.COMMITTING, ("commit_s", 1)),
        (Phase.COMMITTED, ("held_s", 2)),
        (Phase.ENDING, ("commit_s", 1)),
        (Phase.ENDED, None),
    ],
)
def test_every_phase_is_one_thing(phase: Phase, expected: tuple[str, int] | None) -> None:
    assert doing_of(desk_in(phase).machine) == expected


def test_a_pause_takes_the_place_of_the_phase() -> None:
    desk = desk_in(Phase.COMMITTING)
    desk.post(SpaceMissing(desk.held[0], "no space left on the disk", desk.now))
    assert doing_of(desk.machine) == ("paused_s", 1)
    desk = desk_in(Phase.OPEN)
    for _ in range(2):
        desk.pass_deadline()
    assert doing_of(desk.machine) == ("paused_s", 1)


def test_a_round_of_a_life_before_takes_no_time_until_one_of_its_members_is_back() -> None:
    """Else the start of processes is in the seconds of rounds, and in a budget of time."""
    desk = back(ResumedRound(2, (0, 1)), committed=1)
    assert doing_of(desk.machine) == ("gather_s", 2)
    desk.post(Ready(2, 10, desk.now))  # who has no part in it
    assert doing_of(desk.machine) == ("gather_s", 2)
    desk.post(Ready(1, 10, desk.now))
    assert doing_of(desk.machine) == ("open_s", 2)


def test_between_two_rounds_clients_are_gathered() -> None:
    desk = Desk(2, cohort=2, online=True, rounds=5).gather("a", "b")
    desk.post(Offline("b", 0.0))
    desk.deliver(0, 1)
    assert doing_of(desk.machine) == ("gather_s", 2)


def test_seconds_are_those_of_rounds_and_a_round_of_tests_has_none() -> None:
    clock = Clock()
    line = RoundTimes(clock)
    line.exams.add(2)
    for name, round in (("open_s", 1), ("open_s", 2), ("commit_s", 2), ("gather_s", 3), ("select_s", 3)):
        line.enter(name, round)
        clock.now += 1.0
    assert (line.seconds, line.counted_s) == (2.0, 1.0)  # the last one is not cut yet
    line.now()
    line.move(2, "commit_s", "evaluate_s", 0.5)
    assert line.counted_s == 2.0
    assert line.of(2) == {"exam_s": 2.0}
