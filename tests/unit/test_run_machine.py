"""The machine of a run, stepped in microseconds: init, steps, check."""

from __future__ import annotations

import pytest

from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import (
    Ended,
    EndingKind,
    Outcome,
    RoundClosed,
    RoundExtended,
    RoundOpened,
    Seated,
)
from edgeflock.server.core.effects import (
    Announce,
    CommitRound,
    Effect,
    Exit,
    FoldRound,
    Persist,
    PrepareRound,
    Publish,
)
from edgeflock.server.core.events import (
    Broken,
    Committed,
    Diverged,
    Done,
    DrainAsked,
    Event,
    Folded,
    LimitReached,
    Offline,
    Online,
    PauseAsked,
    Ready,
    ResumeAsked,
    ResumedRound,
    RoundPrepared,
    SpaceMissing,
    Started,
    StopAsked,
    TargetReached,
    TaskRefused,
    Ticked,
    UpdateReceived,
)
from edgeflock.server.core.phases import Phase
from edgeflock.server.core.space import RETRY_S
from support.desk import NOTHING, Desk, desk_in

# --------------------------------------------------------------------------------- gathering, seats


def test_seats_go_by_natural_order_once_the_last_client_is_there() -> None:
    desk = Desk(3)
    desk.post(Started(0.0))
    desk.post(Online("c10", 1.0))
    desk.post(Online("c2", 1.0))
    assert desk.machine.roster.names == {}
    desk.post(Online("b", 1.0))
    assert desk.machine.roster.names == {0: "b", 1: "c2", 2: "c10"}


def test_the_roster_is_frozen_in_one_record() -> None:
    desk = Desk(2).gather()
    assert desk.records()[0] == Seated(((0, "c0"), (1, "c1")))
    assert [record for record in desk.records() if isinstance(record, Seated)] == desk.records()[:1]


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


def test_no_round_opens_before_all_are_ready() -> None:
    desk = Desk(2)
    desk.post(Started(0.0))
    for name in ("c0", "c1"):
        desk.post(Online(name, 0.0))
    assert desk.post(Ready(0, 0.0)) == []
    assert desk.post(Ready(1, 0.0))[0] == Persist((RoundOpened(1, (0, 1)),))


def test_a_roster_that_stays_short_ends_the_run_with_a_sentence() -> None:
    desk = Desk(3, gather_s=60.0)
    desk.post(Started(0.0))
    desk.post(Online("a", 1.0))
    assert desk.machine.wake_at == 60.0
    desk.post(Ticked(60.0))
    assert desk.exits() == [Ended(EndingKind.FAILED, "1 of 3 clients came within 60 s", 0)]


def test_seated_clients_that_never_get_ready_are_named() -> None:
    desk = Desk(2, gather_s=60.0)
    desk.post(Started(0.0))
    for name in ("a", "b"):
        desk.post(Online(name, 1.0))
    desk.post(Ready(0, 2.0))
    desk.post(Ticked(60.0))
    (ending,) = desk.exits()
    assert ending is not None
    assert ending.reason == "1 of 2 clients came within 60 s; not ready: b"


def test_a_full_roster_that_an_operator_holds_back_is_no_time_out() -> None:
    desk = Desk(2, gather_s=60.0)
    desk.post(Started(0.0))
    desk.post(PauseAsked(0.0))
    for name in ("c0", "c1"):
        desk.post(Online(name, 1.0))
    for index in (0, 1):
        desk.post(Ready(index, 1.0))
    assert desk.post(Ticked(60.0)) == []
    desk.post(ResumeAsked(61.0))
    assert desk.machine.phase is Phase.OPEN


# --------------------------------------------------------------------------------- the usual walk


def test_the_walk_of_a_run() -> None:
    """Every decision is a record, and the next round is opened in the commit of the one before."""
    desk = Desk(2, rounds=2).gather()
    desk.deliver(0, 1)
    desk.deliver(1, 0)
    assert [effect for effect in desk.done if not isinstance(effect, Announce | Publish)] == [
        Persist((Seated(((0, "c0"), (1, "c1"))),)),
        Persist((RoundOpened(1, (0, 1)),)),
        PrepareRound(1, (0, 1)),
        Persist((RoundClosed(1, (0, 1)),)),
        FoldRound(1, (0, 1)),
        CommitRound(1, _outcomes(Verdict.COUNTED, 2), RoundOpened(2, (0, 1))),
        PrepareRound(2, (0, 1)),
        Persist((RoundClosed(2, (0, 1)),)),
        FoldRound(2, (0, 1)),
        CommitRound(2, _outcomes(Verdict.COUNTED, 2), None),
        Persist((Ended(EndingKind.COMPLETED, "all 2 rounds are done", 2),)),
        Exit(Ended(EndingKind.COMPLETED, "all 2 rounds are done", 2)),
    ]
    assert (desk.machine.phase, desk.machine.committed) == (Phase.ENDED, 2)


def _outcomes(verdict: Verdict, count: int) -> tuple[Outcome, ...]:
    return tuple(Outcome(index, b"digest%d" % index, verdict) for index in range(count))


