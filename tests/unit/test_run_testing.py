"""When a run tests its models, what waits for that, and what a score or a test that fails ends."""

from __future__ import annotations

import pytest

from edgeflock.common.scores import Summary
from edgeflock.server.core.decisions import Ended, EndingKind, RoundOpened, Scored
from edgeflock.server.core.effects import Announce, CommitRound, Effect, Persist, TestModel
from edgeflock.server.core.events import (
    Committed,
    LimitReached,
    ResumedRound,
    SpaceMissing,
    Started,
    StopAsked,
    Tested,
    TestFailed,
)
from edgeflock.server.core.phases import Phase
from edgeflock.server.core.space import RETRY_S
from edgeflock.server.core.target import Target
from edgeflock.server.core.testing import Tests
from support.desk import SEATS, Desk

GOAL = Target(0.9)
FULL = "no space left on the disk"


def desk_that_tests(
    every: int = 1,
    *,
    target: Target | None = None,
    blocking: bool = False,
    rounds: int = 9,
    beside: tuple[tuple[str, int], ...] = (),
) -> Desk:
    """Return a desk whose run tests its models, with no test carried out yet."""
    tests = Tests(every, rounds, blocking, target=target or Target(), beside=beside)
    desk = Desk(2, rounds=rounds, tests=tests)
    desk.holding = (TestModel,)
    return desk.gather()


def scores(desk: Desk) -> set[int]:
    """Return the rounds whose scores were to be written."""
    return {record.round for record in desk.records() if isinstance(record, Scored)}


def test_the_next_round_goes_on_beside_the_test_of_the_last() -> None:
    desk = desk_that_tests(2)
    for _ in range(3):
        desk.deliver(0, 1)
    assert (desk.held, desk.machine.round) == ([TestModel(2)], 4)


def test_with_a_target_no_round_is_committed_before_the_journal_has_the_score_of_the_one_before() -> None:
    """Also when that finds a full disk: the score is tried again, and the target is not passed over."""
    desk = desk_that_tests(target=GOAL)
    desk.deliver(0, 1)
    desk.deliver(0, 1)
    assert (desk.machine.phase, desk.machine.awaits_test) == (Phase.FOLDING, True)
    desk.holding = (TestModel, Persist)
    (persist,) = desk.score(1, 0.95)
    desk.post(SpaceMissing(persist, FULL, desk.now))
    assert (desk.machine.committed, desk.machine.testing.best) == (1, None)
    desk.holding = ()
    desk.pass_time(RETRY_S)
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, desk.machine.committed, scores(desk)) == (EndingKind.COMPLETED, 1, {1})
    assert ending.reason == "the target is reached: accuracy 0.9500 of 0.9 in round 1"


def test_a_score_below_the_target_lets_the_commit_go_on() -> None:
    desk = desk_that_tests(target=GOAL)
    desk.deliver(0, 1)
    desk.deliver(0, 1)
    desk.score(1, 0.5)
    assert (desk.machine.committed, desk.machine.testing.best) == (2, (0.5, 1))


def test_the_next_round_waits_for_the_test_if_it_is_to() -> None:
    desk = desk_that_tests(blocking=True)
    desk.deliver(0, 1)
    assert (desk.machine.phase, desk.machine.awaits_test) == (Phase.COMMITTED, True)
    assert not any(isinstance(record, RoundOpened) and record.round > 2 for record in desk.records())
    desk.score(1)
    assert (desk.machine.phase, desk.machine.round) == (Phase.OPEN, 2)


def stop(desk: Desk) -> None:
    desk.post(StopAsked("enough", desk.now))


def reach_a_limit(desk: Desk) -> None:
    desk.post(LimitReached("the budget is used up", desk.now))


