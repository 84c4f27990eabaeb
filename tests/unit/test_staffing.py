"""Who has a seat, as an operator changes it in mid-run, and what becomes of what was asked of it."""

from __future__ import annotations

import pytest

from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Dropped, EndingKind, Placed, RoundExtended
from edgeflock.server.core.effects import Announce, CommitRound, Effect, FoldRound, Persist, PrepareRound
from edgeflock.server.core.events import (
    AddAsked,
    DropAsked,
    Event,
    Offline,
    Online,
    PauseAsked,
    Ready,
    ReplaceAsked,
    ResumeAsked,
    ResumedRound,
    RoundPrepared,
    Started,
)
from edgeflock.server.core.phases import Phase
from edgeflock.server.core.wishes import Change
from support.desk import SEATS, Desk

SAMPLES = dict.fromkeys(range(3), 10)


def fault(desk: Desk, asked: Change) -> str:
    """Return why it is refused; nothing comes of it then."""
    found = desk.machine.staffed(asked)
    assert isinstance(found, str), found
    assert desk.post(asked) == []
    return found


def come(desk: Desk, name: str) -> None:
    """A client that has a seat comes and is ready."""
    desk.post(Online(name, desk.now))
    desk.post(Ready(desk.machine.roster.seat_of[name], 10, desk.now))


def told(desk: Desk, name: str) -> list[dict[str, object]]:
    return [one.fields for one in desk.of(Announce) if one.name == name]


# ---------------------------------------------------------------------------------------------- drop


def test_nobody_waits_for_who_is_dropped_and_later_rounds_do_not_ask_it() -> None:
    desk = Desk(4, min_updates=2, rounds=4).gather()
    desk.deliver(0, 1, 2)
    desk.post(DropAsked("c3", desk.now))
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1, 2))]
    assert desk.verdicts()[3] is Verdict.DISCARDED
    assert desk.machine.current.cohort == (0, 1, 2)
    assert told(desk, "client_dropped") == [{"client": "c3", "seat": 3, "round": 1}]
    desk.deliver(0, 1, 2)
    assert desk.of(FoldRound)[-1] == FoldRound(2, (0, 1, 2))


def test_the_update_of_who_is_dropped_counts_if_it_is_here() -> None:
    desk = Desk(3, min_updates=1, rounds=4).gather()
    desk.deliver(2)
    desk.post(DropAsked("c2", desk.now))
    assert Dropped(2, "c2", 1, kept=True) in desk.records()
    desk.deliver(0, 1)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1, 2))]
    assert desk.machine.current.cohort == (0, 1)


@pytest.mark.parametrize("kept", [True, False])
def test_after_a_crash_what_was_dropped_counts_as_it_did_before(kept: bool) -> None:
    """The spool may hold an update whose client was dropped before anybody knew of it."""
    desk = Desk(3, min_updates=1)
    desk.spooled = {0: b"0", 2: b"2"}
    gone = (Dropped(2, "c2", 1, kept=kept),)
    known = ResumedRound(1, (0, 1, 2))
    desk.post(Started(desk.now, SEATS, 0, known, samples={0: 10, 1: 10}, dismissed=gone))
    desk.deliver(1)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1, 2) if kept else (0, 1))]


def test_a_counted_set_that_was_decided_before_a_drop_stays() -> None:
    desk = Desk(3, min_updates=1)
    desk.spooled = {0: b"0", 2: b"2"}
    known = ResumedRound(1, (0, 1, 2), counted=(0, 2))
    gone = (Dropped(2, "c2", 1, kept=False),)
    desk.post(Started(desk.now, SEATS, 0, known, samples={0: 10, 1: 10}, dismissed=gone))
    assert desk.of(FoldRound) == [FoldRound(1, (0, 2))]


def test_a_cohort_that_was_chosen_with_the_dropped_goes_on_without_it() -> None:
    desk = Desk(3, min_updates=1, rounds=4).gather()
    desk.holding = (CommitRound,)
    desk.deliver(0, 1, 2)
    desk.post(DropAsked("c1", desk.now))
    desk.release()
    assert (desk.machine.round, desk.machine.current.cohort) == (2, (0, 1, 2))
    assert not desk.machine.has_task(1)
    desk.deliver(0, 2)
    assert desk.of(FoldRound)[-1] == FoldRound(2, (0, 2))
    assert desk.machine.current.cohort == (0, 2)


