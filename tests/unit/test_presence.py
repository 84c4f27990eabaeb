"""Who is not here: how long a round waits, who is drawn, and what a short absence leaves as it is."""

from __future__ import annotations

from collections.abc import Iterator

from edgeflock.common.verdict import Verdict
from edgeflock.server.core.effects import Announce, FoldRound, PrepareRound
from edgeflock.server.core.events import Offline, Online, Ready, ResumedRound, Started, TaskRefused
from edgeflock.server.core.phases import Phase
from edgeflock.server.core.roster import RETURN_S
from support.desk import Desk, back


def away(desk: Desk, *names: str) -> None:
    for name in names:
        desk.post(Offline(name, desk.now))


def test_a_round_goes_on_without_who_left_once_the_others_have_answered_and_the_grace_is_over() -> None:
    desk = Desk(8, min_updates=4, grace_s=60.0).gather()
    away(desk, "c7")
    desk.deliver(*range(7))
    assert (desk.machine.phase, desk.machine.wake_at) == (Phase.OPEN, 160.0)
    desk.pass_time(59.0)
    assert desk.of(FoldRound) == []
    desk.pass_time(1.0)
    assert desk.of(FoldRound) == [FoldRound(1, tuple(range(7)))]
    assert desk.verdicts()[7] is Verdict.LATE
    missed = Announce("clients_missed", {"round": 1, "clients": ["c7"], "grace_s": 60.0})
    assert missed in desk.done


def test_who_stays_away_costs_its_grace_once_and_is_told_of_once() -> None:
    desk = Desk(8, rounds=5, min_updates=4).gather()
    away(desk, "c7")
    desk.deliver(*range(7))
    desk.pass_time(60.0)
    for number in (2, 3, 4):
        assert (desk.machine.round, 7 in desk.machine.current.cohort) == (number, True)
        desk.deliver(*range(7))
    assert [effect.counted for effect in desk.of(FoldRound)] == [tuple(range(7))] * 4
    assert [one.name for one in desk.of(Announce)].count("clients_missed") == 1


def test_who_comes_back_takes_part_in_the_round_at_hand_and_is_waited_for() -> None:
    desk = Desk(3, rounds=5, min_updates=1).gather()
    away(desk, "c2")
    desk.deliver(0, 1)
    desk.pass_time(60.0)
    desk.post(Online("c2", desk.now))
    desk.deliver(0, 1)
    desk.pass_time(300.0)
    assert (desk.machine.phase, desk.machine.has_task(2)) == (Phase.OPEN, True)
    desk.deliver(2)
    assert desk.of(FoldRound)[-1] == FoldRound(2, (0, 1, 2))
    away(desk, "c2")  # another absence has another grace
    desk.deliver(0, 1)
    assert desk.machine.wake_at == desk.now + 60.0


def test_who_is_back_within_the_grace_changes_no_counted_set() -> None:
    desk = Desk(3, min_updates=1).gather()
    away(desk, "c0")
    desk.deliver(1, 2)
    desk.pass_time(59.9)
    desk.post(Online("c0", desk.now))
    desk.pass_time(100.0)
    desk.deliver(0)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1, 2))]


def test_the_last_one_to_leave_is_waited_for_the_longest() -> None:
    desk = Desk(4, min_updates=1).gather()
    desk.deliver(0)
    for name in ("c1", "c2"):
        away(desk, name)
        desk.pass_time(20.0)
    away(desk, "c1")  # it has been gone since then
    desk.deliver(3)
    desk.pass_time(160.0 - desk.now)
    assert (desk.machine.phase, desk.machine.wake_at) == (Phase.OPEN, 120.0 + 60.0)
    desk.pass_time(20.0)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 3))]


def test_nobody_is_missed_while_those_who_are_here_are_at_work() -> None:
    desk = Desk(3, min_updates=1).gather()
    away(desk, "c2")
    desk.deliver(0)
    desk.pass_time(500.0)
    assert desk.machine.phase is Phase.OPEN
    desk.deliver(1)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1))]