@pytest.mark.parametrize("how", [stop, reach_a_limit])
def test_the_last_committed_model_is_tested_before_the_end(how: object) -> None:
    desk = desk_that_tests(10, rounds=99)
    desk.deliver(0, 1)
    assert desk.held == []
    assert callable(how)
    how(desk)
    assert (desk.held, desk.exits(), desk.machine.phase) == ([TestModel(1)], [], Phase.ENDING)
    desk.score(1, 0.7)
    (ending,) = desk.exits()
    assert desk.records()[-2:] == [Scored(1, (("global", Summary(0.7, 1.0, 10)),)), ending]


def test_a_crash_before_the_last_test_makes_up_for_it() -> None:
    desk = Desk(3, tests=Tests(10, 2))
    desk.post(Started(0.0, SEATS, 1, limit="the budget is used up"))
    assert [effect for effect in desk.done if isinstance(effect, TestModel | Persist)] == [
        TestModel(1),
        Persist((Scored(1, (("global", Summary(0.5, 1.0, 10)),)),)),
        Persist((Ended(EndingKind.COMPLETED, "the budget is used up", 1),)),
    ]


def test_a_test_that_a_crash_has_cut_off_is_made_up_for() -> None:
    desk = Desk(3, tests=Tests(1, 9), rounds=9)
    desk.post(Started(0.0, SEATS, 3, scored={"global": 2}))
    assert desk.of(TestModel) == [TestModel(3)]
    again = Desk(3, tests=Tests(1, 9), rounds=9)
    again.post(Started(0.0, SEATS, 3, scored={"global": 3}))
    assert again.of(TestModel) == []


def test_a_last_score_that_finds_a_full_disk_is_written_before_the_end() -> None:
    desk = desk_that_tests(10)
    desk.deliver(0, 1)
    desk.post(StopAsked("enough", desk.now))
    desk.holding = (Persist,)
    (persist,) = desk.score(1)
    desk.post(SpaceMissing(persist, FULL, desk.now))
    assert desk.exits() == []
    desk.holding = ()
    desk.pass_time(RETRY_S)
    assert [ending.kind for ending in desk.exits() if ending] == [EndingKind.STOPPED]
    assert scores(desk) == {1}


def test_a_score_that_waits_for_space_when_the_end_is_decided_is_written_before_it() -> None:
    desk = desk_that_tests()
    desk.deliver(0, 1)
    desk.holding = (TestModel, Persist)
    (persist,) = desk.score(1)
    desk.post(SpaceMissing(persist, FULL, desk.now))
    desk.holding = ()
    desk.post(StopAsked("enough", desk.now))
    assert (desk.machine.phase, desk.machine.is_over, desk.exits()) == (Phase.ENDING, True, [])
    desk.pass_time(RETRY_S)
    assert [ending.reason for ending in desk.exits() if ending] == ["enough"]
    assert scores(desk) == {1}


def test_the_best_model_is_the_earliest_with_the_highest_accuracy_and_is_kept() -> None:
    desk = desk_that_tests()
    assert desk.machine.testing.kept == set()
    for number, accuracy in ((1, 0.2), (2, 0.7), (3, 0.7), (4, 0.6)):
        desk.deliver(0, 1)
        assert number in desk.machine.testing.kept, "until it is tested"
        desk.score(number, accuracy)
    assert (desk.machine.testing.best, desk.machine.testing.kept) == ((0.7, 2), {2})


def test_a_score_is_said_with_its_record_and_of_a_group_how_far_its_members_are_apart() -> None:
    one, group = Summary(0.5, 1.0, 10), Summary(0.4, 1.5, 20, members=2, deviation=0.1, worst_tenth=0.3)
    desk = desk_that_tests()
    told = desk.machine.announcements(Scored(1, (("global", one), ("personal", group))))
    own = {"round": 1, "accuracy": 0.5, "loss": 1.0}
    theirs = {"round": 1, "accuracy": 0.4, "loss": 1.5, "members": 2, "deviation": 0.1, "worst_tenth": 0.3}
    assert told == (
        Announce("evaluated", {"model": "global", **own}, written=True),
        Announce("evaluated", {"model": "personal", **theirs}, written=True),
    )


def failing(desk: Desk) -> list[Effect]:
    return desk.post(TestFailed(1, "ValueError: no such layer", desk.now))


