"""The machine of a run, stepped in microseconds: init, steps, check."""

from __future__ import annotations

import pytest

from edgeflock.common.scores import Summary
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import (
    Ended,
    EndingKind,
    Outcome,
    Paused,
    RoundClosed,
    RoundExtended,
    RoundOpened,
    Samples,
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
    TestModel,
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
    Ticked,
    UpdateReceived,
)
from edgeflock.server.core.phases import Phase
from edgeflock.server.core.space import RETRY_S
from edgeflock.server.core.target import Target
from edgeflock.server.core.testing import Tests
from support.desk import NOTHING, SEATS, Desk, back, desk_in

# ----------------------------------------------------------------------------------------- gathering


def test_no_round_opens_before_all_are_ready() -> None:
    desk = Desk(2)
    desk.post(Started(0.0))
    for name in ("c0", "c1"):
        desk.post(Online(name, 0.0))
    desk.post(Ready(0, 10, 0.0))
    assert desk.machine.phase is Phase.GATHERING
    assert desk.post(Ready(1, 20, 0.0)) == [Persist((Samples(1, 20),))]
    assert desk.records()[-1] == RoundOpened(1, (0, 1))


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
    desk.post(Ready(0, 10, 2.0))
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
    for seat in (0, 1):
        desk.post(Ready(seat, 10, 1.0))
    assert desk.post(Ticked(60.0)) == []
    desk.post(ResumeAsked(61.0))
    assert desk.machine.phase is Phase.OPEN


# ------------------------------------------------------------------------------------ the usual walk


def test_the_walk_of_a_run() -> None:
    """Every decision is a record, and the next round is opened in the commit of the one before."""
    desk = Desk(2, rounds=2).gather()
    desk.deliver(0, 1)
    desk.deliver(1, 0)
    assert [effect for effect in desk.done if not isinstance(effect, Announce | Publish)] == [
        Persist((Seated(((0, "c0"), (1, "c1"))),)),
        Persist((Samples(0, 10),)),
        Persist((Samples(1, 10),)),
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


def test_with_an_interval_the_next_round_is_opened_when_it_is_time() -> None:
    desk = Desk(2, rounds=3, every_s=60.0).gather()
    desk.pass_time(10.0)
    desk.deliver(0, 1)
    assert (desk.machine.phase, desk.machine.committed, desk.machine.pause) == (Phase.COMMITTED, 1, "")
    assert desk.machine.wake_at == 160.0
    desk.pass_time(49.0)
    assert desk.machine.round == 1
    desk.pass_time(1.0)
    assert (desk.machine.phase, desk.machine.round) == (Phase.OPEN, 2)
    desk.pass_time(70.0)
    desk.deliver(0, 1)  # it has taken longer than the interval
    desk.pass_time(0.0)
    assert (desk.machine.phase, desk.machine.round) == (Phase.OPEN, 3)
    desk.deliver(0, 1)
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "all 3 rounds are done", 3)]


def test_a_pause_within_an_interval_lasts_and_shortens_it_not() -> None:
    desk = Desk(2, rounds=3, every_s=60.0).gather()
    desk.deliver(0, 1)
    desk.post(PauseAsked(desk.now))
    assert (desk.machine.wake_at, desk.machine.pause) == (None, "paused by the operator")
    desk.post(ResumeAsked(desk.now))
    assert (desk.machine.round, desk.machine.wake_at, desk.machine.pause) == (1, 160.0, "")
    desk.post(PauseAsked(desk.now))
    desk.pass_time(100.0)
    desk.post(ResumeAsked(desk.now))
    desk.pass_time(0.0)
    assert (desk.machine.phase, desk.machine.round) == (Phase.OPEN, 2)
    desk.deliver(0, 1)
    desk.post(StopAsked("stopped", desk.now))
    assert desk.exits() == [Ended(EndingKind.STOPPED, "stopped", 2)]


