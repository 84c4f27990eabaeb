"""Natural order and seeded selection."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgeflock.server.core.roster import extension, natural_order, select

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
    assert extension(0, 1, range(100), 10) != select(0, 1, range(100), 10)


def test_every_client_has_its_turn() -> None:
    counts = [0] * 10
    for round in range(1, 1001):
        for index in select(7, round, range(10), 3):
            counts[index] += 1
    assert all(230 < count < 370 for count in counts)


def test_the_numbers_of_a_seed_stay_what_they_are() -> None:
    """A resumed run and another machine must draw the same: these were drawn when the test was written."""
    drawn = [(0, 5, 9, 18), (1, 3, 5, 6), (4, 8, 9, 10)]
    assert [select(0, round, range(20), 4) for round in (1, 2, 3)] == drawn