def test_a_round_closes_when_everybody_has_delivered_and_not_before() -> None:
    desk = Desk(3, min_updates=1).gather()
    desk.deliver(2, 0)
    assert desk.machine.phase is Phase.OPEN
    desk.deliver(1)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1, 2))]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_counted_set_does_not_know_who_came_first(order: tuple[int, ...]) -> None:
    desk = Desk(3).gather()
    desk.deliver(*order)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1, 2))]


def test_an_update_of_another_round_or_of_a_stranger_changes_nothing() -> None:
    desk = Desk(3, cohort=2).gather()
    stranger = ({0, 1, 2} - set(desk.machine.current.cohort)).pop()
    member = desk.machine.current.cohort[0]
    assert desk.post(UpdateReceived(7, member, b"x", 0.0)) == []
    assert desk.post(UpdateReceived(1, stranger, b"x", 0.0)) == []
    assert desk.machine.current.received == {}


def test_has_task_follows_the_open_round() -> None:
    desk = Desk(3, cohort=2).gather()
    members = desk.machine.current.cohort
    assert [desk.machine.has_task(index) for index in range(3)] == [index in members for index in range(3)]
    desk.deliver(members[0])
    assert not desk.machine.has_task(members[0])
    desk.holding = (FoldRound,)
    desk.deliver(members[1])
    assert not any(desk.machine.has_task(index) for index in range(3))


def test_a_method_that_stops_ends_the_run_with_its_reason() -> None:
    desk = Desk(2, rounds=9).gather()
    desk.holding = (CommitRound,)
    desk.deliver(0, 1)
    desk.post(Committed(1, 0.0, stop="the budget of 3 MB is used up"))
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "the budget of 3 MB is used up", 1)]
    assert desk.machine.round == 1


# --------------------------------------------------------------------------------- the closing task

ALL_DONE = "all 2 rounds are done"


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
    assert Announce("closing_opened", {"round": 3, "cohort": ["c0", "c1", "c2"]}) in desk.done
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
    counted = {index for index, verdict in desk.verdicts().items() if verdict is Verdict.COUNTED}
    assert counted == set(answers)
    assert desk.exits() == [Ended(EndingKind.COMPLETED, ALL_DONE, 3)]


def test_it_does_not_fail_for_answers_that_are_no_numbers() -> None:
    desk = _trained()
    desk.rejected = dict.fromkeys(range(3), Verdict.NON_FINITE)
    desk.deliver(0, 1, 2)
    assert desk.exits() == [Ended(EndingKind.COMPLETED, ALL_DONE, 3)]


def test_it_is_not_shown_before_it_is_durable() -> None:
    desk = Desk(3, closes=True, rounds=1).gather()
    desk.holding = (CommitRound,)
    desk.deliver(0, 1, 2)
    desk.holding = (Persist,)
    effects = desk.post(Committed(1, desk.now))
    assert effects == [Persist((RoundOpened(2, (0, 1, 2), "all 1 rounds are done"),))]
    assert not any(desk.machine.has_task(index) for index in range(3))
    desk.release()
    assert all(desk.machine.has_task(index) for index in range(3))


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
    desk.post(Started(0.0, SEATS, 1))
    assert desk.post(Done("enough is learnt", 0.0)) == [
        Persist((RoundOpened(2, (0, 1, 2), "enough is learnt"),))
    ]
    desk.holding = ()
    desk.post(Done("there is nothing to ask", 0.0))
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "enough is learnt", 1)]


def test_without_a_round_of_training_nobody_is_asked() -> None:
    desk = Desk(3, closes=True)
    desk.holding = (Persist,)
    desk.post(Started(0.0, SEATS))
    for index in range(3):
        desk.post(Ready(index, 0.0))
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
    assert _back(None, committed=1, rounds=1, closes=True).records() == [
        RoundOpened(2, (0, 1, 2), "all 1 rounds are done")
    ]


def test_an_open_closing_round_goes_on_after_a_crash() -> None:
    """Although fewer rounds are committed than may be: its method had stopped."""
    going = ResumedRound(3, (0, 1, 2), last="two are enough")
    desk = _back(going, committed=2, rounds=9, closes=True, c1=b"one")
    assert desk.of(PrepareRound) == [PrepareRound(3, (0, 1, 2), last=True)]
    assert desk.machine.current.received == {1: b"one"}
    desk.deliver(0, 2)
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "two are enough", 3)]


def test_a_closing_round_that_is_committed_ends_the_run() -> None:
    desk = Desk(3, closes=True)
    desk.post(Started(0.0, SEATS, 3, over=ALL_DONE))
    assert desk.exits() == [Ended(EndingKind.COMPLETED, ALL_DONE, 3)]
    assert desk.machine.trained == 2


def test_an_open_round_of_training_beyond_fewer_rounds_is_discarded_and_nobody_is_asked() -> None:
    """The recovery takes it from a method that closes before it comes to that."""
    desk = _back(ResumedRound(2, (0, 1, 2)), committed=1, rounds=1, closes=True)
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, ending.reason) == (EndingKind.COMPLETED, "all 1 rounds are done")
    assert [item.verdict for item in ending.discarded] == [Verdict.DISCARDED] * 3


# --------------------------------------------------------------------------------- deadlines


