"""Records as rows and back: what a resuming server is told is what was decided."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeflock.common.scores import LOSS, Metric, Score, Summary, measures_to_text
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import (
    Ended,
    EndingKind,
    Outcome,
    Paused,
    Record,
    RoundClosed,
    RoundExtended,
    RoundOpened,
    Scored,
    Seated,
    Stopping,
)
from edgeflock.server.core.effects import TestModel
from edgeflock.server.costs.budget import Spent
from edgeflock.server.costs.rows import Costs, LateCosts, RoundRows, Row
from edgeflock.server.journal import costs, scores
from edgeflock.server.journal import decisions as records
from edgeflock.server.journal.decisions import write
from edgeflock.server.journal.past import Past, PastScores, Resumed
from edgeflock.server.journal.schema import check_seals, connect

SEATED = Seated(((0, "c0"), (1, "c1"), (2, "c2"), (3, "c3")))


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(connect(tmp_path / "journal.sqlite")) as made:
        records.write_meta(made, run_id="r", epoch="0")
        yield made


def resume(connection: sqlite3.Connection) -> Resumed:
    return Past(connection, records.read_epoch(connection)).resumed()


def tell(connection: sqlite3.Connection, *decided: Record) -> Resumed:
    for record in decided:
        write(connection, 0, record)
    return resume(connection)


def commit(connection: sqlite3.Connection, round: int, *outcomes: Outcome, epoch: int = 0) -> None:
    records.write_commit(connection, epoch, round, (f"model{round}", f"state{round}"))
    records.write_outcomes(connection, epoch, round, outcomes)


def test_an_empty_journal_tells_of_a_run_that_has_not_begun(connection: sqlite3.Connection) -> None:
    resumed = resume(connection)
    assert (resumed.seats, resumed.committed, resumed.open_round, resumed.ended) == ((), 0, None, None)
    assert resumed.meta["run_id"] == "r"


def test_seats(connection: sqlite3.Connection) -> None:
    assert tell(connection, SEATED).seats == SEATED.seats


def test_an_id_has_one_seat(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        tell(connection, Seated(((0, "a"),)), Seated(((1, "a"),)))


def test_an_open_round(connection: sqlite3.Connection) -> None:
    resumed = tell(connection, SEATED, RoundOpened(1, (0, 2)))
    assert (resumed.open_round, resumed.added, resumed.counted) == (RoundOpened(1, (0, 2)), None, None)


@pytest.mark.parametrize("added", [(), (1,), (3, 1)])
def test_an_extended_round_has_its_new_members_apart(
    connection: sqlite3.Connection, added: tuple[int, ...]
) -> None:
    resumed = tell(connection, SEATED, RoundOpened(1, (0, 2)), RoundExtended(1, added))
    assert (resumed.open_round, resumed.added) == (RoundOpened(1, (0, 2)), added)


def test_who_is_ready_is_fixed_with_the_round(connection: sqlite3.Connection) -> None:
    """N and n of a round are those of its opening, whoever comes or changes afterwards."""
    tell(connection, SEATED)
    connection.execute("UPDATE seats SET samples = 10 * seat WHERE seat IN (0, 3)")
    tell(connection, RoundOpened(1, (0, 3)))
    connection.execute("UPDATE seats SET samples = 7 WHERE seat >= 2")
    assert Past(connection, 0).roster(1) == {0: 0, 3: 30}
    commit(connection, 1)
    for round in (2, 3):
        tell(connection, RoundOpened(round, (0, 2)))
    assert Past(connection, 0).roster(3) == {0: 0, 2: 7, 3: 7}
    assert connection.execute("SELECT count(*) FROM rosters").fetchone() == (2,)


def test_a_closed_round_has_its_counted_set_and_a_later_decision_replaces_it(
    connection: sqlite3.Connection,
) -> None:
    opened = RoundOpened(1, (0, 1, 2))
    assert tell(connection, SEATED, opened, RoundClosed(1, (0, 2))).counted == (0, 2)
    assert tell(connection, RoundClosed(1, (0, 1, 2))).counted == (0, 1, 2)
    assert tell(connection, RoundClosed(1, ())).counted == ()


def test_a_committed_round_is_no_longer_open(connection: sqlite3.Connection) -> None:
    tell(connection, SEATED, RoundOpened(1, (0, 1)), RoundClosed(1, (0, 1)))
    commit(connection, 1, Outcome(0, b"x", Verdict.COUNTED))
    resumed = resume(connection)
    assert (resumed.committed, resumed.open_round, resumed.counted) == (1, None, None)
    resumed = tell(connection, RoundOpened(2, (1,)))
    assert (resumed.committed, resumed.open_round) == (1, RoundOpened(2, (1,)))


def test_a_closing_round_is_open_and_then_the_newest_but_no_round_of_training(
    connection: sqlite3.Connection,
) -> None:
    tell(connection, SEATED, RoundOpened(1, (0, 1)), RoundClosed(1, (0, 1)))
    commit(connection, 1)
    opened = RoundOpened(2, (0, 1, 2, 3), "all 1 rounds are done")
    resumed = tell(connection, opened)
    assert (resumed.committed, resumed.newest, resumed.open_round, resumed.over) == (1, 1, opened, "")
    commit(connection, 2, Outcome(3, b"x", Verdict.COUNTED))
    resumed = resume(connection)
    assert (resumed.committed, resumed.newest, resumed.open_round) == (1, 2, None)
    assert resumed.over == "all 1 rounds are done"
    assert Past(connection, 0).last_outcomes(resumed.newest) == {3: {2: Outcome(3, b"x", Verdict.COUNTED)}}


def test_in_a_new_epoch_a_closing_round_of_before_is_no_more(connection: sqlite3.Connection) -> None:
    tell(connection, SEATED, RoundOpened(1, (0,)))
    commit(connection, 1)
    tell(connection, RoundOpened(2, (0,), "all 1 rounds are done"))
    commit(connection, 2)
    records.write_meta(connection, epoch="1", epoch_base="1")
    connection.execute("INSERT INTO rounds (epoch, round, cohort, committed) VALUES (1, 1, '[]', 1)")
    resumed = resume(connection)
    assert (resumed.committed, resumed.newest, resumed.over) == (1, 1, "")
    write(connection, 1, RoundOpened(2, (0,)))
    assert resume(connection).open_round == RoundOpened(2, (0,))


@pytest.mark.parametrize("kind", list(EndingKind))
def test_an_ending(connection: sqlite3.Connection, kind: EndingKind) -> None:
    resumed = tell(connection, SEATED, RoundOpened(1, (0,)), Ended(kind, "enough", 1))
    assert resumed.ended == Ended(kind, "enough", 0)


def test_what_an_ending_discards_is_on_record(connection: sqlite3.Connection) -> None:
    discarded = (Outcome(0, b"x" * 16, Verdict.DISCARDED), Outcome(2, b"", Verdict.NON_FINITE))
    tell(connection, SEATED, RoundOpened(1, (0, 2)), Ended(EndingKind.STOPPED, "enough", 1, discarded))
    assert Past(connection, 0).outcomes(1) == list(discarded)


def test_a_word_that_was_given_is_never_changed(connection: sqlite3.Connection) -> None:
    first = (Outcome(0, b"x", Verdict.NON_FINITE), Outcome(1, b"y", Verdict.DISCARDED))
    tell(connection, SEATED, RoundOpened(1, (0, 1)), Ended(EndingKind.FAILED, "why", 1, first))
    assert Past(connection, 0).is_settled(1)
    with pytest.raises(sqlite3.IntegrityError):
        commit(connection, 1, Outcome(1, b"y", Verdict.COUNTED))


def test_the_last_words_to_every_client(connection: sqlite3.Connection) -> None:
    tell(connection, SEATED)
    members = {1: (0, 1), 2: (0, 1), 3: (0, 2), 4: (0,)}
    for round, cohort in members.items():
        tell(connection, RoundOpened(round, cohort))
        commit(connection, round, *(Outcome(index, b"%d" % round, Verdict.COUNTED) for index in cohort))
    found = Past(connection, 0).last_outcomes(4)
    assert {index: sorted(rounds) for index, rounds in found.items()} == {0: [3, 4], 1: [1, 2], 2: [3]}
    assert found[1][2] == Outcome(1, b"2", Verdict.COUNTED)


def test_of_two_clients_the_last_two_words_are_known(connection: sqlite3.Connection) -> None:
    tell(connection, Seated(((0, "c0"), (1, "c1"))))
    for number in (1, 2, 3):
        tell(connection, RoundOpened(number, (0, 1)))
        commit(connection, number, *(Outcome(seat, b"x", Verdict.COUNTED) for seat in (0, 1)))
    found = Past(connection, 0).last_outcomes(3)
    assert {seat: sorted(mine) for seat, mine in found.items()} == {0: [2, 3], 1: [2, 3]}


def test_an_epoch_knows_the_words_up_to_its_base_and_its_own(connection: sqlite3.Connection) -> None:
    tell(connection, SEATED)
    for epoch, first, last in ((0, 1, 3), (1, 3, 4), (2, 3, 3)):  # epoch 1 goes on from 2, epoch 2 as well
        if epoch:
            row = (epoch, 2)
            connection.execute(
                "INSERT INTO rounds (epoch, round, cohort, committed) VALUES (?, ?, '[]', 1)", row
            )
        for round in range(first, last + 1):
            write(connection, epoch, RoundOpened(round, (epoch,)))
            commit(connection, round, Outcome(0, b"%d" % epoch, Verdict.COUNTED), epoch=epoch)
    past = Past(connection, 2)
    known = [past.outcomes(round) for round in (1, 2, 3, 4)]
    assert [[item.digest for item in found] for found in known] == [[b"0"], [b"0"], [b"2"], []]
    assert [Past(connection, 2).round(round).cohort for round in (2, 3)] == [(0,), (2,)]
    assert Past(connection, 1).round(4).counted == (0,)


def test_where_clients_stand_is_the_last_update_that_counted_and_moved_their_state(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long ago that was; a round without a step leaves the state as it was."""
    monkeypatch.setattr("edgeflock.server.journal.past._SPAN", 2)
    tell(connection, SEATED)
    words = {
        1: (Outcome(0, b"a", Verdict.COUNTED, True), Outcome(1, b"b", Verdict.COUNTED, True)),
        2: (Outcome(0, b"c", Verdict.COUNTED, False), Outcome(1, b"d", Verdict.LATE, None)),
        3: (Outcome(1, b"e", Verdict.COUNTED, True), Outcome(2, b"f", Verdict.COUNTED, None)),
        4: (Outcome(2, b"g", Verdict.NON_FINITE),),
    }
    for round, outcomes in words.items():
        tell(connection, RoundOpened(round, (0, 1, 2)))
        commit(connection, round, *outcomes)
    found = Past(connection, 0)
    assert found.outcomes(2) == list(words[2])
    assert found.standing(4) == {0: (1, words[1][0]), 1: (3, words[3][0]), 2: (3, words[3][1])}
    assert found.standing(2) == {0: (1, words[1][0]), 1: (1, words[1][1])}
    assert found.standing(0) == {}


