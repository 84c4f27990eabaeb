"""Who takes part: natural order, seats, seeded selection, cohorts by script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.common.verdict import Verdict
from edgeflock.server.core.conduct import ConductBook
from edgeflock.server.core.decisions import Ended, EndingKind, Outcome
from edgeflock.server.core.effects import Persist, PrepareRound
from edgeflock.server.core.events import Offline, Online, Ready, ResumedRound, Started
from edgeflock.server.core.phases import Phase
from edgeflock.server.core.roster import Roster, natural_order, select
from edgeflock.server.core.rules import Rules
from support.desk import SEATS, Desk


def empty(clients: int, *, online: bool = False) -> Roster:
    rules = Rules(rounds=1, clients=clients, cohort=clients, min_updates=1, online=online, gather_s=600.0)
    return Roster(rules, ConductBook(rules))


IDS = st.lists(st.text("ab0129._-", min_size=1, max_size=6), unique=True, max_size=12)


def test_numbers_count_by_value() -> None:
    assert natural_order(["c10", "c2", "c1", "b3", "c02"]) == ("b3", "c1", "c02", "c2", "c10")


def test_hosted_clients_stand_in_the_order_of_their_hosts() -> None:
    ids = [f"host{host}-{number}" for host in (10, 2) for number in (11, 0, 9)]
    assert natural_order(ids) == (
        "host2-0", "host2-9", "host2-11", "host10-0", "host10-9", "host10-11"
    )  # fmt: skip


@given(ids=IDS, data=st.data())
def test_the_order_does_not_know_who_came_first(ids: list[str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(ids))
    assert natural_order(shuffled) == natural_order(ids)
    assert sorted(natural_order(ids)) == sorted(ids)


@given(
    seed=st.integers(0, 2**63 - 1),
    round=st.integers(1, 10_000),
    candidates=st.lists(st.integers(0, 500), unique=True, max_size=40),
    size=st.integers(0, 50),
    data=st.data(),
)
def test_a_selection_is_a_function_of_seed_round_and_candidates(
    seed: int, round: int, candidates: list[int], size: int, data: st.DataObject
) -> None:
    chosen = select(seed, round, candidates, size)
    assert chosen == tuple(sorted(set(chosen)))
    assert set(chosen) <= set(candidates)
    assert len(chosen) == min(size, len(candidates))
    assert select(seed, round, data.draw(st.permutations(candidates)), size) == chosen


def test_rounds_and_seeds_draw_differently() -> None:
    draws = {select(seed, round, range(100), 10) for seed in range(5) for round in range(1, 6)}
    assert len(draws) == 25
    assert select(0, -1, range(100), 10) != select(0, 1, range(100), 10), "an extension draws apart"


def test_every_client_has_its_turn() -> None:
    counts = [0] * 10
    for round in range(1, 1001):
        for seat in select(7, round, range(10), 3):
            counts[seat] += 1
    assert all(230 < count < 370 for count in counts)


def test_the_numbers_of_a_seed_stay_what_they_are() -> None:
    """A resumed run and another machine must draw the same: these were drawn when the test was written."""
    drawn = [(0, 5, 9, 18), (1, 3, 5, 6), (4, 8, 9, 10)]
    assert [select(0, round, range(20), 4) for round in (1, 2, 3)] == drawn


def test_seats_go_by_natural_order_once_the_last_client_is_there() -> None:
    desk = Desk(3)
    desk.post(Started(0.0))
    desk.post(Online("c10", 1.0))
    desk.post(Online("c2", 1.0))
    assert desk.machine.roster.names == {}
    desk.post(Online("b", 1.0))
    assert desk.machine.roster.names == {0: "b", 1: "c2", 2: "c10"}


def test_a_later_id_finds_no_room() -> None:
    desk = Desk(2)
    desk.holding = (Persist,)
    desk.gather("a", "b")
    assert (desk.machine.roster.has_room_for("a"), desk.machine.roster.has_room_for("z")) == (True, False)
    desk.release()
    assert desk.post(Online("z", 1.0)) == []
    assert (desk.machine.roster.has_room_for("a"), desk.machine.roster.has_room_for("z")) == (True, False)


def test_a_client_that_goes_before_the_roster_is_full_keeps_no_place() -> None:
    desk = Desk(2)
    desk.post(Started(0.0))
    desk.post(Online("a", 0.0))
    desk.post(Offline("a", 0.0))
    desk.post(Online("b", 0.0))
    assert desk.machine.roster.names == {}
    desk.post(Online("c", 0.0))
    assert desk.machine.roster.names == {0: "b", 1: "c"}


def test_online_clients_are_seated_one_by_one_and_cohorts_come_from_who_is_there() -> None:
    desk = Desk(3, cohort=2, online=True, rounds=5)
    desk.post(Started(0.0))
    desk.post(Online("z", 0.0))
    desk.post(Ready(0, 10, 0.0))
    assert (desk.machine.roster.names, desk.machine.phase) == ({0: "z"}, Phase.GATHERING)
    desk.post(Online("a", 0.0))
    desk.post(Ready(1, 10, 0.0))
    assert (desk.machine.roster.names, desk.machine.current.cohort) == ({0: "z", 1: "a"}, (0, 1))
    desk.post(Online("m", 0.0))
    desk.post(Ready(2, 10, 0.0))
    desk.post(Offline("z", 0.0))
    desk.deliver(0, 1)
    assert desk.machine.current.cohort == (1, 2)


def test_in_online_mode_a_late_id_finds_room_only_while_there_are_seats() -> None:
    desk = Desk(2, cohort=1, online=True)
    desk.post(Started(0.0))
    desk.post(Online("a", 0.0))
    assert desk.machine.roster.has_room_for("b")
    desk.post(Online("b", 0.0))
    assert not desk.machine.roster.has_room_for("c")
    assert desk.post(Online("c", 0.0)) == []


def test_a_seat_whose_record_was_lost_in_a_crash_is_given_to_the_next() -> None:
    """Two ids were being seated when the disk was full and the process died; only the second was durable."""
    desk = Desk(3, cohort=3, online=True)
    desk.post(Started(0.0, seats=((1, "b"),)))
    for name in ("c", "a"):
        desk.post(Online(name, 0.0))
    assert desk.machine.roster.names == {0: "c", 1: "b", 2: "a"}


def test_a_script_names_every_cohort() -> None:
    desk = Desk(3, script=(("c2", "c0"), ("c1",)), min_updates=1).gather()
    desk.deliver(0, 2)
    desk.deliver(1)
    assert [effect.cohort for effect in desk.of(PrepareRound)] == [(0, 2), (1,)]
    assert desk.machine.phase is Phase.ENDED


@pytest.mark.parametrize("resumed", [False, True])
def test_a_script_that_cannot_be_followed_ends_the_run_with_a_sentence(resumed: bool) -> None:
    desk = Desk(3, script=(("c0",), ("c0", "dora")), min_updates=1)
    if resumed:
        desk.post(Started(0.0, SEATS, 0, ResumedRound(1, (0,))))
    else:
        desk.gather()
    reason = "--cohort-script names 'dora', who has no seat; seated are c0, c1, c2"
    discarded = (Outcome(0, b"", Verdict.DISCARDED),) if resumed else ()
    assert desk.exits() == [Ended(EndingKind.FAILED, reason, len(discarded), discarded)]


def seat(roster: Roster, name: str, *, written: bool = True) -> int:
    """Let somebody come; return the seat it is offered."""
    roster.come(name)
    seated = roster.offer(name)
    assert seated is not None
    if written:
        roster.take(seated.seats)
    return seated.seats[0][0]


def test_each_newcomer_gets_the_lowest_free_seat_whatever_gaps_there_are() -> None:
    roster = empty(6, online=True)
    roster.take(((0, "a"), (2, "c")))  # the seat between was lost in a crash
    assert [seat(roster, name, written=False) for name in ("b", "d")] == [1, 3]
    roster.take(((3, "d"), (1, "b")))
    del roster.names[0], roster.seat_of["a"]
    assert [seat(roster, name) for name in ("e", "f", "g")] == [0, 4, 5]
    assert roster.offer("h") is None


def test_ten_thousand_seats_are_offered_and_looked_for_once_each() -> None:
    looks = 0

    class Counted(dict[int, str]):
        def __contains__(self, seat: object) -> bool:
            nonlocal looks
            looks += 1
            return super().__contains__(seat)

    roster = empty(10_000, online=True)
    roster.names = Counted()
    assert [seat(roster, f"c{number}") for number in range(10_000)] == list(range(10_000))
    assert looks < 3 * 10_000


def test_of_thousands_who_do_not_come_a_few_are_named() -> None:
    roster = empty(10_000)
    for number in range(10_000):
        roster.come(f"c{number}")
    seated = roster.offer("c0")
    assert seated is not None
    roster.take(seated.seats)
    roster.ready.update(range(5, 10_000, 2))
    said = "; not ready: c0, c1, c2, c3 and 4,998 more"
    assert roster.shortage() == f"4998 of 10000 clients came within 600 s{said}"