def test_at_its_deadline_a_round_closes_with_enough_updates() -> None:
    desk = Desk(3, min_updates=2).gather()
    desk.deliver(0, 2)
    assert desk.machine.wake_at == desk.machine.deadline == 700.0
    assert desk.pass_time(599.0) == []
    desk.pass_time(1.0)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 2))]
    assert desk.verdicts() == {0: Verdict.COUNTED, 1: Verdict.LATE, 2: Verdict.COUNTED}


def test_a_short_round_is_extended_once_by_members_from_outside() -> None:
    desk = Desk(6, cohort=3, min_updates=2).gather()
    before = desk.machine.current.cohort
    desk.deliver(before[0])
    desk.pass_deadline()
    (record,) = [record for record in desk.records() if isinstance(record, RoundExtended)]
    assert len(record.added) == 1
    assert not set(record.added) & set(before)
    assert desk.machine.current.cohort == tuple(sorted({*before, *record.added}))
    assert desk.machine.deadline == desk.now + 600.0


def test_members_are_not_told_of_an_extension_before_it_is_durable() -> None:
    desk = Desk(6, cohort=3, min_updates=2).gather()
    before = desk.machine.current.cohort
    desk.holding = (Persist,)
    effects = desk.pass_deadline()
    assert not any(isinstance(effect, Publish) for effect in effects)
    assert desk.machine.current.cohort == before
    desk.release()
    assert len(desk.machine.current.cohort) == 5


def test_an_extended_round_that_stays_short_pauses_and_names_who_is_missing() -> None:
    desk = Desk(3, min_updates=3).gather("ann", "bob", "cy")
    desk.deliver(1)
    desk.pass_deadline()
    desk.pass_deadline()
    assert desk.machine.pause == "round 1 has 1 of at least 3 updates; missing: ann, cy"
    assert desk.machine.wake_at is None
    assert [record for record in desk.records() if isinstance(record, RoundExtended)] == [
        RoundExtended(1, ())
    ]


def test_a_paused_round_closes_by_itself_as_soon_as_there_are_enough() -> None:
    desk = Desk(3, min_updates=2).gather()
    desk.pass_deadline()
    desk.pass_deadline()
    desk.deliver(2)
    assert desk.machine.pause
    desk.deliver(0)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 2))]
    assert desk.machine.pause == ""
    assert desk.machine.round == 2


def test_resuming_a_paused_short_round_gives_it_another_deadline() -> None:
    desk = Desk(3, min_updates=3).gather()
    desk.pass_deadline()
    desk.pass_deadline()
    desk.post(ResumeAsked(desk.now))
    assert (desk.machine.pause, desk.machine.deadline) == ("", desk.now + 600.0)
    desk.pass_deadline()
    assert desk.machine.pause


def test_a_tick_before_its_time_does_nothing() -> None:
    desk = Desk(2).gather()
    assert desk.post(Ticked(desk.now)) == []
    assert desk.machine.phase is Phase.OPEN


# --------------------------------------------------------------------------------- over-selection


def test_an_over_selected_round_closes_with_as_many_as_the_cohort_asks_for() -> None:
    desk = Desk(5, cohort=2, over_select=2, min_updates=1).gather()
    members = desk.machine.current.cohort
    assert len(members) == 4
    desk.deliver(members[3], members[1])
    assert desk.of(FoldRound) == [FoldRound(1, (members[1], members[3]))]
    assert [desk.verdicts()[index] for index in members] == [
        Verdict.LATE, Verdict.COUNTED, Verdict.LATE, Verdict.COUNTED
    ]  # fmt: skip


# --------------------------------------------------------------------------------- refused tasks


def test_a_round_does_not_wait_for_those_who_refused() -> None:
    desk = Desk(3, min_updates=2).gather()
    desk.deliver(0)
    desk.post(TaskRefused(1, 1, desk.now))
    desk.deliver(2)
    assert desk.verdicts() == {0: Verdict.COUNTED, 1: Verdict.REFUSED_BY_CLIENT, 2: Verdict.COUNTED}


@pytest.mark.parametrize("last", ["refusal", "update"])
def test_when_all_have_answered_and_too_few_delivered_nobody_waits_for_the_deadline(last: str) -> None:
    desk = Desk(2, min_updates=2).gather()
    steps: list[Event] = [UpdateReceived(1, 0, b"x", desk.now), TaskRefused(1, 1, desk.now)]
    for event in steps if last == "refusal" else steps[::-1]:
        desk.post(event)
    assert RoundExtended(1, ()) in desk.records()


def test_a_refusal_of_another_round_or_after_the_delivery_counts_for_nothing() -> None:
    desk = Desk(2).gather()
    desk.deliver(0)
    assert desk.post(TaskRefused(1, 0, 0.0)) == []
    assert desk.post(TaskRefused(3, 1, 0.0)) == []
    assert desk.machine.current.refused == set()


# --------------------------------------------------------------------------------- bad updates


def test_a_rejected_update_leaves_the_others_counted() -> None:
    desk = Desk(3, min_updates=2).gather()
    desk.rejected = {1: Verdict.NON_FINITE}
    desk.deliver(0, 1, 2)
    assert desk.verdicts() == {0: Verdict.COUNTED, 1: Verdict.NON_FINITE, 2: Verdict.COUNTED}
    assert desk.machine.round == 2