def test_no_view_tells_of_a_drop_before_the_journal_does() -> None:
    desk = Desk(3, min_updates=1).gather()
    desk.holding = (Persist,)
    effects = desk.post(DropAsked("c2", desk.now))
    assert effects == [Persist((Dropped(2, "c2", 1),))]
    assert "c2" in desk.machine.roster.seat_of
    desk.release()
    assert "c2" not in desk.machine.roster.seat_of
    assert not desk.machine.roster.has_room_for("c2")


def test_a_run_that_waits_for_one_who_is_never_ready_begins_when_that_is_dropped() -> None:
    desk = Desk(3, min_updates=1)
    desk.post(Started(desk.now))
    for name in ("c0", "c1", "c2"):
        desk.post(Online(name, desk.now))
    for seat in (0, 1):
        desk.post(Ready(seat, 10, desk.now))
    assert desk.machine.phase is Phase.GATHERING
    desk.post(DropAsked("c2", desk.now))
    assert desk.machine.current.cohort == (0, 1)


def test_the_last_round_asks_nobody_who_was_dropped() -> None:
    desk = Desk(3, min_updates=1, rounds=1, closes=True).gather()
    desk.post(DropAsked("c2", desk.now))
    desk.deliver(0, 1)
    assert (bool(desk.machine.current.last), desk.machine.current.cohort) == (True, (0, 1))


def test_a_drop_that_leaves_too_few_is_refused_in_a_sentence() -> None:
    desk = Desk(3, min_updates=3).gather()
    sentence = "without c2 there would be 2 of at least 3 clients (--min-updates): replace it"
    assert fault(desk, DropAsked("c2", desk.now)) == sentence
    short = Desk(4, cohort=3, min_updates=3, rounds=3).gather()
    outside = ({0, 1, 2, 3} - set(short.machine.current.cohort)).pop()
    short.pass_deadline()
    assert any(isinstance(one, RoundExtended) for one in short.records())
    short.post(DropAsked(f"c{outside}", short.now))
    member = short.machine.current.cohort[0]
    assert fault(short, DropAsked(f"c{member}", short.now)).startswith(f"without c{member} there would be 2")
    ranged = Desk(4, cohort=4, least=3, min_updates=1).gather()
    ranged.post(DropAsked("c0", ranged.now))
    assert "2 of at least 3 clients (--cohort)" in fault(ranged, DropAsked("c1", ranged.now))


def test_a_round_that_needs_a_member_keeps_it() -> None:
    desk = Desk(5, cohort=3, min_updates=3, rounds=3).gather()
    desk.pass_deadline()  # extended by the two others
    first, second, third, *_ = range(5)
    desk.post(DropAsked(f"c{first}", desk.now))
    desk.post(DropAsked(f"c{second}", desk.now))
    assert fault(desk, DropAsked(f"c{third}", desk.now)).startswith("without c2 there would be 2")


# ------------------------------------------------------------------------------------------- replace


def test_who_replaces_another_has_its_seat_and_its_task_and_is_waited_for() -> None:
    desk = Desk(3, min_updates=3, rounds=4).gather()
    desk.deliver(0, 1)
    desk.post(Offline("c2", desk.now))
    desk.post(ReplaceAsked("c2", "d7", desk.now))
    assert (desk.machine.roster.names[2], desk.machine.has_task(2)) == ("d7", True)
    assert told(desk, "client_replaced") == [{"client": "d7", "before": "c2", "seat": 2, "round": 1}]
    assert desk.machine.roster.dismissed.keys() == {"c2"}
    come(desk, "d7")
    desk.deliver(2)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1, 2))]
    assert desk.machine.current.cohort == (0, 1, 2)


def test_what_the_one_before_has_delivered_counts_for_the_seat() -> None:
    desk = Desk(3, min_updates=1, rounds=4).gather()
    desk.deliver(2)
    desk.post(ReplaceAsked("c2", "d7", desk.now))
    desk.deliver(0, 1)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1, 2))]


