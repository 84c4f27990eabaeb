"""One round, from its opening to its commit, stepped in microseconds."""

from __future__ import annotations

import pytest

from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import EndingKind, RoundExtended
from edgeflock.server.core.effects import CommitRound, FoldRound, Persist, PrepareRound, Publish
from edgeflock.server.core.events import (
    Event,
    PauseAsked,
    Ready,
    ResumeAsked,
    ResumedRound,
    Started,
    TaskRefused,
    UpdateReceived,
)
from edgeflock.server.core.phases import Phase
from support.desk import SEATS, Desk, back

# ------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_round_closes_when_all_have_delivered_whoever_came_first(order: tuple[int, ...]) -> None:
    desk = Desk(3, min_updates=1).gather()
    desk.deliver(*order[:2])
    assert desk.machine.phase is Phase.OPEN
    desk.deliver(order[2])
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
    assert [desk.machine.has_task(seat) for seat in range(3)] == [seat in members for seat in range(3)]
    desk.deliver(members[0])
    assert not desk.machine.has_task(members[0])
    desk.holding = (FoldRound,)
    desk.deliver(members[1])
    assert not any(desk.machine.has_task(seat) for seat in range(3))


# -------------------------------------------------------------------------------------- the deadline


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


def test_so_many_may_still_join_a_round_as_an_extension_could_bring() -> None:
    """The budgets' shares are cut for them, too."""
    desk = Desk(5, cohort=2, min_updates=2).gather()
    assert desk.machine.current.spare == 2
    assert Desk(3, cohort=2, min_updates=2).gather().machine.current.spare == 1, "nobody else is there"
    desk.pass_deadline()
    assert desk.machine.current.spare == 0, "it is extended once"
    last = Desk(4, cohort=2, min_updates=2, rounds=1, closes=True).gather()
    last.deliver(*last.machine.current.cohort)
    assert (bool(last.machine.over), last.machine.current.spare) == (True, 0)
    assert Desk(1, central=True).gather().machine.current.spare == -1


def test_a_script_is_followed_also_where_too_few_deliver() -> None:
    desk = Desk(3, cohort=2, min_updates=2, script=(("c0", "c1"),) * 2).gather()
    desk.pass_deadline()
    assert desk.machine.current.cohort == (0, 1)


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


def test_resuming_a_round_that_lacks_nothing_leaves_its_deadline() -> None:
    desk = Desk(3, min_updates=3).gather()
    deadline = desk.machine.deadline
    desk.post(PauseAsked(desk.now))
    desk.now += 50.0
    desk.post(ResumeAsked(desk.now))
    assert desk.machine.deadline == deadline


def test_an_over_selected_round_closes_with_as_many_as_the_cohort_asks_for() -> None:
    desk = Desk(5, cohort=2, over_select=2, min_updates=1).gather()
    members = desk.machine.current.cohort
    assert len(members) == 4
    desk.deliver(members[3], members[1])
    assert desk.of(FoldRound) == [FoldRound(1, (members[1], members[3]))]
    assert [desk.verdicts()[seat] for seat in members] == [
        Verdict.LATE, Verdict.COUNTED, Verdict.LATE, Verdict.COUNTED
    ]  # fmt: skip


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
    assert desk.machine.pause == "round 1 has 1 of at least 2 updates; missing: c1"
    assert not any(isinstance(record, RoundExtended) for record in desk.records())  # by nobody


@pytest.mark.parametrize("again", [ResumeAsked(0.0), Ready(1, 10, 0.0)])
def test_a_refused_task_is_offered_again_when_its_client_comes_back_or_an_operator_resumes(
    again: Event,
) -> None:
    desk = Desk(3, min_updates=2).gather()
    desk.deliver(0)
    desk.post(TaskRefused(1, 1, desk.now))
    desk.post(TaskRefused(1, 2, desk.now))
    assert (desk.machine.has_task(1), bool(desk.machine.pause)) == (False, True)
    before = len(desk.done)
    desk.post(again)
    assert desk.machine.has_task(1)
    assert any(isinstance(one, Publish) and one.seats in (None, (1,)) for one in desk.done[before:])
    desk.deliver(1)
    desk.post(TaskRefused(1, 2, desk.now))
    assert [desk.verdicts()[seat] for seat in (1, 2)] == [Verdict.COUNTED, Verdict.REFUSED_BY_CLIENT]