@pytest.mark.parametrize(
    ("verdict", "hint"),
    [
        (Verdict.NON_FINITE, "; what is not finite comes of training that diverges: try a smaller --lr"),
        (Verdict.MALFORMED, ""),
    ],
)
def test_too_few_good_updates_fail_the_run_and_nothing_of_the_round_counts(
    verdict: Verdict, hint: str
) -> None:
    desk = Desk(3, min_updates=2).gather()
    desk.rejected = {0: verdict, 2: verdict}
    desk.deliver(0, 1, 2)
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, desk.machine.committed, desk.of(CommitRound)) == (EndingKind.FAILED, 0, [])
    assert ending.reason == (
        f"round 1: 1 good updates are fewer than the 2 needed; refused: c0 ({verdict}), c2 ({verdict}){hint}"
    )
    assert [item.verdict for item in ending.discarded] == [verdict, Verdict.DISCARDED, verdict]


# --------------------------------------------------------------------------------- the operator


def test_pause_lets_the_open_round_finish_and_opens_no_other() -> None:
    desk = Desk(2, rounds=3).gather()
    desk.post(PauseAsked(desk.now))
    desk.deliver(0, 1)
    assert (desk.machine.phase, desk.machine.committed) == (Phase.COMMITTED, 1)
    assert desk.machine.pause == "paused by the operator"
    desk.post(ResumeAsked(desk.now))
    assert (desk.machine.phase, desk.machine.round, desk.machine.pause) == (Phase.OPEN, 2, "")


def test_a_pause_during_the_commit_lets_the_round_that_is_decided_go_on() -> None:
    desk = Desk(2, rounds=3).gather()
    desk.holding = (CommitRound,)
    desk.deliver(0, 1)
    desk.post(PauseAsked(desk.now))
    desk.release()
    assert desk.machine.round == 2
    desk.deliver(0, 1)
    assert (desk.machine.round, desk.machine.phase) == (2, Phase.COMMITTED)


PHASES = (Phase.GATHERING, Phase.OPENING, Phase.OPEN, Phase.FOLDING, Phase.COMMITTING, Phase.COMMITTED)


@pytest.mark.parametrize("phase", PHASES)
def test_stop_ends_the_run_from_every_phase(phase: Phase) -> None:
    """What is closed is still committed; what is open is discarded, and each member is told so."""
    desk = desk_in(phase)
    desk.post(StopAsked("enough", desk.now))
    desk.release()
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, ending.reason) == (EndingKind.STOPPED, "enough")
    closed = phase in (Phase.FOLDING, Phase.COMMITTING, Phase.COMMITTED)
    assert desk.machine.committed == (1 if closed else 0)
    discarded = phase in (Phase.OPENING, Phase.OPEN)
    assert [item.verdict for item in ending.discarded] == ([Verdict.DISCARDED] * 2 if discarded else [])
    assert desk.machine.phase is Phase.ENDED


def test_a_stop_before_the_opening_is_durable_discards_a_round_that_nobody_knows() -> None:
    desk = Desk(2)
    desk.post(Started(0.0))
    for name in ("c0", "c1"):
        desk.post(Online(name, 0.0))
    desk.post(Ready(0, 0.0))
    desk.holding = (Persist,)
    desk.post(Ready(1, 0.0))
    desk.post(StopAsked("enough", 0.0))
    desk.release()
    assert desk.exits() == [Ended(EndingKind.STOPPED, "enough", 0)]


@pytest.mark.parametrize("phase", PHASES)
def test_drain_parks_the_run_in_every_phase(phase: Phase) -> None:
    """A commit under way is finished first; nothing is decided after the exit."""
    desk = desk_in(phase)
    desk.post(DrainAsked(desk.now))
    busy = phase in (Phase.FOLDING, Phase.COMMITTING)
    assert desk.exits() == ([] if busy else [None])
    desk.release()
    assert desk.exits() == [None]
    assert desk.machine.committed == (1 if busy or phase is Phase.COMMITTED else 0)
    done = len(desk.done)
    desk.deliver(0, 1)
    desk.post(StopAsked("enough", desk.now))
    desk.post(DrainAsked(desk.now))
    desk.post(Ticked(desk.now + 10_000))
    assert len(desk.done) == done


# --------------------------------------------------------------------------------- a full disk


FULL = "no space left on the disk (spool)"


@pytest.mark.parametrize("kind", [Persist, PrepareRound, CommitRound])
def test_an_effect_that_found_the_disk_full_is_tried_again_until_there_is_space(kind: type[Effect]) -> None:
    desk = Desk(2, rounds=1)
    desk.holding = (kind,)
    desk.gather()
    if kind is CommitRound:
        desk.deliver(0, 1)
    (effect,) = desk.held
    for _ in range(3):
        desk.held.clear()
        desk.post(SpaceMissing(effect, FULL, desk.now))
        assert (desk.machine.pause, desk.machine.wake_at) == (FULL, desk.now + RETRY_S)
        desk.pass_time(RETRY_S)
        assert desk.held == [effect]
    assert len([item for item in desk.of(Announce) if item.name == "run_paused"]) == 1
    desk.release()
    assert desk.machine.pause == ""
    assert [item for item in desk.of(Announce) if item.name == "run_resumed"]


