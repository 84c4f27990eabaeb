"""Mean, deviation and paired difference, against numbers that were made by hand or stand in tables."""

from __future__ import annotations

import pytest

from edgeflock.lab.compare.time_left import Ahead, Took, seconds_left, took, words
from edgeflock.lab.findings.paired import difference, spread, t_quantile


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (30, 2.042), (100, 1.984)],
)
def test_the_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(quantile, abs=5e-4)


def test_deviation_is_that_of_a_sample() -> None:
    found = spread([1.0, 2.0, 6.0])
    assert found is not None
    assert (found.mean, found.count) == (3.0, 3)
    assert found.deviation == pytest.approx(7**0.5)


def test_one_value_has_no_deviation_and_none_has_no_mean() -> None:
    found = spread([2.0])
    assert found is not None
    assert (found.mean, found.deviation) == (2.0, None)
    assert spread([]) is None


def test_differences_are_paired_by_seed() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, error 1 / sqrt(3), t(0.975, 2) = 4.3027."""
    found = difference({"0": 11, "1": 22, "2": 33, "7": 1000}, {"2": 30, "1": 20, "0": 10, "9": 0})
    assert found is not None
    assert (found.mean, found.count) == (2.0, 3)
    assert found.error == pytest.approx(3**-0.5)
    assert found.low == pytest.approx(2 - 2.4841, abs=1e-3)
    assert found.high == pytest.approx(2 + 2.4841, abs=1e-3)


def test_one_pair_has_no_interval_and_none_no_difference() -> None:
    found = difference({"0": 3}, {"0": 1})
    assert found is not None
    assert (found.mean, found.error, found.low, found.high) == (2, None, None, None)
    assert difference({"0": 3}, {"1": 1}) is None


def test_before_anything_is_known_the_time_left_is_that_of_starting_processes_at_least() -> None:
    assert seconds_left([], [Ahead("fedavg")], 1) is None
    assert words([], [Ahead("fedavg")], 1) == ("5 s or more left (processes start; better known soon)")


def test_time_left_takes_a_methods_own_time_where_it_is_known() -> None:
    known = [Took("fast", 10), Took("slow", 100), Took("slow", 120)]
    ahead = [Ahead("fast"), Ahead("slow", 0.5), Ahead("new")]
    assert seconds_left(known, ahead, 1) == pytest.approx(10 + 55 + 230 / 3)
    assert words(known, ahead, 1) == "about 2 min left (from 3 finished, none of new yet)"


def test_a_cell_that_was_interrupted_took_as_long_as_all_its_lives() -> None:
    assert took("a", "", [(0, 90), (200, 210)], seconds=12) == Took("a", 100)
    assert took("a", "", [(200, 210)], seconds=12) == Took("a", 12)


def test_time_left_prefers_cells_that_differ_in_their_seed_alone() -> None:
    known = [Took("a", 10, "small"), Took("a", 100, "large")]
    assert seconds_left(known, [Ahead("a", 1.0, "large")], 1) == 100
    assert seconds_left(known, [Ahead("a", 1.0, "huge")], 1) == 55


def test_several_at_a_time_end_no_sooner_than_the_longest() -> None:
    assert seconds_left([Took("a", 60)], [Ahead("a"), Ahead("a"), Ahead("a")], 8) == 60