def test_rounds_do_not_ask_a_replacement_before_it_is_ready() -> None:
    desk = Desk(3, min_updates=1, rounds=6).gather()
    desk.post(ReplaceAsked("c2", "d7", desk.now))
    desk.deliver(0, 1)
    desk.pass_time(61.0)
    assert (desk.machine.round, desk.machine.current.cohort) == (2, (0, 1))
    come(desk, "d7")
    desk.deliver(0, 1)
    assert (desk.machine.round, desk.machine.current.cohort) == (3, (0, 1, 2))


def test_a_method_that_needs_everybody_waits_for_the_replacement() -> None:
    desk = Desk(3, min_updates=3, rounds=6).gather()
    desk.deliver(0, 1, 2)
    desk.holding = (CommitRound,)
    desk.deliver(0, 1, 2)
    desk.post(ReplaceAsked("c2", "d7", desk.now))
    desk.release()
    desk.deliver(0, 1)
    assert (desk.machine.round, desk.machine.phase) == (3, Phase.OPEN)
    come(desk, "d7")
    desk.deliver(2)
    assert desk.of(FoldRound)[-1] == FoldRound(3, (0, 1, 2))


def test_a_replacement_is_not_blamed_for_the_one_before() -> None:
    from edgeflock.server.core.events import Offended

    desk = Desk(3, min_updates=1, quarantine_after=2).gather()
    desk.post(Offended(2, "malformed", desk.now))
    desk.post(ReplaceAsked("c2", "d7", desk.now))
    assert desk.machine.conduct.known(2) is None
    desk.post(Offended(2, "malformed", desk.now))
    assert desk.machine.quarantined(2) is None


# ----------------------------------------------------------------------------------------------- add


def test_who_is_added_again_has_its_own_seat() -> None:
    desk = Desk(3, min_updates=1, rounds=6).gather()
    desk.post(DropAsked("c1", desk.now))
    desk.deliver(0, 2)
    desk.post(AddAsked("c1", desk.now))
    assert desk.machine.roster.seat_of["c1"] == 1
    come(desk, "c1")
    desk.deliver(0, 2)
    assert desk.machine.current.cohort == (0, 1, 2)
    assert told(desk, "client_added") == [{"client": "c1", "seat": 1, "round": 2}]


def test_another_one_gets_the_vacant_seat_and_then_a_new_one_if_there_can_be_more() -> None:
    desk = Desk(3, min_updates=1, rounds=6).gather()
    desk.post(DropAsked("c1", desk.now))
    desk.post(AddAsked("d", desk.now))
    desk.post(AddAsked("e", desk.now))
    assert desk.machine.roster.seat_of == {"c0": 0, "c2": 2, "d": 1, "e": 3}
    assert desk.machine.roster.seats == 4
    for name in ("d", "e"):
        come(desk, name)
    desk.deliver(0, 1, 2)
    assert desk.machine.current.cohort == (0, 1, 2, 3), "all is all, of more"


def test_more_seats_than_shards_are_refused_in_a_sentence() -> None:
    desk = Desk(3, no_more_seats="digits is cut into as many shards").gather()
    sentence = "all 3 seats are taken, and there can be no more: digits is cut into as many shards"
    assert fault(desk, AddAsked("d", desk.now)) == sentence