def test_a_round_keeps_its_deadline_while_something_waits_for_space() -> None:
    desk = Desk(4, cohort=2, min_updates=2).gather()
    desk.deliver(desk.machine.current.cohort[0])
    desk.holding = (Persist,)
    (extension,) = desk.pass_deadline()
    deadline = desk.machine.deadline
    desk.post(SpaceMissing(extension, FULL, desk.now))
    desk.pass_time(RETRY_S)
    desk.release()
    assert desk.machine.wake_at == deadline


def test_two_effects_that_found_the_disk_full_are_both_tried_again() -> None:
    """Online mode: two seats in one failed transaction."""
    desk = Desk(4, cohort=4, online=True)
    desk.post(Started(0.0))
    desk.holding = (Persist,)
    for name in ("a", "b"):
        desk.post(Online(name, 0.0))
    first, second = desk.held
    desk.held = []
    for effect in (first, second):
        desk.post(SpaceMissing(effect, FULL, 0.0))
    desk.post(Ticked(RETRY_S))
    assert desk.held == [first, second]
    desk.release()
    assert desk.machine.roster.names == {0: "a", 1: "b"}
    assert desk.machine.pause == ""


def test_another_effect_that_comes_through_does_not_forget_the_waiting_one() -> None:
    desk = Desk(3, cohort=1, online=True)
    desk.post(Started(0.0))
    desk.holding = (CommitRound,)
    desk.post(Online("a", 0.0))
    desk.post(Ready(0, 0.0))
    desk.deliver(0)
    (commit,) = desk.held
    desk.held = []
    desk.post(SpaceMissing(commit, FULL, 0.0))
    desk.post(Online("b", 1.0))  # seated, durably
    assert desk.machine.pause == FULL
    desk.post(Ticked(RETRY_S))
    assert desk.held == [commit]


def test_a_pause_for_shortage_is_there_again_when_the_disk_has_space() -> None:
    desk = Desk(3, cohort=3, min_updates=3, online=False).gather()
    desk.pass_deadline()
    desk.pass_deadline()
    shortage = desk.machine.pause
    effect = Persist((RoundExtended(1, ()),))
    desk.post(SpaceMissing(effect, FULL, desk.now))
    assert desk.machine.pause == FULL
    desk.pass_time(RETRY_S)
    assert desk.machine.pause == shortage


def test_a_stop_forgets_what_waited_for_space_and_its_own_record_waits() -> None:
    desk = Desk(2)
    desk.holding = (PrepareRound, Persist)
    desk.gather()
    for _ in range(2):  # seats, then the opening
        desk.carry_out(desk.held.pop())
        for index in (0, 1):
            desk.post(Ready(index, desk.now))
    (prepare,) = desk.held
    desk.held = []
    desk.post(StopAsked("enough", desk.now))
    (end,) = desk.held
    desk.held = []
    desk.post(SpaceMissing(prepare, FULL, desk.now))
    desk.post(SpaceMissing(end, FULL, desk.now))
    desk.pass_time(RETRY_S)
    assert desk.held == [end]
    desk.release()
    assert [ending.kind for ending in desk.exits() if ending] == [EndingKind.STOPPED]


def test_an_effect_that_fails_for_good_ends_the_process_with_its_reason() -> None:
    desk = Desk(2).gather()
    desk.post(Broken("the journal cannot be written: disk I/O error", 0.0))
    assert desk.exits() == [Ended(EndingKind.FAILED, "the journal cannot be written: disk I/O error", 1)]


def test_such_a_failure_is_no_end_of_the_run() -> None:
    """Clients see a server that goes down and will be back; nothing is decided any more."""
    desk = Desk(2).gather()
    before = desk.records()
    desk.post(Broken("the spool cannot be written: Input/output error", 0.0))
    assert (desk.machine.ending, desk.machine.draining) == (None, True)
    desk.deliver(0, 1)
    assert desk.records() == before


@pytest.mark.parametrize("held", [FoldRound, CommitRound])
def test_a_sum_that_is_not_finite_ends_the_run_and_every_member_is_told(held: type[Effect]) -> None:
    desk = Desk(2).gather()
    desk.holding = (held,)
    desk.deliver(0, 1)
    desk.post(Diverged(1, "the new state holds NaN", 0.0))
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, ending.reason) == (EndingKind.FAILED, "the new state holds NaN")
    assert [item.verdict for item in ending.discarded] == [Verdict.DISCARDED] * 2
    assert ending in desk.records()


def test_a_method_that_wants_no_further_round_is_heard_when_one_is_opened() -> None:
    """After a pause or a crash: the stop came with no commit."""
    desk = Desk(3)
    desk.holding = (Persist,)
    desk.post(Started(0.0, SEATS, 1))
    assert desk.held == [Persist((RoundOpened(2, (0, 1, 2)),))]
    desk.holding = ()
    desk.post(Done("enough is learnt", 0.0))
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "enough is learnt", 1)]
    assert desk.post(Done("enough is learnt", 0.0)) == []


# --------------------------------------------------------------------------------- coming back


SEATS = ((0, "c0"), (1, "c1"), (2, "c2"))