def test_a_refusal_is_seen_by_its_client_and_by_nobody_else() -> None:
    """So that it takes the task for another when it is offered again."""
    desk = Desk(3).gather()
    assert desk.post(TaskRefused(1, 1, desk.now)) == [Publish((1,))]


def test_an_update_of_a_member_who_has_refused_changes_nothing() -> None:
    desk = Desk(3, min_updates=1).gather()
    desk.post(TaskRefused(1, 1, desk.now))
    assert desk.post(UpdateReceived(1, 1, b"x", desk.now)) == []
    desk.deliver(0, 2)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 2))]
    assert desk.verdicts()[1] is Verdict.REFUSED_BY_CLIENT


def test_a_refusal_of_another_round_or_after_the_delivery_counts_for_nothing() -> None:
    desk = Desk(2).gather()
    desk.deliver(0)
    assert desk.post(TaskRefused(1, 0, 0.0)) == []
    assert desk.post(TaskRefused(3, 1, 0.0)) == []
    assert desk.machine.current.refused == set()


# --------------------------------------------------------------------------- the fold and the commit


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


def test_the_counted_set_is_durable_before_the_commit_starts() -> None:
    desk = Desk(2).gather()
    desk.holding = (Persist,)
    desk.deliver(0, 1)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1))]
    assert desk.of(CommitRound) == []
    desk.release()
    assert [effect.round for effect in desk.of(CommitRound)] == [1]


# -------------------------------------------------------------------------- a round of a life before


def test_an_open_round_goes_on_with_what_the_spool_holds() -> None:
    desk = back(ResumedRound(1, (0, 1, 2)), c1=b"one")
    assert desk.records() == []
    assert (desk.machine.phase, desk.machine.current.received) == (Phase.OPEN, {1: b"one"})
    assert desk.machine.deadline == desk.now + 600.0
    assert [desk.machine.has_task(seat) for seat in range(3)] == [True, False, True]
    desk.deliver(0, 2)
    assert desk.machine.committed == 1


def test_a_round_of_a_life_before_is_deserted_until_one_of_its_members_is_heard_of() -> None:
    opened = ResumedRound(1, (0, 1))
    assert back(opened).machine.deserted
    for event, deserted in (
        (Ready(2, 10, 0.0), True),  # it is no member
        (Ready(1, 10, 0.0), False),
        (UpdateReceived(1, 1, b"x", 0.0), False),
    ):
        desk = back(opened)
        desk.post(event)
        assert desk.machine.deserted == deserted


def test_a_round_whose_updates_are_all_in_the_spool_closes_at_once() -> None:
    desk = back(ResumedRound(2, (0, 1, 2)), committed=1, c0=b"a", c1=b"b", c2=b"c")
    assert desk.machine.committed == 2


def test_a_closed_round_counts_who_was_decided_and_nobody_else() -> None:
    desk = back(ResumedRound(1, (0, 1, 2), counted=(0, 2)), c0=b"a", c1=b"b", c2=b"c")
    assert desk.of(FoldRound) == [FoldRound(1, (0, 2))]
    assert desk.verdicts() == {0: Verdict.COUNTED, 1: Verdict.LATE, 2: Verdict.COUNTED}


def test_a_closed_round_whose_spool_has_lost_an_update_is_open_again() -> None:
    desk = back(ResumedRound(1, (0, 1, 2), counted=(0, 2)), c0=b"a")
    assert (desk.machine.phase, desk.machine.current.counted) == (Phase.OPEN, None)
    desk.deliver(1, 2)
    assert desk.of(FoldRound) == [FoldRound(1, (0, 1, 2))]


def test_what_the_spool_holds_of_strangers_is_not_received() -> None:
    desk = Desk(3, cohort=2, min_updates=2)
    desk.spooled = {0: b"a", 2: b"b"}
    desk.post(Started(0.0, SEATS, 0, ResumedRound(1, (0, 1))))
    assert desk.machine.current.received == {0: b"a"}


def test_a_round_that_was_extended_is_not_extended_again() -> None:
    desk = back(ResumedRound(1, (0, 1, 2), added=()))
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
