"""The nemesis itself: its schedules are values, and its judge sees what differs."""

from __future__ import annotations

from dataclasses import replace

from support.nemesis.judge import Left, differences
from support.nemesis.schedule import SETTINGS, schedule
from support.nemesis.strokes import KINDS

CALM = Left(
    "aa",
    [[0, number, "[0, 1]", "[0, 1]", f"model {number}", "state"] for number in (1, 2, 3)],
    [[0, number, client, "counted"] for number in (1, 2, 3) for client in ("c0", "c1")],
)


def with_other_bits(number: int) -> Left:
    """Return what is left when bits differ from that round on."""
    rounds = [[*row[:4], "another", "state"] if row[1] >= number else row for row in CALM.rounds]
    return replace(CALM, sha256="bb", rounds=rounds)


def test_a_seed_is_always_the_same_schedule() -> None:
    assert [schedule(seed) for seed in range(20)] == [schedule(seed) for seed in range(20)]
    assert len({str(schedule(seed)) for seed in range(20)}) == 20


def test_every_kind_of_fault_comes_and_every_setting_is_run() -> None:
    made = [schedule(seed) for seed in range(200)]
    assert {stroke.kind for one in made for stroke in one.strokes} == set(KINDS)
    assert {one.name for one in made} == set(SETTINGS)


def test_the_judge_finds_nothing_where_nothing_differs() -> None:
    assert differences(CALM, CALM) == []


def test_the_judge_sees_other_bits_in_the_round_in_which_they_begin() -> None:
    final, first = differences(with_other_bits(2), CALM)
    assert final == "other final bits: bb, undisturbed aa"
    assert "'another'" in first
    assert "[0, 2, " in first


def test_a_lost_state_excuses_bits_from_that_round_on_and_nothing_else() -> None:
    assert differences(with_other_bits(2), CALM, lost=2) == []
    assert differences(with_other_bits(2), CALM, lost=3) != []
    fewer = replace(with_other_bits(2), outcomes=CALM.outcomes[:-1])
    (verdicts,) = differences(fewer, CALM, lost=2)
    assert verdicts == "other verdicts: 5 rows, undisturbed 6"
