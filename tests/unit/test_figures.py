"""Figures by name, and what is only known to be more: medians, ratios and exact intervals, by hand."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import replace

import pytest

from edgeflock.common.errors import BadValue
from edgeflock.lab.findings.bounded import (
    Bounded,
    exactly,
    median,
    middle,
    more_than,
    ratio,
    ratios,
)
from edgeflock.lab.findings.figures import by_seed, check_name, figure, group_figure, group_ratio
from edgeflock.lab.findings.outcome import outcome
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.grid.grid import Grid, make_grid
from edgeflock.lab.history import History
from unit.test_comparison import history

GRID = """
target = 0.6
[grid]
method = ["fedavg", "fedprox"]
seed = [0, 1, 2]
[run]
rounds = 3
"""


def test_a_median_is_known_where_what_is_not_lies_beyond_it() -> None:
    assert median([exactly(3), more_than(9), exactly(4)]) == exactly(4)
    assert median([exactly(3), more_than(9), more_than(9)]) == more_than(9)
    assert median([exactly(3), more_than(9)]) == more_than(6)
    assert median([more_than(2), exactly(5), exactly(7)]) == Bounded(5, 7)  # it ended early: 5, 6 or 7


def test_a_ratio_says_what_the_bounds_allow() -> None:
    assert ratio(exactly(6), exactly(3)) == exactly(2)
    assert ratio(more_than(9), exactly(3)) == more_than(3)
    assert ratio(exactly(3), more_than(9)) == Bounded(0, 1 / 3)
    assert ratio(more_than(9), more_than(9)) == Bounded(0, math.inf)
    assert ratio(exactly(3), exactly(0)) == Bounded(0, math.inf)


@pytest.mark.parametrize(
    ("count", "low", "high", "level"),
    [(1, 1, 1, 0), (2, 1, 2, 0.5), (3, 1, 3, 0.75), (5, 1, 5, 0.9375), (6, 1, 6, 0.96875), (9, 2, 8, 0.9609)],
)
def test_the_interval_of_a_median_is_that_of_the_signs(count: int, low: int, high: int, level: float) -> None:
    found = middle([exactly(value) for value in range(count, 0, -1)])
    assert found is not None
    assert (found.low, found.high, found.count, found.missed) == (low, high, count, 0)
    assert found.level == pytest.approx(level, abs=1e-4)


def test_who_missed_widens_the_interval_and_is_counted() -> None:
    found = middle([exactly(3), exactly(4), more_than(9)])
    assert found is not None
    assert (found.value, found.low, found.high, found.missed) == (exactly(4), 3, math.inf, 1)
    assert middle([]) is None


def test_ratios_are_paired_by_seed() -> None:
    found = ratios({"0": exactly(6), "1": more_than(9), "7": exactly(1)}, {"0": exactly(3), "1": exactly(3)})
    assert found is not None
    assert (found.value, found.low, found.count, found.missed) == (more_than(2.5), 2, 2, 1)
    assert ratios({"0": exactly(1)}, {"1": exactly(1)}) is None


@pytest.fixture
def grid() -> Grid:
    return make_grid(tomllib.loads(GRID), "g.toml")


def told(grid: Grid, runs: Sequence[History | None]) -> list[CellResult]:
    """Return results in the order of the cells: of each seed fedavg, then fedprox; None: it failed."""
    return [
        CellResult(cell, None, "it broke")
        if run is None
        else CellResult(cell, outcome(run, "global", grid.targets, 3), history=run)
        for cell, run in zip(grid.cells, runs, strict=True)
    ]


QUICK, SLOW, NEVER = history([0.6, 0.7, 0.8]), history([0.4, 0.5, 0.6]), history([0.1, 0.2, 0.3])


def test_a_run_has_its_figures_by_their_names(grid: Grid) -> None:
    (found, *_) = told(grid, [QUICK] + [None] * 5)
    names = ("final_accuracy", "best_loss", "last_2_accuracy", "accuracy_at_2", "loss_at_2")
    known = [figure(found, name) for name in names]
    assert [value and value.value for value in known] == pytest.approx([0.8, 0.2, 0.75, 0.7, 0.3])
    assert figure(found, "rounds", 0.65) == exactly(2)
    assert figure(found, "bytes", 0.9) == more_than(300)
    assert figure(found, "bytes") == exactly(300)
    for unknown in ("accuracy_at_4", "energy_j", "mean_tau"):
        assert figure(found, unknown) is None
    assert figure(found, "final_accuracy", model="personal") is None


def test_what_a_method_says_of_its_rounds_is_a_figure(grid: Grid) -> None:
    rounds = [replace(r, values={"tau": float(10 * r.number)}) for r in QUICK.rounds]
    (found, *_) = told(grid, [replace(QUICK, rounds=tuple(rounds))] + [None] * 5)
    assert (figure(found, "last_tau"), figure(found, "mean_tau")) == (exactly(30), exactly(20))


def test_a_median_is_not_moved_by_the_first_rounds_of_a_search(grid: Grid) -> None:
    rounds = [replace(r, values={"tau": (1.0, 100.0, 100.0)[r.number - 1]}) for r in QUICK.rounds]
    (found, *_) = told(grid, [replace(QUICK, rounds=tuple(rounds))] + [None] * 5)
    assert (figure(found, "median_tau"), figure(found, "mean_tau")) == (exactly(100), exactly(67))
    assert figure(found, "median_other") is None


def test_a_run_that_missed_counts_in_median_and_ratio(grid: Grid) -> None:
    found = told(grid, [QUICK, SLOW, QUICK, NEVER, QUICK, NEVER])
    slower = group_figure(found, {"method": "fedprox"}, "rounds", 0.6)
    assert slower is not None
    assert (slower.value, slower.low, slower.high, slower.missed) == (more_than(3), 3, math.inf, 2)
    times = group_ratio(found, {"method": "fedprox"}, {"method": "fedavg"}, "rounds", 0.6)
    assert times is not None
    assert (times.value, times.low, times.count) == (more_than(3), 3, 3)


def test_a_run_that_failed_is_in_no_figure_but_one_that_diverged_would_never_have_come(grid: Grid) -> None:
    failed = told(grid, [None] * 6)
    assert by_seed(failed, {"method": "fedavg"}, "rounds", 0.6) == {}
    lost = replace(failed[0], diverged=replace(NEVER, rounds=NEVER.rounds[:1]))
    assert figure(lost, "rounds", 0.6) == more_than(3)  # as many as were asked for
    assert figure(lost, "rounds", 0.1) == exactly(1)
    assert figure(lost, "rounds") is None
    assert figure(lost, "best_accuracy") == exactly(0.1)


@pytest.mark.parametrize("name", ["rounds", "best_loss", "last_10_accuracy", "accuracy_at_20", "median_tau"])
def test_names_of_figures_are_known(name: str) -> None:
    assert check_name(name, "y") == name


@pytest.mark.parametrize("name", ["speed", "last_0_accuracy", "accuracy_at_x", ""])
def test_an_unknown_figure_is_refused_with_what_there_is(name: str) -> None:
    with pytest.raises(BadValue, match="last_10_accuracy"):
        check_name(name, "y")