SAID = Announce("evaluation_failed", {"round": 1, "reason": "ValueError: no such layer"})


def test_a_test_that_fails_is_said_and_the_run_goes_on() -> None:
    desk = desk_that_tests(blocking=True)
    desk.deliver(0, 1)
    assert failing(desk)[0] == SAID
    assert (desk.machine.phase, desk.machine.round) == (Phase.OPEN, 2)


def test_a_test_that_fails_ends_a_run_with_a_target_as_failed() -> None:
    desk = desk_that_tests(target=GOAL)
    desk.deliver(0, 1)
    assert failing(desk)[0] == SAID
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, len(ending.discarded)) == (EndingKind.FAILED, 2)
    assert ending.reason == "whether round 1 has reached the target is not known: ValueError: no such layer"


def test_a_last_test_that_fails_is_said_before_the_end() -> None:
    desk = desk_that_tests(10)
    desk.deliver(0, 1)
    desk.post(StopAsked("enough", desk.now))
    failing(desk)
    assert SAID in desk.done
    assert [ending.reason for ending in desk.exits() if ending] == ["enough"]


def test_a_target_that_is_reached_beside_a_sum_that_diverges_is_the_end_of_the_run() -> None:
    desk = desk_that_tests(target=GOAL)
    desk.deliver(0, 1)
    desk.deliver(0)
    desk.post(LimitReached("the budget is used up", desk.now))
    assert desk.of(CommitRound)[-1].round == 1
    desk.score(1, 0.95)
    assert [ending.reason for ending in desk.exits() if ending] == [
        "the target is reached: accuracy 0.9500 of 0.9 in round 1"
    ]


# ------------------------------------------------------------------------- models beside the global one

OTHERS = (("teacher", 2), ("personal", 2), ("global-train", 3))


def beside(desk: Desk, round: int, *models: str) -> list[Effect]:
    """A test of other models is over."""
    found = tuple((name, Summary(0.1, 1.0, 10)) for name in models)
    return desk.post(Tested(round, found, desk.now, models))


def test_other_models_are_tested_apart_each_in_its_own_rounds() -> None:
    desk = desk_that_tests(beside=OTHERS, rounds=99)
    for number in range(1, 7):
        desk.deliver(0, 1)
        desk.score(number)
    apart = [test for test in desk.of(TestModel) if test.models != ("global",)]
    assert apart == [
        TestModel(2, ("teacher", "personal")),
        TestModel(3, ("global-train",)),
        TestModel(4, ("teacher", "personal")),
        TestModel(6, ("teacher", "personal", "global-train")),
    ]


def test_a_target_waits_for_the_global_model_alone() -> None:
    desk = desk_that_tests(target=GOAL, beside=OTHERS)
    desk.deliver(0, 1)
    desk.score(1, 0.5)
    desk.deliver(0, 1)
    desk.score(2, 0.5)
    desk.deliver(0, 1)
    assert TestModel(2, ("teacher", "personal")) in desk.machine.testing.begun
    assert (desk.machine.committed, desk.exits()) == (3, [])
    assert 2 in desk.machine.testing.kept, "what is tested of it may have to be read again"


def test_the_end_waits_for_the_last_test_and_the_last_model_has_them_all() -> None:
    """Whatever the rounds that its models are tested in."""
    desk = desk_that_tests(beside=OTHERS, rounds=99)
    for number in (1, 2, 3, 4):
        desk.deliver(0, 1)
        desk.score(number)
    beside(desk, 2, "teacher", "personal")
    beside(desk, 4, "teacher", "personal")
    desk.post(StopAsked("enough", desk.now))
    assert desk.of(TestModel)[-1] == TestModel(4, ("global-train",))
    beside(desk, 4, "global-train")
    assert desk.exits() == []
    beside(desk, 3, "global-train")
    assert [ending.reason for ending in desk.exits() if ending] == ["enough"]