def _back(
    opened: ResumedRound | None,
    *,
    committed: int = 0,
    rounds: int = 3,
    closes: bool = False,
    **spooled: bytes,
) -> Desk:
    desk = Desk(3, rounds=rounds, min_updates=2, closes=closes)
    desk.spooled = {int(name[1:]): digest for name, digest in spooled.items()}
    desk.post(Started(desk.now, SEATS, committed, opened))
    return desk


def test_an_open_round_goes_on_with_what_the_spool_holds() -> None:
    desk = _back(ResumedRound(1, (0, 1, 2)), c1=b"one")
    assert desk.records() == []
    assert (desk.machine.phase, desk.machine.current.received) == (Phase.OPEN, {1: b"one"})
    assert desk.machine.deadline == desk.now + 600.0
    assert [desk.machine.has_task(index) for index in range(3)] == [True, False, True]
    desk.deliver(0, 2)
    assert desk.machine.committed == 1


def test_a_round_whose_updates_are_all_in_the_spool_closes_at_once() -> None:
    desk = _back(ResumedRound(2, (0, 1, 2)), committed=1, c0=b"a", c1=b"b", c2=b"c")
    assert desk.machine.committed == 2


def test_a_closed_round_counts_who_was_decided_and_nobody_else() -> None:
    desk = _back(ResumedRound(1, (0, 1, 2), counted=(0, 2)), c0=b"a", c1=b"b", c2=b"c")
    assert desk.of(FoldRound) == [FoldRound(1, (0, 2))]
    assert desk.verdicts() == {0: Verdict.COUNTED, 1: Verdict.LATE, 2: Verdict.COUNTED}


def test_a_closed_round_whose_spool_has_lost_an_update_is_open_again() -> None:
    desk = _back(ResumedRound(1, (0, 1, 2), counted=(0, 2)), c0=b"a")
    assert (desk.machine.phase, desk.machine.current.counted) == (Phase.OPEN, None)
    desk.deliver(1, 2)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1, 2))]


def test_what_the_spool_holds_of_strangers_is_not_received() -> None:
    desk = Desk(3, cohort=2, min_updates=2)
    desk.spooled = {0: b"a", 2: b"b"}
    desk.post(Started(0.0, SEATS, 0, ResumedRound(1, (0, 1))))
    assert desk.machine.current.received == {0: b"a"}


def test_a_round_that_was_extended_is_not_extended_again() -> None:
    desk = _back(ResumedRound(1, (0, 1, 2), added=()))
    desk.pass_deadline()
    assert desk.machine.current.shortage
    assert desk.records() == []


def test_an_extended_round_is_the_same_after_a_restart() -> None:
    """With whom it was opened, and how many it waits for: crashes are no matter of a method."""
    after = Desk(6, cohort=6, min_updates=2, online=True)
    after.spooled = {4: b"kept"}
    after.post(Started(0.0, tuple(enumerate("abcdef")), 0, ResumedRound(1, (0, 1, 3), (4,))))
    assert after.of(PrepareRound) == [PrepareRound(1, (0, 1, 3), added=(4,))]
    assert (after.machine.current.cohort, after.machine.current.size) == ((0, 1, 3, 4), 3)
    assert after.machine.current.received == {4: b"kept"}


def test_between_two_rounds_the_next_is_opened() -> None:
    desk = _back(None, committed=1)
    assert desk.records() == [RoundOpened(2, (0, 1, 2))]


def test_a_roster_that_is_complete_waits_until_all_are_ready_again_before_round_1() -> None:
    desk = _back(None)
    assert desk.done == []
    for index in range(3):
        desk.post(Ready(index, desk.now))
    assert desk.records() == [RoundOpened(1, (0, 1, 2))]


def test_a_run_whose_last_round_is_committed_ends() -> None:
    desk = _back(None, committed=3)
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "all 3 rounds are done", 3)]


# --------------------------------------------------------------------------------- online mode


def test_online_clients_are_seated_one_by_one_and_cohorts_come_from_who_is_there() -> None:
    desk = Desk(3, cohort=2, online=True, rounds=5)
    desk.post(Started(0.0))
    desk.post(Online("z", 0.0))
    desk.post(Ready(0, 0.0))
    assert (desk.machine.roster.names, desk.machine.phase) == ({0: "z"}, Phase.GATHERING)
    desk.post(Online("a", 0.0))
    desk.post(Ready(1, 0.0))
    assert (desk.machine.roster.names, desk.machine.current.cohort) == ({0: "z", 1: "a"}, (0, 1))
    desk.post(Online("m", 0.0))
    desk.post(Ready(2, 0.0))
    desk.post(Offline("z", 0.0))
    desk.deliver(0, 1)
    assert desk.machine.current.cohort == (1, 2)


def test_online_rounds_rest_while_too_few_are_there() -> None:
    desk = Desk(2, cohort=2, online=True, rounds=5)
    desk.gather("a", "b")
    for index in (0, 1):
        desk.post(Ready(index, 0.0))
    desk.post(Offline("b", 0.0))
    desk.deliver(0, 1)
    assert (desk.machine.phase, desk.machine.pause) == (Phase.COMMITTED, "too few clients are online")
    desk.post(Online("b", 0.0))
    assert (desk.machine.phase, desk.machine.round, desk.machine.pause) == (Phase.OPEN, 2, "")


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