def test_where_clients_stand_in_an_epoch_is_as_of_its_base_and_its_own_rounds(
    connection: sqlite3.Connection,
) -> None:
    tell(connection, SEATED)
    for epoch, base, last in ((0, 0, 3), (1, 2, 4), (2, 1, 2)):
        if epoch:
            row = (epoch, base)
            connection.execute(
                "INSERT INTO rounds (epoch, round, cohort, committed) VALUES (?, ?, '[]', 1)", row
            )
        for round in range(base + 1, last + 1):
            write(connection, epoch, RoundOpened(round, (0,)))
            words = [Outcome(0, b"%d %d" % (epoch, round), Verdict.COUNTED, True)]
            words += [Outcome(1, b"x", Verdict.COUNTED, True)] if round == 1 else []
            commit(connection, round, *words, epoch=epoch)
    digests = [Past(connection, epoch).standing(last) for epoch, last in ((0, 3), (1, 4), (1, 2), (2, 2))]
    assert [found[0][1].digest for found in digests] == [b"0 3", b"1 4", b"0 2", b"2 2"]
    assert all(found[1][0] == 1 for found in digests)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_comes_back(connection: sqlite3.Connection, verdict: Verdict) -> None:
    outcome = Outcome(3, bytes(range(16)), verdict)
    tell(connection, SEATED, RoundOpened(1, (3,)))
    commit(connection, 1, outcome)
    past = Past(connection, 0)
    assert (past.outcomes(1), past.outcomes(2)) == ([outcome], [])
    assert Past(connection, 0).round(1).counted == ((3,) if verdict is Verdict.COUNTED else ())