def test_with_blocking_everything_waits_for_all_tests() -> None:
    desk = desk_that_tests(blocking=True, beside=(("teacher", 1),))
    desk.deliver(0, 1)
    desk.score(1)
    assert desk.machine.phase is Phase.COMMITTED
    beside(desk, 1, "teacher")
    assert (desk.machine.phase, desk.machine.round) == (Phase.OPEN, 2)


def test_a_test_of_others_that_fails_is_said_and_ends_no_run_with_a_target() -> None:
    desk = desk_that_tests(target=GOAL, beside=(("teacher", 1),))
    desk.deliver(0, 1)
    (said, *_) = desk.post(TestFailed(1, "ValueError: no", desk.now, ("teacher",)))
    assert said == Announce("evaluation_failed", {"round": 1, "reason": "teacher: ValueError: no"})
    assert desk.exits() == []
    desk.post(StopAsked("enough", desk.now))
    desk.score(1)
    assert [ending.reason for ending in desk.exits() if ending] == ["enough"]


def test_of_a_test_that_was_cut_off_as_much_is_made_up_for_as_is_still_asked_for() -> None:
    tests = Tests(1, 9, beside=(("teacher", 1), ("personal", 2)))
    cut = TestModel(3, ("teacher", "personal", "global-train"))
    assert tests.known(cut) == TestModel(3, ("teacher", "personal"))
    assert (tests.known(TestModel(3)), tests.known(TestModel(3, ("global-train",)))) == (TestModel(3), None)
    assert Tests(0, 9).known(cut) is None


def test_tests_of_earlier_rounds_that_a_crash_has_cut_off_are_made_up_for() -> None:
    desk = Desk(3, tests=Tests(1, 9, beside=OTHERS), rounds=9)
    desk.holding = (TestModel,)
    known = {"global": 4, "teacher": 2, "personal": 2}
    desk.post(Started(0.0, SEATS, 4, scored=known, untested=(TestModel(3, ("global-train",)),)))
    assert desk.of(TestModel) == [TestModel(3, ("global-train",)), TestModel(4, ("teacher", "personal"))]
    assert desk.machine.testing.kept >= {3, 4}
    desk.post(StopAsked("enough", desk.now))
    beside(desk, 3, "global-train")
    beside(desk, 4, "global-train")
    assert desk.exits() == []
    beside(desk, 4, "teacher", "personal")
    assert [ending.reason for ending in desk.exits() if ending] == ["enough"]


def test_a_run_ends_when_so_many_tests_in_a_row_have_found_no_better_model() -> None:
    desk = Desk(2, rounds=99, tests=Tests(1, 99, stop_after=2))
    desk.holding = (TestModel,)
    desk.gather()
    for number, accuracy in enumerate((0.5, 0.7, 0.7, 0.6), 1):
        assert desk.exits() == []
        desk.deliver(0, 1)
        desk.score(number, accuracy)
    (ending,) = desk.exits()
    assert ending is not None
    assert ending.reason == "no better accuracy in 2 tests: 0.7000 of round 2 is the best"
    assert desk.machine.testing.best == (0.7, 2)


def test_patience_goes_on_where_the_life_before_was() -> None:
    tests = Tests(1, 99, stop_after=2)
    desk = Desk(2, rounds=99, tests=tests)
    desk.post(Started(0.0, SEATS[:2], 3, best=(0.7, 2), since=2, scored={"global": 3}))
    (ending,) = desk.exits()
    assert ending is not None
    assert ending.reason == "no better accuracy in 2 tests: 0.7000 of round 2 is the best"


def test_the_devices_are_asked_for_the_model_that_they_receive_in_the_round_after_its_own() -> None:
    tests = Tests(2, 9, clients=("client_local",), devices=True)
    asked = {round: tests.wishes(round, last=False) for round in range(1, 6)}
    assert asked == {1: (), 2: ("client_local",), 3: ("devices",), 4: ("client_local",), 5: ("devices",)}
    assert tests.wishes(10, last=True) == ("client_local", "devices"), "the last model, by the closing task"
    assert (tests.name_on_devices, Tests(here=False).name_on_devices) == ("devices", "global")


