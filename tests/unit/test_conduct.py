"""Quarantine, decided without a socket: what counts against a client, for how long, and who is spared."""

from __future__ import annotations

import pytest

from edgeflock.common.verdict import Verdict
from edgeflock.server.core.conduct import ConductBook
from edgeflock.server.core.decisions import Conduct, Released, RoundExtended
from edgeflock.server.core.effects import Announce, CommitRound, Persist
from edgeflock.server.core.events import (
    Offended,
    Ready,
    ReleaseAsked,
    ResumedRound,
    RoundPrepared,
    Started,
    UpdateReceived,
)
from edgeflock.server.core.rules import Rules
from edgeflock.server.core.run import RunMachine
from support.desk import Desk

AFTER, ROUNDS = 3, 4


def desk(clients: int = 4, *, min_updates: int = 1, cohort: int = 0, **rules: object) -> Desk:
    made = Desk(
        clients,
        rounds=20,
        min_updates=min_updates,
        cohort=cohort,
        quarantine_after=AFTER,
        quarantine_rounds=ROUNDS,
        **rules,
    )
    return made.gather()


def offend(of: Desk, seat: int, times: int = AFTER) -> None:
    for _ in range(times):
        of.post(Offended(seat, "wrong_layout", of.now))


def said(of: Desk, name: str) -> list[dict[str, object]]:
    return [effect.fields for effect in of.of(Announce) if effect.name == name]


def deliver_rest(of: Desk) -> None:
    of.deliver(*(seat for seat in of.machine.current.cohort if of.machine.has_task(seat)))


def test_so_many_bad_updates_in_a_row_and_a_client_is_out_of_the_open_round_and_the_next_ones() -> None:
    at = desk()
    offend(at, 2, AFTER - 1)
    assert at.machine.has_task(2)
    assert said(at, "client_quarantined") == []
    offend(at, 2, 1)
    assert not at.machine.has_task(2)
    assert said(at, "client_quarantined") == [
        {"client": "c2", "until": 1 + ROUNDS, "refused": AFTER, "reason": "wrong_layout"}
    ]
    deliver_rest(at)
    assert at.verdicts()[2] is Verdict.QUARANTINED
    for _ in range(ROUNDS):
        assert 2 not in at.machine.current.cohort
        deliver_rest(at)
    assert at.machine.round == ROUNDS + 2
    assert at.machine.has_task(2)
    assert [fields["client"] for fields in said(at, "client_released")] == ["c2"]


def test_every_bad_update_is_journalled_before_anything_is_said_of_it() -> None:
    at = desk()
    at.holding = (Persist,)
    offend(at, 1)
    rows = [record for record in at.records() if isinstance(record, Conduct)]
    assert [(one.refused, one.row, one.until) for one in rows] == [(1, 1, 0), (2, 2, 0), (3, 0, 1 + ROUNDS)]
    assert at.machine.quarantined(1) is None
    assert at.machine.has_task(1)
    at.release()
    assert at.machine.quarantined(1) == rows[-1]


def test_an_update_that_counts_ends_the_row() -> None:
    at = desk()
    for _ in range(4):
        offend(at, 0, AFTER - 1)
        deliver_rest(at)
    assert said(at, "client_quarantined") == []
    last = [record for effect in at.of(CommitRound) for record in effect.conduct][-1]
    assert (last.refused, last.row, last.until) == (4 * (AFTER - 1), 0, 0)


@pytest.mark.parametrize("verdict", [Verdict.NON_FINITE, Verdict.MALFORMED])
def test_updates_that_the_fold_rejects_are_bad_ones_and_the_next_cohort_knows(verdict: Verdict) -> None:
    at = desk()
    at.rejected = {3: verdict}
    for _ in range(AFTER):
        assert at.machine.quarantined(3) is None
        deliver_rest(at)
    assert at.machine.quarantined(3) is not None, "so it is told why it has no task"
    commit = at.of(CommitRound)[-1]
    assert [(one.seat, one.until, one.reason) for one in commit.conduct] == [
        (3, AFTER + ROUNDS, str(verdict))
    ]
    assert [word.name for word in commit.announcements] == ["client_quarantined"]
    assert commit.next is not None
    assert 3 not in commit.next.cohort
    assert 3 not in at.machine.current.cohort


def test_an_update_that_was_there_before_counts_all_the_same() -> None:
    at = desk()
    at.deliver(1)
    offend(at, 1)
    deliver_rest(at)
    assert at.verdicts()[1] is Verdict.COUNTED
    assert 1 not in at.machine.current.cohort