def _outcomes(verdict: Verdict, count: int) -> tuple[Outcome, ...]:
    return tuple(Outcome(seat, b"digest%d" % seat, verdict) for seat in range(count))


def test_a_method_that_stops_ends_the_run_with_its_reason() -> None:
    desk = Desk(2, rounds=9).gather()
    desk.holding = (CommitRound,)
    desk.deliver(0, 1)
    desk.post(Committed(1, 0.0, stop="the budget of 3 MB is used up"))
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "the budget of 3 MB is used up", 1)]
    assert desk.machine.round == 1


# -------------------------------------------------------------------------------------- the operator


def test_pause_lets_the_open_round_finish_and_opens_no_other() -> None:
    desk = Desk(2, rounds=3).gather()
    desk.post(PauseAsked(desk.now))
    desk.deliver(0, 1)
    assert (desk.machine.phase, desk.machine.committed) == (Phase.COMMITTED, 1)
    assert desk.machine.pause == "paused by the operator"
    desk.post(ResumeAsked(desk.now))
    assert (desk.machine.phase, desk.machine.round, desk.machine.pause) == (Phase.OPEN, 2, "")


def test_after_a_resume_nobody_is_told_that_the_operator_has_paused() -> None:
    desk = Desk(2, cohort=2, online=True, rounds=5).gather("a", "b")
    desk.post(PauseAsked(0.0))
    desk.post(Offline("b", 0.0))
    desk.deliver(0, 1)
    assert desk.machine.pause == "paused by the operator"
    before = len(desk.done)
    desk.post(ResumeAsked(2.0))
    assert desk.machine.pause == "too few clients are online"
    assert Publish() in desk.done[before:]


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
    desk.post(Ready(0, 10, 0.0))
    desk.holding = (Persist,)
    desk.post(Ready(1, 10, 0.0))
    samples, _ = desk.held[0], desk.post(StopAsked("enough", 0.0))
    stop = desk.held.pop()
    desk.carry_out(samples)
    desk.carry_out(stop)
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


# --------------------------------------------------------------------------------------- a full disk


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
    desk.post(Ready(0, 10, 0.0))
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
    desk.carry_out(desk.held.pop())  # the seats
    for seat in (0, 1):
        desk.post(Ready(seat, 10, desk.now))
        desk.carry_out(desk.held.pop(0))
    desk.carry_out(desk.held.pop())  # the opening
    (prepare,) = desk.held
    desk.held = []
    desk.post(StopAsked("enough", desk.now))
    desk.carry_out(desk.held.pop())
    (end,) = desk.held
    desk.held = []
    desk.post(SpaceMissing(prepare, FULL, desk.now))
    desk.post(SpaceMissing(end, FULL, desk.now))
    desk.pass_time(RETRY_S)
    assert desk.held == [end]
    desk.release()
    assert [ending.kind for ending in desk.exits() if ending] == [EndingKind.STOPPED]


def test_nothing_is_tried_again_once_a_run_has_ended() -> None:
    """Its loop would wake for it for ever."""
    desk = Desk(2).gather()
    desk.post(SpaceMissing(PrepareRound(1, (0, 1)), FULL, desk.now))
    assert not desk.machine.is_over
    desk.holding = (Persist,)
    desk.post(StopAsked("enough", desk.now))
    desk.release()
    assert (desk.machine.phase, desk.machine.is_over, desk.machine.wake_at) == (Phase.ENDED, True, None)
    for reason in ("full", "locked"):  # of the end itself, and of a score beside it
        desk.machine.space.wait(
            SpaceMissing(Persist((Ended(EndingKind.STOPPED, reason, 1),)), reason, 0.0), 1
        )
    desk.machine.space.forget()
    assert len(desk.machine.space.retries(RETRY_S)) == 2
    desk.machine.space.forget()
    assert desk.machine.wake_at is None