def test_without_data_on_the_server_the_word_of_the_devices_decides_over_the_target() -> None:
    desk = Desk(2, rounds=99, tests=Tests(1, 99, target=GOAL, here=False, devices=True))
    desk.holding = (CommitRound,)
    desk.gather()
    desk.deliver(0, 1)
    desk.post(Committed(1, desk.now))
    desk.deliver(0, 1)
    assert [effect for effect in desk.done if isinstance(effect, TestModel)] == []
    desk.post(Committed(2, desk.now, scored=Scored(1, (("global", Summary(0.95, 1.0, 10)),), ())))
    (ending,) = desk.exits()
    assert ending is not None
    assert ending.reason == "the target is reached: accuracy 0.9500 of 0.9 in round 1"
    assert desk.machine.testing.best == (0.95, 1)


REACHED = "the target is reached: accuracy 0.9500 of 0.9 in round 1"
LATE = Tests(1, 99, target=GOAL, here=False, devices=True)


def test_the_model_that_a_target_ends_with_on_the_devices_word_has_its_closing_test() -> None:
    desk = Desk(2, rounds=99, tests=LATE, closes=True)
    desk.holding = (CommitRound,)
    desk.gather()
    desk.deliver(0, 1)
    desk.post(Committed(1, desk.now))
    desk.deliver(0, 1)
    assert desk.of(CommitRound)[-1].next is None, "what follows is not known yet"
    desk.post(Committed(2, desk.now, scored=Scored(1, (("global", Summary(0.95, 1.0, 10)),), ())))
    assert (desk.machine.phase, desk.machine.current.last, desk.exits()) == (Phase.OPEN, REACHED, [])
    desk.deliver(0, 1)
    desk.post(Committed(3, desk.now, scored=Scored(2, (("global", Summary(0.96, 1.0, 10)),), ())))
    assert desk.exits() == [Ended(EndingKind.COMPLETED, REACHED, 3)]


@pytest.mark.parametrize("opened", [False, True])
def test_a_closing_test_on_the_devices_word_is_held_after_a_crash_before_or_in_it(opened: bool) -> None:
    desk = Desk(2, rounds=99, tests=LATE, closes=True)
    desk.holding = (CommitRound,)
    known = ResumedRound(3, (0, 1), last=REACHED) if opened else None
    started = Started(0.0, SEATS[:2], 2, open=known, score=Summary(0.95, 1.0, 10), best=(0.95, 1))
    desk.post(started)
    assert (desk.machine.current.number, desk.machine.current.last, desk.exits()) == (3, REACHED, [])


def devices_without_samples(*, target: Target | None, clients: int = 2, cohort: int = 2) -> Desk:
    tests = Tests(1, 99, target=target or Target(), here=False, devices=True)
    desk = Desk(clients, rounds=99, tests=tests, cohort=cohort)
    desk.holding = (CommitRound,)
    desk.gather()
    for round in (1, 2):
        desk.deliver(*desk.machine.current.cohort)
        desk.post(Committed(round, desk.now))
    return desk


def test_a_target_that_no_device_has_samples_for_ends_the_run_when_the_first_test_could_have_come() -> None:
    desk = devices_without_samples(target=GOAL)
    (ending,) = desk.exits()
    assert ending is not None
    assert (ending.kind, desk.machine.committed) == (EndingKind.FAILED, 2)
    assert "fl-client --hold-out 0.2 keeps a share" in ending.reason


@pytest.mark.parametrize(("target", "clients"), [(None, 2), (GOAL, 4)], ids=["no target", "others may"])
def test_where_it_ends_nothing_it_is_said_as_soon_and_the_run_goes_on(
    target: Target | None, clients: int
) -> None:
    desk = devices_without_samples(target=target, clients=clients)
    said = [one.fields["round"] for one in desk.of(Announce) if one.name == "evaluation_failed"]
    assert (said, desk.exits()) == ([1], [])