def test_an_outcome_is_written_once(connection: sqlite3.Connection) -> None:
    tell(connection, SEATED, RoundOpened(1, (0,)))
    commit(connection, 1, Outcome(0, b"x", Verdict.COUNTED))
    with pytest.raises(sqlite3.IntegrityError):
        commit(connection, 1, Outcome(0, b"x", Verdict.LATE))


def test_digests_of_committed_rounds_alone(connection: sqlite3.Connection) -> None:
    tell(connection, SEATED, RoundOpened(1, (0,)))
    assert Past(connection, 0).digests(1) is None
    commit(connection, 1)
    assert Past(connection, 0).digests(1) == ("model1", "state1")
    assert Past(connection, 0).round(1).cohort == (0,)


def test_a_raised_epoch_goes_on_from_its_base(connection: sqlite3.Connection) -> None:
    tell(connection, SEATED)
    for round in (1, 2, 3):
        tell(connection, RoundOpened(round, (0,)))
        commit(connection, round, Outcome(0, b"x", Verdict.COUNTED))
    records.write_meta(connection, epoch="1", epoch_base="1")
    resumed = resume(connection)
    assert (resumed.epoch, resumed.committed, resumed.open_round) == (1, 1, None)
    write(connection, 1, RoundOpened(2, (0, 1)))
    assert resume(connection).open_round == RoundOpened(2, (0, 1))
    commit(connection, 2, Outcome(0, b"y", Verdict.COUNTED), epoch=1)
    assert resume(connection).committed == 2
    assert Past(connection, 1).digests(1) == ("model1", "state1")