def test_the_grace_closes_no_round_with_fewer_updates_than_it_needs() -> None:
    desk = Desk(3, min_updates=3).gather()
    away(desk, "c2")
    desk.deliver(0, 1)
    assert desk.machine.wake_at == desk.machine.deadline
    desk.pass_time(300.0)
    assert desk.machine.phase is Phase.OPEN


def test_the_grace_of_none_waits_for_nobody_and_the_deadline_bounds_a_long_one() -> None:
    at_once = Desk(3, min_updates=1, grace_s=0.0).gather()
    at_once.deliver(0, 1)
    away(at_once, "c2")
    at_once.pass_time(0.0)
    assert at_once.of(FoldRound) == [FoldRound(1, (0, 1))]
    long = Desk(3, min_updates=1, grace_s=900.0).gather()
    away(long, "c2")
    long.deliver(0, 1)
    assert long.machine.wake_at == long.machine.deadline


def test_after_a_start_everybody_has_the_whole_grace_to_come_back() -> None:
    desk = back(ResumedRound(1, (0, 1, 2)), c0=b"0", c1=b"1")
    assert (desk.machine.phase, desk.machine.wake_at) == (Phase.OPEN, 160.0 + 3 * RETURN_S)
    desk.pass_time(60.1)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1))]


def test_who_refused_is_not_waited_for_and_who_left_still_is() -> None:
    desk = Desk(3, min_updates=1).gather()
    away(desk, "c2")
    desk.deliver(0)
    desk.post(TaskRefused(1, 1, desk.now))
    assert desk.machine.wake_at == 160.0
    desk.pass_time(60.0)
    assert desk.of(FoldRound) == [FoldRound(1, (0,))]


def test_with_nobody_here_the_last_round_waits_for_its_deadline() -> None:
    desk = Desk(2, rounds=1, min_updates=1, closes=True).gather()
    desk.deliver(0, 1)
    assert desk.machine.current.last
    away(desk, "c0", "c1")
    assert desk.machine.wake_at == desk.machine.deadline
    desk.post(Online("c0", desk.now))
    desk.deliver(0)
    desk.pass_time(60.0)
    assert desk.of(FoldRound)[-1] == FoldRound(2, (0,))


def test_a_cohort_is_drawn_from_those_who_are_not_away_as_far_as_they_are_enough() -> None:
    desk = Desk(6, cohort=3, rounds=30, min_updates=1).gather()
    away(desk, "c1", "c4")
    desk.pass_time(60.0)
    gone, asked = {1, 4}, set[int]()
    while desk.machine.round < 20:
        desk.deliver(*(set(desk.machine.current.cohort) - gone))
        asked |= set(desk.machine.current.cohort) if desk.machine.round > 1 else set()
    assert asked == {0, 2, 3, 5}
    away(desk, "c0", "c2")
    desk.deliver(*(set(desk.machine.current.cohort) - gone))
    desk.pass_time(60.0)
    desk.deliver(3, 5)
    assert {3, 5} <= set(desk.machine.current.cohort)
    assert len(desk.machine.current.cohort) == 3, "one who is away, for a third is wanted"


def test_cohorts_are_those_of_a_run_in_which_nobody_ever_left_while_absences_are_short() -> None:
    def cohorts(*, blink: bool) -> list[tuple[int, ...]]:
        desk = Desk(9, cohort=4, rounds=12).gather()
        while desk.machine.phase is not Phase.ENDED:
            if blink:
                away(desk, "c3")
                desk.pass_time(30.0)
                desk.post(Online("c3", desk.now))
            desk.deliver(*desk.machine.current.cohort)
        return [effect.cohort for effect in desk.of(PrepareRound)]

    assert cohorts(blink=True) == cohorts(blink=False)


# ----------------------------------------------------------------------- all who are here, LEAST..MOST