# --------------------------------------------------------------------------------- cohort scripts


def test_a_script_names_every_cohort() -> None:
    desk = Desk(3, script=(("c2", "c0"), ("c1",)), min_updates=1).gather()
    desk.deliver(0, 2)
    desk.deliver(1)
    assert [effect.cohort for effect in desk.of(PrepareRound)] == [(0, 2), (1,)]
    assert desk.machine.phase is Phase.ENDED


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ((("c0",), ("c0", "dora")), "--cohort-script names 'dora', who has no seat; seated are c0, c1, c2"),
    ],
)
@pytest.mark.parametrize("resumed", [False, True])
def test_a_script_that_cannot_be_followed_ends_the_run_with_a_sentence(
    script: tuple[tuple[str, ...], ...], reason: str, resumed: bool
) -> None:
    desk = Desk(3, script=script, min_updates=1)
    if resumed:
        desk.post(Started(0.0, SEATS, 0, ResumedRound(1, (0,))))
    else:
        desk.gather()
    discarded = (Outcome(0, b"", Verdict.DISCARDED),) if resumed else ()
    assert desk.exits() == [Ended(EndingKind.FAILED, reason, len(discarded), discarded)]


def test_an_open_round_beyond_the_last_one_asked_for_is_discarded() -> None:
    desk = _back(ResumedRound(2, (0, 1)), committed=1, rounds=1, c0=b"a")
    (ending,) = desk.exits()
    assert ending is not None
    assert ending.discarded == (Outcome(0, b"", Verdict.DISCARDED), Outcome(1, b"", Verdict.DISCARDED))


# --------------------------------------------------------------------------------- persist, then speak


def test_nobody_is_told_of_a_decision_before_it_is_durable() -> None:
    """Hold every record back in turn: while it is not durable, nothing is published."""
    desk = Desk(2, rounds=2)
    desk.holding = (Persist, CommitRound)
    desk.post(Started(0.0))
    steps: list[Event] = [
        Online("c0", 0.0), Online("c1", 0.0), Ready(0, 0.0), Ready(1, 0.0),
        UpdateReceived(1, 0, b"x", 0.0), UpdateReceived(1, 1, b"y", 0.0),
        UpdateReceived(2, 0, b"x", 0.0), UpdateReceived(2, 1, b"y", 0.0),
    ]  # fmt: skip
    for event in steps:
        before = len(desk.of(Publish))
        desk.post(event)
        assert len(desk.of(Publish)) == before, event
        while desk.held:
            desk.carry_out(desk.held.pop(0))
    assert desk.machine.phase is Phase.ENDED


def test_the_counted_set_is_durable_before_the_commit_starts() -> None:
    desk = Desk(2).gather()
    desk.holding = (Persist,)
    desk.deliver(0, 1)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1))]
    assert desk.of(CommitRound) == []
    desk.release()
    assert [effect.round for effect in desk.of(CommitRound)] == [1]


@pytest.mark.parametrize("event", [Folded(1, NOTHING, 0.0), Committed(1, 0.0), RoundPrepared(1, (), 0.0)])
def test_an_answer_that_was_not_asked_for_changes_nothing(event: Event) -> None:
    desk = Desk(2).gather()
    phase = desk.machine.phase
    assert desk.post(event) == []
    assert desk.machine.phase is phase


# --------------------------------------------------------------------------------- budgets and targets

USED_UP = "the budget of time is used up"
REACHED = "the target is reached"


def limit(desk: Desk) -> list[Effect]:
    return desk.post(LimitReached(USED_UP, desk.now))


def test_a_limit_closes_a_round_with_enough_updates_and_the_decision_is_durable_first() -> None:
    desk = Desk(3, min_updates=2).gather()
    desk.deliver(0, 2)
    desk.holding = (Persist,)
    assert limit(desk) == [Persist((RoundClosed(1, (0, 2), USED_UP),)), FoldRound(1, (0, 2))]
    assert desk.of(CommitRound) == []
    desk.release()
    assert desk.of(CommitRound) == [CommitRound(1, desk.of(CommitRound)[0].outcomes, None)]
    assert desk.verdicts() == {0: Verdict.COUNTED, 1: Verdict.LATE, 2: Verdict.COUNTED}
    assert desk.exits() == [Ended(EndingKind.COMPLETED, USED_UP, 1)]
    (cut,) = [effect for effect in desk.of(Announce) if effect.name == "round_cut"]
    assert cut.fields == {"round": 1, "counted": ["c0", "c2"], "reason": USED_UP}


def test_a_limit_discards_a_round_with_too_few_updates() -> None:
    desk = Desk(3, min_updates=2).gather()
    desk.deliver(1)
    limit(desk)
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, ending.reason) == (EndingKind.COMPLETED, USED_UP)
    assert [(item.digest, item.verdict) for item in ending.discarded] == [
        (b"", Verdict.DISCARDED),
        (b"digest1", Verdict.DISCARDED),
        (b"", Verdict.DISCARDED),
    ]
    assert desk.of(FoldRound) == []