@pytest.mark.parametrize("online", [False, True])
def test_nobody_is_left_out_when_too_few_would_remain(online: bool) -> None:
    at = desk(3, min_updates=2, online=online)
    offend(at, 0, 50)
    assert at.machine.quarantined(0) is not None
    offend(at, 1, 50)
    assert at.machine.quarantined(1) is None
    assert at.machine.has_task(1)
    written = [record.row for record in at.records() if isinstance(record, Conduct) and record.seat == 1]
    assert written == [1, 2, 3, 4, 8, 16, 32], "what could go on for ever is written ever more seldom"
    deliver_rest(at)
    assert at.machine.round == 2, "an online round does not wait for who is left out"


def test_nobody_is_left_out_where_that_is_off() -> None:
    at = Desk(3, min_updates=1).gather()
    offend(at, 0, 100)
    assert at.machine.has_task(0)
    assert [record for record in at.records() if isinstance(record, Conduct)] == []


def test_it_ends_with_its_last_round_and_that_is_said_with_the_commit() -> None:
    at = desk()
    offend(at, 2)
    for _ in range(ROUNDS):
        deliver_rest(at)
        assert (at.machine.quarantined(2) is not None, 2 in at.machine.current.cohort) == (True, False)
    deliver_rest(at)
    assert (at.machine.quarantined(2), 2 in at.machine.current.cohort) == (None, True)
    released = [word for effect in at.of(CommitRound) for word in effect.announcements]
    why = f"its quarantine ends with round {1 + ROUNDS}"
    assert [(word.name, word.fields) for word in released] == [
        ("client_released", {"client": "c2", "reason": why})
    ]


def test_who_is_put_there_while_an_extension_is_being_written_is_not_waited_for() -> None:
    at = desk(3, cohort=1, min_updates=1)
    member = at.machine.current.cohort[0]
    at.holding = (Persist,)
    (effect,) = at.pass_deadline()
    assert isinstance(effect, Persist)
    (extended,) = effect.records
    assert isinstance(extended, RoundExtended)
    at.held.clear()
    at.holding = ()
    offend(at, extended.added[0])
    at.carry_out(effect)
    assert extended.added[0] in at.machine.current.cohort
    assert [at.machine.has_task(seat) for seat in (member, *extended.added)] == [True, False]


def test_an_operator_lets_a_client_in_again() -> None:
    at = desk()
    offend(at, 2)
    at.post(ReleaseAsked(2, at.now))
    assert Released(2) in at.records()
    assert said(at, "client_released") == [{"client": "c2", "reason": "an operator trusts it again"}]
    deliver_rest(at)
    assert at.machine.has_task(2), "from the next round on"
    offend(at, 2, AFTER - 1)
    assert at.machine.has_task(2), "it begins anew"
    at.post(ReleaseAsked(3, at.now))
    assert Released(3) not in at.records(), "who is in none needs no release"


def back(*conduct: Conduct) -> RunMachine:
    """Return a machine that finds round 2 open."""
    rules = Rules(
        rounds=9, clients=3, cohort=3, min_updates=1, quarantine_after=AFTER, quarantine_rounds=ROUNDS
    )
    machine = RunMachine(rules)
    machine.handle(Started(0.0, tuple(enumerate("abc")), 1, ResumedRound(2, (0, 1, 2)), conduct=conduct))
    return machine


def test_a_restart_knows_who_is_left_out_and_how_many_bad_updates_there_were() -> None:
    machine = back(Conduct(1, 3, 0, 5, "malformed"), Conduct(2, 2, 2, 0, "malformed"))
    machine.handle(RoundPrepared(2, (), 0.0))
    assert [machine.has_task(seat) for seat in range(3)] == [True, False, True]
    (persist,) = machine.handle(Offended(2, "malformed", 0.0))
    assert persist == Persist((Conduct(2, 3, 0, 2 + ROUNDS, "malformed"),))
    assert machine.handle(UpdateReceived(2, 1, b"x", 0.0)) == [], "it does not close the round"


def test_a_cohort_that_was_decided_before_a_restart_waits_for_its_others_only() -> None:
    machine = back(Conduct(1, 3, 0, 5, "malformed"))
    for seat in (0, 2):
        machine.handle(Ready(seat, 10, 0.0))
    machine.handle(RoundPrepared(2, ((0, b"a"), (2, b"c")), 0.0))
    assert machine.current.counted == (0, 2)


def test_a_quarantine_that_the_configuration_no_longer_knows_is_over() -> None:
    held = ConductBook(Rules(rounds=9, clients=3, cohort=3, min_updates=1, quarantine_after=0))
    held.take((Conduct(1, 3, 0, 50, "malformed"),))
    assert held.held(2) == set()


def test_who_is_left_out_is_not_chosen_from_those_online() -> None:
    at = desk(4, online=True, cohort=2)
    offend(at, at.machine.current.cohort[0])
    out = at.machine.current.cohort[0]
    for _ in range(ROUNDS):
        deliver_rest(at)
        assert out not in at.machine.current.cohort
        assert len(at.machine.current.cohort) == 2