def test_in_an_online_run_a_free_seat_is_given_and_who_was_dropped_takes_none_by_itself() -> None:
    desk = Desk(3, online=True, cohort=1, min_updates=1, rounds=9)
    desk.post(Started(desk.now))
    for seat, name in enumerate(("a", "b")):
        desk.post(Online(name, desk.now))
        desk.post(Ready(seat, 10, desk.now))
    desk.post(DropAsked("a", desk.now))
    desk.post(Online("a", desk.now))
    assert desk.machine.roster.seat_of == {"b": 1}
    desk.post(AddAsked("d", desk.now))
    assert desk.machine.roster.seat_of == {"b": 1, "d": 0}
    desk.post(AddAsked("a", desk.now))
    assert desk.machine.roster.seat_of == {"b": 1, "d": 0, "a": 2}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (DropAsked("x", 0.0), "x has no seat in this run; seated are c0, c1, c2"),
        (ReplaceAsked("x", "y", 0.0), "x has no seat in this run; seated are c0, c1, c2"),
        (ReplaceAsked("c0", "c1", 0.0), "c1 has a seat in this run"),
        (AddAsked("c1", 0.0), "c1 has a seat in this run"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(asked: Change, sentence: str) -> None:
    assert fault(Desk(3).gather(), asked) == sentence


def test_who_was_dropped_replaces_nobody_but_is_added_again() -> None:
    desk = Desk(4, min_updates=1).gather()
    desk.post(DropAsked("c3", desk.now))
    words = "c3 was dropped from seat 3: 'add --client c3' gives it back"
    assert fault(desk, ReplaceAsked("c0", "c3", desk.now)) == words


@pytest.mark.parametrize(
    ("desk", "word"),
    [
        (Desk(1, central=True, method="centralized"), "has no clients"),
        (Desk(3, cohort=1, script=(("c0",),) * 2), "--cohort-script"),
    ],
)
def test_runs_whose_clients_are_given_stay_as_they_are(desk: Desk, word: str) -> None:
    assert word in fault(desk.gather(), DropAsked("c0", 0.0))


def test_before_the_roster_is_complete_a_client_comes_by_itself() -> None:
    desk = Desk(3)
    desk.post(Started(desk.now))
    assert "is not complete" in fault(desk, AddAsked("c0", desk.now))


# ------------------------------------------------------------------------- whatever the run is busy with


@pytest.mark.parametrize("asked", [DropAsked("c2", 100.0), ReplaceAsked("c2", "d", 100.0)])
@pytest.mark.parametrize("held", [(), (PrepareRound,), (FoldRound,), (CommitRound,), (Persist,)])
def test_a_change_in_any_phase_lets_the_run_come_to_its_end(
    asked: Event, held: tuple[type[Effect], ...]
) -> None:
    desk = Desk(3, min_updates=1, rounds=3).gather()
    desk.holding = held
    desk.deliver(0, 1, 2)
    desk.post(asked)
    desk.release()
    if "d" in desk.machine.roster.seat_of:
        come(desk, "d")
    for _ in range(4):
        desk.deliver(*desk.machine.current.cohort)
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, desk.machine.committed) == (EndingKind.COMPLETED, 3)


def test_a_paused_run_is_changed_and_stays_paused() -> None:
    desk = Desk(3, min_updates=1, rounds=3).gather()
    desk.post(PauseAsked(desk.now))
    desk.deliver(0, 1, 2)
    desk.post(DropAsked("c1", desk.now))
    desk.post(AddAsked("d", desk.now))
    assert (desk.machine.phase, desk.machine.pause) == (Phase.COMMITTED, "paused by the operator")
    come(desk, "d")
    desk.post(ResumeAsked(desk.now))
    assert desk.machine.current.cohort == (0, 1, 2)


def test_a_drop_while_a_round_is_being_opened_holds_for_it() -> None:
    desk = Desk(3, min_updates=1, rounds=3).gather()
    desk.holding = (PrepareRound,)
    desk.deliver(0, 1, 2)
    desk.post(DropAsked("c1", desk.now))
    desk.holding = ()
    desk.post(RoundPrepared(2, ((1, b"of a life before"),), desk.now))
    desk.deliver(0, 2)
    assert desk.of(FoldRound)[-1] == FoldRound(2, (0, 2))


def test_two_changes_of_a_seat_at_once_are_one() -> None:
    desk = Desk(4, min_updates=1).gather()
    desk.holding = (Persist,)
    desk.post(ReplaceAsked("c1", "d", desk.now))
    assert desk.post(DropAsked("c1", desk.now)) == []
    assert fault(desk, ReplaceAsked("c2", "d", desk.now)) == "d has a seat in this run"
    desk.release()
    assert desk.machine.roster.seat_of == {"c0": 0, "d": 1, "c2": 2, "c3": 3}
    assert Placed(1, "d", 1, "c1") in desk.records()