def test_what_an_operator_wants_holds_as_soon_as_it_is_written() -> None:
    desk = Desk(2, rounds=5).gather()
    desk.holding = (Persist,)
    desk.post(PauseAsked(desk.now))
    assert desk.held == [Persist((Paused(True, 1),))]
    assert (desk.machine.wishes.paused, desk.machine.wishes.heeds(pause=True)) == (False, False)
    desk.release()
    assert desk.machine.wishes.heeds(pause=True)
    assert desk.post(PauseAsked(desk.now)) == []
    desk.deliver(0, 1)
    assert desk.machine.pause == "paused by the operator"


def test_a_pause_that_a_full_disk_holds_back_is_overtaken_by_the_resume_after_it() -> None:
    desk = Desk(2, rounds=5).gather()
    desk.holding = (Persist,)
    desk.post(PauseAsked(desk.now))
    desk.post(SpaceMissing(desk.held.pop(), FULL, desk.now))
    desk.post(ResumeAsked(desk.now))
    desk.release()
    assert not desk.machine.wishes.heeds(pause=False)
    desk.pass_time(RETRY_S)
    assert [record for record in desk.records() if isinstance(record, Paused)][-1] == Paused(False, 1)
    assert desk.machine.wishes.heeds(pause=False)
    desk.deliver(0, 1)
    assert (desk.machine.phase, desk.machine.round) == (Phase.OPEN, 2)


@pytest.mark.parametrize("committed", [0, 1])
def test_a_run_that_was_paused_comes_back_paused_and_says_so(committed: int) -> None:
    desk = Desk(3, rounds=5)
    desk.post(Started(0.0, SEATS, committed, paused=True))
    for seat in range(3):
        desk.post(Ready(seat, 10, 0.0))
    reason = "paused by the operator"
    assert (desk.machine.pause, desk.machine.round) == (reason, committed)
    assert Announce("run_paused", {"round": committed, "reason": reason}) in desk.done
    desk.post(ResumeAsked(0.0))
    assert (desk.machine.phase, desk.machine.pause) == (Phase.OPEN, "")


def test_the_open_round_of_a_paused_run_is_held_to_its_end_after_a_restart() -> None:
    desk = Desk(3, rounds=5)
    desk.post(Started(0.0, SEATS, 0, ResumedRound(1, (0, 1, 2)), paused=True))
    assert (desk.machine.phase, desk.machine.pause) == (Phase.OPEN, "")
    desk.deliver(0, 1, 2)
    assert (desk.machine.committed, desk.machine.pause) == (1, "paused by the operator")


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("counted", [None, (0, 1)])
def test_a_stop_that_was_asked_for_before_a_crash_ends_the_run_after_it(
    counted: tuple[int, ...] | None, torn: bool
) -> None:
    """What was closed is committed first, if the spool still has it."""
    desk = Desk(2, rounds=5)
    desk.spooled = {0: b"digest0"} if torn else {0: b"digest0", 1: b"digest1"}
    desk.post(Started(0.0, SEATS[:2], 0, ResumedRound(1, (0, 1), None, counted), stop="enough"))
    (ending,) = desk.exits()
    assert ending is not None
    committed = counted is not None and not torn
    assert (ending.kind, ending.reason, desk.machine.committed) == (EndingKind.STOPPED, "enough", committed)
    assert len(ending.discarded) == (0 if committed else 2)


def test_a_stop_that_was_asked_for_between_two_rounds_opens_none_after_a_crash() -> None:
    desk = Desk(2, rounds=5)
    desk.post(Started(0.0, SEATS[:2], 1, stop="enough", samples={0: 10, 1: 10}))
    assert desk.exits() == [Ended(EndingKind.STOPPED, "enough", 1)]
    assert desk.of(PrepareRound) == []
    over = Desk(2, rounds=5)  # what training was over for, before that word came
    over.post(Started(0.0, SEATS[:2], 2, over="all 1 rounds are done", stop="enough"))
    assert over.exits() == [Ended(EndingKind.COMPLETED, "all 1 rounds are done", 2)]