def test_a_range_asks_all_who_are_here_up_to_its_most() -> None:
    desk = Desk(6, cohort=4, least=2, min_updates=1, rounds=9).gather()
    assert len(desk.machine.current.cohort) == 4
    away(desk, "c0", "c1", "c2")
    desk.pass_time(60.0)
    desk.deliver(*desk.machine.current.cohort)
    desk.post(Online("c1", desk.now))
    desk.deliver(3, 4, 5)
    asked = [effect.cohort for effect in desk.of(PrepareRound)]
    assert asked[1:] == [(3, 4, 5), (1, 3, 4, 5)], "who is away is not asked, be the round small"


def test_with_fewer_than_its_least_a_range_waits_and_goes_on_when_somebody_comes() -> None:
    desk = Desk(4, cohort=4, least=3, min_updates=1, rounds=9).gather()
    away(desk, "c0", "c1")
    desk.pass_time(60.0)
    desk.deliver(2, 3)
    assert (desk.machine.phase, desk.machine.pause) == (Phase.COMMITTED, "too few clients are online")
    desk.post(Online("c1", desk.now))
    assert (desk.machine.phase, desk.machine.current.cohort) == (Phase.OPEN, (1, 2, 3))


def test_a_blink_changes_no_cohort_of_a_range() -> None:
    desk = Desk(4, cohort=4, least=2, min_updates=1, rounds=9).gather()
    away(desk, "c0")
    desk.deliver(1, 2, 3)
    desk.post(Online("c0", desk.now))
    desk.deliver(0)
    away(desk, "c3")
    desk.deliver(0, 1, 2)
    desk.pass_time(30.0)
    desk.post(Online("c3", desk.now))
    desk.deliver(3)
    assert [effect.cohort for effect in desk.of(PrepareRound)] == [(0, 1, 2, 3)] * 3


def test_an_online_run_with_a_range_begins_with_its_least() -> None:
    desk = Desk(5, cohort=4, least=2, min_updates=1, rounds=9, online=True)
    desk.post(Started(0.0))
    for seat, name in enumerate(("z", "a")):
        assert desk.machine.phase is Phase.GATHERING
        desk.post(Online(name, 0.0))
        desk.post(Ready(seat, 10, 0.0))
    assert desk.machine.current.cohort == (0, 1)


def test_a_range_with_extra_members_closes_with_its_most() -> None:
    desk = Desk(6, cohort=3, least=2, over_select=2, min_updates=1, rounds=9).gather()
    members = desk.machine.current.cohort
    assert len(members) == 5
    desk.deliver(*members[:3])
    assert desk.of(FoldRound) == [FoldRound(1, members[:3])]
    away(desk, "c0", "c1", "c2", "c3")
    desk.pass_time(60.0)
    desk.deliver(*(set(desk.machine.current.cohort) - {0, 1, 2, 3}))
    desk.deliver(4, 5)
    assert desk.of(FoldRound)[-1].counted == (4, 5)


def test_what_an_update_costs_does_not_grow_with_who_is_not_here() -> None:
    """After a start thousands are still on their way, and some deliver as soon as they come."""
    size = 3000
    seats = tuple((seat, f"c{seat}") for seat in range(size))
    desk = Desk(size, min_updates=size // 2)
    opened = ResumedRound(1, tuple(range(size)))
    desk.post(Started(desk.now, seats, 0, opened, samples=dict.fromkeys(range(size), 10)))
    looked = desk.machine.roster.left = Looked(desk.machine.roster.left)
    for seat, name in seats[:-1]:
        desk.post(Online(name, desk.now))
        desk.deliver(seat)
        assert desk.machine.wake_at
    assert looked.times < 10 * size


class Looked(dict[int, float]):
    """Counts how many of its keys were looked at."""

    times = 0

    def __iter__(self) -> Iterator[int]:
        for key in super().__iter__():
            self.times += 1
            yield key