def test_costs_of_a_round_come_in_parts(connection: sqlite3.Connection) -> None:
    tell(connection, SEATED)
    costs.write_rows(connection, 0, {(1, 2): {"bytes_up": 10, "train_s": 1.5}})
    costs.write_rows(connection, 0, {(1, 2): {"wait_s": 0.5, "train_s": float("nan")}})
    row = connection.execute("SELECT bytes_up, train_s, wait_s FROM costs").fetchall()
    assert row == [(10, 1.5, 0.5)]
    costs.write_values(connection, 0, 1, {"fold_s": 0.25})
    assert connection.execute("SELECT * FROM round_costs").fetchall() == [(0, 1, "fold_s", 0.25)]


def test_the_best_evaluation_is_the_earliest_of_the_most_accurate(connection: sqlite3.Connection) -> None:
    assert scores.read_best(connection) is None
    found = [(1, "global", 0.5), (2, "global", 0.9), (3, "global", 0.9), (4, "personal", 1.0)]
    connection.executemany(
        "INSERT INTO evaluations VALUES (0, ?, ?, ?, 0.1, 100, 1, 0, 0, '{}', NULL)", found
    )
    assert scores.read_best(connection) == (0.9, 2)
    measures = measures_to_text([Metric("mae", higher=False, share=False), LOSS])
    connection.execute("INSERT INTO meta (name, value) VALUES ('measures', ?)", (measures,))
    assert scores.read_best(connection) == (0.5, 1), "less is better"


def test_a_loss_that_is_not_a_number_is_written_all_the_same(connection: sqlite3.Connection) -> None:
    """So is the accuracy beside it, which may end the run; and its row is sealed, as a decision's is."""
    scores.write_score(connection, 0, 1, "global", Summary(0.5, float("nan"), 100))
    assert connection.execute("SELECT value, loss FROM evaluations").fetchall() == [(0.5, None)]
    check_seals(connection)
    connection.execute("UPDATE evaluations SET seal = 0")
    with pytest.raises(sqlite3.DatabaseError, match="a row of evaluations is not what was written"):
        check_seals(connection)


def test_what_the_lives_before_have_used_and_whether_one_was_cut_off(connection: sqlite3.Connection) -> None:
    assert (resume(connection).used, resume(connection).cut) == ({}, False)
    spent = Spent({"time": 2.5, "bytes": 10.0}, {"time": 0.5}, {})
    costs.write(connection, 0, Costs(LateCosts(), None, spent))
    assert not resume(connection).cut, "no round is open"
    resumed = tell(connection, SEATED, RoundOpened(1, (0, 1)))
    assert (resumed.used, resumed.cut) == ({"time": 2.5, "bytes": 10.0}, True)
    assert costs.read_used(resumed.meta) == {"time": 0.5, "bytes": 10.0}, "the method's own count counts"
    costs.write(connection, 0, Costs(LateCosts(), None, spent, whole=True))
    assert not resume(connection).cut


def test_a_round_that_a_budget_cuts_short_is_the_last_after_a_restart(connection: sqlite3.Connection) -> None:
    tell(connection, SEATED, RoundOpened(1, (0, 1)))
    assert resume(connection).limit == ""
    assert tell(connection, RoundClosed(1, (0,), "the budget is used up")).limit == "the budget is used up"