# ---------------------------------------------------------------------------------------- what fails


def test_an_effect_that_fails_for_good_ends_the_process_and_not_the_run() -> None:
    """Clients see a server that goes down and will be back; nothing is decided any more."""
    desk = Desk(2).gather()
    before = desk.records()
    desk.post(Broken("the spool cannot be written: Input/output error", 0.0))
    assert desk.exits() == [Ended(EndingKind.FAILED, "the spool cannot be written: Input/output error", 1)]
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
    desk.post(Started(0.0, SEATS, 1, samples=dict.fromkeys(range(3), 10)))
    assert desk.held == [Persist((RoundOpened(2, (0, 1, 2)),))]
    desk.holding = ()
    desk.post(Done("enough is learnt", 0.0))
    assert desk.exits() == [Ended(EndingKind.COMPLETED, "enough is learnt", 1)]
    assert desk.post(Done("enough is learnt", 0.0)) == []


# --------------------------------------------------------------------------------------- coming back


def test_between_two_rounds_the_next_is_opened() -> None:
    desk = back(None, committed=1)
    assert desk.records() == [RoundOpened(2, (0, 1, 2))]


def test_a_roster_that_is_complete_waits_until_all_are_ready_again_before_round_1() -> None:
    desk = back(None)
    assert desk.done == []
    for seat in range(3):
        assert desk.records() == []
        desk.post(Ready(seat, 10, desk.now))
    assert desk.records() == [RoundOpened(1, (0, 1, 2))]


@pytest.mark.parametrize(
    ("known", "reason", "trained"),
    [
        (Started(0.0, SEATS, 2), "all 2 rounds are done", 2),
        (Started(0.0, SEATS, 1, limit="the budget of time is used up"), "the budget of time is used up", 1),
        (Started(0.0, SEATS, 2, over="enough is learnt"), "enough is learnt", 1),
    ],
)
def test_a_run_that_was_to_end_with_its_last_commit_ends(known: Started, reason: str, trained: int) -> None:
    desk = Desk(3, rounds=2)
    desk.post(known)
    assert desk.exits() == [Ended(EndingKind.COMPLETED, reason, known.committed)]
    assert desk.machine.trained == trained


def test_a_run_that_has_ended_says_so_again_and_decides_nothing() -> None:
    ending = Ended(EndingKind.STOPPED, "enough", 1)
    desk = Desk(3)
    desk.post(Started(0.0, SEATS, 1, ended=ending))
    desk.post(Online("c0", 0.0))
    assert desk.done == [Publish(), Exit(ending)]
    assert desk.machine.ending == ending


def test_online_rounds_rest_while_too_few_are_there() -> None:
    desk = Desk(2, cohort=2, online=True, rounds=5)
    desk.gather("a", "b")
    for seat in (0, 1):
        desk.post(Ready(seat, 10, 0.0))
    desk.post(Offline("b", 0.0))
    desk.deliver(0, 1)
    assert (desk.machine.phase, desk.machine.pause) == (Phase.COMMITTED, "too few clients are online")
    desk.post(Online("b", 0.0))
    assert (desk.machine.phase, desk.machine.round, desk.machine.pause) == (Phase.OPEN, 2, "")


@pytest.mark.parametrize("closes", [False, True])
def test_an_open_round_beyond_the_last_one_asked_for_is_discarded_and_nobody_is_asked(closes: bool) -> None:
    """From a method with a last round the recovery takes it before it comes to that."""
    desk = back(ResumedRound(2, (0, 1)), committed=1, rounds=1, closes=closes, c0=b"a")
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, ending.reason) == (EndingKind.COMPLETED, "all 1 rounds are done")
    assert ending.discarded == (Outcome(0, b"", Verdict.DISCARDED), Outcome(1, b"", Verdict.DISCARDED))