@pytest.mark.parametrize("held", [FoldRound, CommitRound])
def test_a_limit_while_a_round_is_committed_lets_it_count_and_ends_the_run(held: type[Effect]) -> None:
    desk = Desk(2).gather()
    desk.holding = (held,)
    desk.deliver(0, 1)
    assert limit(desk) == []
    desk.release()
    assert desk.machine.committed == 1
    assert desk.exits() == [Ended(EndingKind.COMPLETED, USED_UP, 1)]


def test_a_limit_while_a_round_is_opened_waits_for_what_the_spool_holds() -> None:
    """After a crash: the updates that were there before decide."""
    for held, committed in (((0, 1), 1), ((0,), 0)):
        desk = Desk(3, min_updates=2)
        desk.spooled = {index: b"digest%d" % index for index in held}
        desk.holding = (PrepareRound,)
        seats = tuple((index, f"c{index}") for index in range(3))
        desk.post(Started(0.0, seats, open=ResumedRound(1, (0, 1, 2))))
        assert limit(desk) == []
        desk.release()
        assert desk.machine.committed == committed
        (ending,) = desk.exits()
        assert ending is not None
        assert ending.reason == USED_UP


def test_a_cut_round_goes_on_after_a_crash_and_ends_the_run() -> None:
    seats = ((0, "c0"), (1, "c1"))
    desk = Desk(2, min_updates=1)
    desk.spooled = {0: b"digest0"}
    desk.post(Started(0.0, seats, open=ResumedRound(1, (0, 1), counted=(0,)), limit=USED_UP))
    assert desk.verdicts() == {0: Verdict.COUNTED, 1: Verdict.LATE}
    assert desk.exits() == [Ended(EndingKind.COMPLETED, USED_UP, 1)]


def test_a_cut_round_that_is_committed_ends_the_run_after_a_crash() -> None:
    desk = Desk(2)
    desk.post(Started(0.0, ((0, "c0"), (1, "c1")), committed=1, limit=USED_UP))
    assert desk.exits() == [Ended(EndingKind.COMPLETED, USED_UP, 1)]


def test_a_cut_round_whose_updates_are_poisoned_is_discarded_and_no_failure() -> None:
    desk = Desk(2, min_updates=1).gather()
    desk.rejected = {0: Verdict.NON_FINITE}
    desk.deliver(0)
    limit(desk)
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, ending.reason) == (EndingKind.COMPLETED, USED_UP)


def test_no_closing_task_is_asked_when_a_limit_is_reached_in_mid_round() -> None:
    desk = Desk(2, min_updates=1, closes=True).gather()
    desk.deliver(0)
    limit(desk)
    assert desk.exits() == [Ended(EndingKind.COMPLETED, USED_UP, 1)]


def test_a_limit_closes_a_closing_task_with_whoever_has_answered() -> None:
    desk = Desk(2, rounds=1, closes=True).gather()
    desk.deliver(0, 1)
    assert desk.machine.over == "all 1 rounds are done"
    desk.deliver(1)
    limit(desk)
    assert desk.verdicts() == {0: Verdict.LATE, 1: Verdict.COUNTED}
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "all 1 rounds are done", 2)]


def reach(desk: Desk, round: int) -> list[Effect]:
    return desk.post(TargetReached(round, REACHED, desk.now))


def test_a_target_discards_the_open_round_and_the_committed_one_is_the_last() -> None:
    desk = Desk(2).gather()
    desk.deliver(0, 1)
    desk.deliver(1)
    assert reach(desk, 0) == []  # of a round long ago
    reach(desk, 1)
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, ending.reason, ending.round) == (EndingKind.COMPLETED, REACHED, 2)
    assert [item.verdict for item in ending.discarded] == [Verdict.DISCARDED] * 2
    assert desk.machine.committed == 1


@pytest.mark.parametrize("held", [PrepareRound, FoldRound, CommitRound])
def test_a_target_discards_a_round_in_whatever_state_it_is(held: type[Effect]) -> None:
    desk = Desk(2).gather()
    desk.deliver(0, 1)
    desk.holding = (held,)
    if held is PrepareRound:
        desk = Desk(2)
        desk.holding = (held,)
        desk.post(Started(0.0, ((0, "c0"), (1, "c1")), committed=1, open=ResumedRound(2, (0, 1))))
    else:
        desk.deliver(0, 1)
    reach(desk, 1)
    desk.release()
    assert desk.machine.committed == 1
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.reason, len(ending.discarded)) == (REACHED, 2)


def test_a_target_that_was_reached_before_a_crash_ends_the_run_whatever_was_decided_of_the_next_round() -> (
    None
):
    desk = Desk(2)
    opened = ResumedRound(2, (0, 1), counted=(0, 1))
    desk.post(Started(0.0, ((0, "c0"), (1, "c1")), committed=1, open=opened, reached=REACHED))
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.reason, len(ending.discarded)) == (REACHED, 2)


def test_the_last_round_s_target_is_the_reason_of_the_end_and_asks_for_no_closing_task() -> None:
    desk = Desk(2, rounds=1, closes=True).gather()
    desk.holding = (CommitRound,)
    desk.deliver(0, 1)
    desk.post(Committed(1, 0.0, reached=REACHED))
    assert desk.exits() == [Ended(EndingKind.COMPLETED, REACHED, 1)]