def test_what_an_operator_has_asked_for_is_known_until_the_run_ends(connection: sqlite3.Connection) -> None:
    assert (resume(connection).paused, resume(connection).stop) == (False, "")
    resumed = tell(connection, Paused(True, 1), Stopping("enough"))
    assert (resumed.paused, resumed.stop) == (True, "enough")
    assert not tell(connection, Paused(False, 1)).paused
    resumed = tell(connection, Paused(True, 1), Ended(EndingKind.STOPPED, "enough", 0))
    assert (resumed.paused, resumed.stop) == (False, "")


def test_what_is_written_of_a_round_s_costs_is_read_as_it_was_said(connection: sqlite3.Connection) -> None:
    tell(connection, SEATED, RoundOpened(1, (0, 1)))
    rows: dict[int, Row] = {
        0: {"cpu_s": 1.5, "energy_j": 4.0, "energy_source": 2, "bytes_up": 7},
        1: {"cpu_s": None},
    }
    bundles = {0: {("up", "delta", "int8"): 5, ("up", "buffers", "identity"): 2}}
    of_round = RoundRows(1, rows, bundles, rows)
    for _ in range(2):  # a transaction that is tried again
        costs.write(connection, 0, Costs(LateCosts(), of_round, Spent({}, {}, {})))
    assert connection.execute("SELECT energy_source FROM costs").fetchall() == [("hwmon",), (None,)]
    past = Past(connection, 0)
    assert past.costs(1) == {0: (rows[0], bundles[0]), 1: ({}, {})}
    none = {"cpu_s": None, "energy_j": None}
    assert past.stated(1) == {0: {"cpu_s": 1.5, "energy_j": 4.0}, 1: none}
    assert (past.costs(2), past.stated(2)) == ({}, {})


def test_how_the_models_have_done_up_to_a_round(connection: sqlite3.Connection) -> None:
    assert Past(connection, 0).scores(1) == PastScores(None, {}, None)
    for round, name, accuracy in ((1, "global", 0.5), (2, "personal", 0.7), (3, "client_local", 0.9)):
        scores.write_score(connection, 0, round, name, Summary(accuracy, 1.0, 10))
    assert Past(connection, 0).scores(1) == PastScores(
        (0.5, 1), {"global": 1, "personal": 2}, Summary(0.5, 1.0, 10)
    )
    assert Past(connection, 0).scores(2) == PastScores((0.5, 1), {"global": 1, "personal": 2}, None)
    assert Past(connection, 1).scores(1) == PastScores((0.5, 1), {}, None)


def test_a_test_that_has_begun_is_known_until_it_has_its_scores(connection: sqlite3.Connection) -> None:
    tests = (TestModel(9), TestModel(10), TestModel(10, ("personal", "global-train")))
    for test in reversed(tests):
        scores.write_untested(connection, test.round, test.models)
    assert Past(connection, 0).resumed().untested == tests
    tell(connection, Scored(10, (), tests[1].models))
    assert Past(connection, 0).resumed().untested == (tests[0], tests[2])
    tell(connection, Scored(10, (), tests[2].models), Scored(9, ()))
    assert Past(connection, 0).resumed().untested == ()


def test_a_test_that_another_life_makes_with_more_models_or_fewer_is_known_as_far_as_it_goes(
    connection: sqlite3.Connection,
) -> None:
    scores.write_untested(connection, 10, ("personal", "global-train"))
    tell(connection, Scored(10, (), ("personal", "teacher")))
    assert Past(connection, 0).resumed().untested == (TestModel(10, ("global-train",)),)
    tell(connection, Scored(1, (), ("global-train",)))
    assert Past(connection, 0).resumed().untested == (TestModel(10, ("global-train",)),)
    tell(connection, Scored(10, (), ("teacher", "global-train")))
    assert Past(connection, 0).resumed().untested == ()


def test_scores_of_clients_stand_by_seat_and_name(connection: sqlite3.Connection) -> None:
    tell(connection, SEATED)
    told = {0: {"client_local": Score(0.5, 1.0, 10, {"f1": 0.25})}, 2: {"client_pooled": Score(0.25, 2.0, 4)}}
    scores.write_client_scores(connection, 0, 3, told)
    found = connection.execute("SELECT * FROM client_scores ORDER BY seat").fetchall()
    assert found == [
        (0, 3, 0, "client_local", 10, 0.5, 1.0, '{"f1": 0.25}'),
        (0, 3, 2, "client_pooled", 4, 0.25, 2.0, "{}"),
    ]