# ------------------------------------------------------------------------------- persist, then speak


def test_nobody_is_told_of_a_decision_before_it_is_durable() -> None:
    """Hold every record back in turn: while it is not durable, nothing is published."""
    desk = Desk(2, rounds=2)
    desk.holding = (Persist, CommitRound)
    desk.post(Started(0.0))
    steps: list[Event] = [
        Online("c0", 0.0), Online("c1", 0.0), Ready(0, 10, 0.0), Ready(1, 10, 0.0),
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


@pytest.mark.parametrize("event", [Folded(1, NOTHING, 0.0), Committed(1, 0.0), RoundPrepared(1, (), 0.0)])
def test_an_answer_that_was_not_asked_for_changes_nothing(event: Event) -> None:
    desk = Desk(2).gather()
    phase = desk.machine.phase
    assert desk.post(event) == []
    assert desk.machine.phase is phase


# ------------------------------------------------------------------------------- budgets and targets


USED_UP = "the budget of time is used up"


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
        desk.spooled = {seat: b"digest%d" % seat for seat in held}
        desk.holding = (PrepareRound,)
        seats = tuple((seat, f"c{seat}") for seat in range(3))
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


def test_a_cut_round_whose_updates_are_poisoned_is_discarded_and_no_failure() -> None:
    desk = Desk(2, min_updates=1).gather()
    desk.rejected = {0: Verdict.NON_FINITE}
    desk.deliver(0)
    limit(desk)
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, ending.reason) == (EndingKind.COMPLETED, USED_UP)


TESTS = Tests(every=1, last=9, target=Target(0.9))
REACHED = "the target is reached: accuracy 0.9500 of 0.9 in round 1"


def reach(desk: Desk, round: int) -> list[Effect]:
    return desk.score(round, 0.95)


def test_a_target_discards_the_open_round_and_the_committed_one_is_the_last() -> None:
    desk = Desk(2, tests=TESTS)
    desk.holding = (TestModel,)
    desk.gather()
    desk.deliver(0, 1)
    desk.deliver(1)
    reach(desk, 0)  # of a round long ago
    assert desk.exits() == []
    reach(desk, 1)
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, ending.reason, ending.round) == (EndingKind.COMPLETED, REACHED, 2)
    assert [item.verdict for item in ending.discarded] == [Verdict.DISCARDED] * 2
    assert desk.machine.committed == 1


@pytest.mark.parametrize("held", [PrepareRound, FoldRound, CommitRound])
def test_a_target_discards_a_round_in_whatever_state_it_is(held: type[Effect]) -> None:
    desk = Desk(2, tests=TESTS)
    desk.holding = (held, TestModel)
    if held is PrepareRound:
        desk.post(Started(0.0, ((0, "c0"), (1, "c1")), committed=1, open=ResumedRound(2, (0, 1))))
    else:
        desk.holding = (TestModel,)
        desk.gather()
        desk.deliver(0, 1)
        desk.holding = (held, TestModel)
        desk.deliver(0, 1)
    reach(desk, 1)
    desk.holding = (TestModel,)
    for effect in desk.held:
        desk.carry_out(effect) if not isinstance(effect, TestModel) else None
    assert desk.machine.committed == 1
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.reason, len(ending.discarded)) == (REACHED, 2)


def test_a_target_that_was_reached_before_a_crash_ends_the_run_whatever_was_decided_of_the_next_round() -> (
    None
):
    desk = Desk(2, tests=TESTS)
    opened = ResumedRound(2, (0, 1), counted=(0, 1))
    known = {"scored": {"global": 1}, "score": Summary(0.95, 1.0, 10), "best": (0.95, 1)}
    desk.post(Started(0.0, ((0, "c0"), (1, "c1")), 1, opened, **known))  # type: ignore[arg-type]
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.reason, len(ending.discarded)) == (REACHED, 2)
