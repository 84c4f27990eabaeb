"""The verdict of a comparison: as much as the intervals say, and no more; what is missing is said."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from edgeflock.lab.compare.screen import screen
from edgeflock.lab.findings.findings import findings
from edgeflock.lab.findings.outcome import RunOutcome
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.findings.verdict import verdicts
from edgeflock.lab.grid.grid import Grid, make_grid
from edgeflock.lab.grid.grid_toml import keep, recall, with_asked

GRID = """
baseline = "fedavg"
target = [0.85, 0.9]
[grid]
method = ["fedavg", "fedprox", "fedtrip"]
seed = [0, 1]
"""


def grid(text: str = GRID) -> Grid:
    return make_grid(tomllib.loads(text), "g.toml")


def results(grid: Grid, finals: Mapping[str, Sequence[float]]) -> list[CellResult]:
    """Return runs that end with these accuracies, by group and seed, and were never better; others failed."""
    found, seen = [], dict.fromkeys(finals, 0)
    for cell in grid.cells:
        name = " ".join(cell.group.values())
        place = seen.get(name, 0)
        seen[name] = place + 1
        values = finals.get(name, ())
        found.append(
            CellResult(cell, replace(ended(values[place], grid.targets_of(cell)), figure=grid.figure))
            if place < len(values)
            else CellResult(cell, None, "it broke")
        )
    return found


def ended(accuracy: float, targets: Sequence[float]) -> RunOutcome:
    costs = {"rounds": 5.0, "bytes": 1e6, "seconds": 2.0, "flops": None, "energy_j": None}
    reached = {target: costs if accuracy >= target else None for target in targets}
    return RunOutcome(accuracy, accuracy, costs, reached, ())


def words(finals: Mapping[str, Sequence[float]], text: str = GRID) -> list[str]:
    made = grid(text)
    return [str(verdict) for verdict in verdicts(results(made, finals), made)]


def test_who_is_alike_above_or_reached_the_target_is_said_in_one_sentence() -> None:
    finals = {"fedavg": [0.81, 0.82], "fedprox": [0.811, 0.82], "fedtrip": [0.861, 0.871]}
    assert words(finals) == [
        "fedavg and fedprox are alike, as far as 2 seeds tell: final accuracy within 0.007; "
        "fedtrip (+0.051 [+0.051, +0.051]) is above fedavg; "
        "fedtrip reached 0.85 in 2 of 2, fedavg and fedprox in none; no run reached 0.9"
    ]


def test_a_method_is_held_against_the_baseline_at_each_value_of_its_own_option_and_in_every_case() -> None:
    text = GRID.replace("seed = [0, 1]", "seed = [0, 1]\n'fedtrip.mu' = [0.1, 0.4]").replace(
        '"fedprox", ', ""
    )
    text += "[[case]]\nname = 'a'\n[[case]]\nname = 'b'\nlr = 0.1\ntarget = 0.7"
    flat = {f"{case} fedavg": [0.6, 0.61] for case in "ab"}
    finals = {
        **flat,
        "a fedtrip 0.1": [0.6, 0.61],
        "a fedtrip 0.4": [0.8, 0.81],
        "b fedtrip 0.4": [0.7, 0.72],
    }
    first, second = words(finals, text)
    assert first.startswith(
        "case=a: fedavg and fedtrip mu=0.1 are alike, as far as 2 seeds tell: "
        "the same final accuracy in every run; "
        "fedtrip mu=0.4 (+0.200 [+0.200, +0.200]) is above fedavg; no run reached 0.85 or 0.9"
    )
    assert (
        "fedtrip mu=0.4 reached 0.7 in 2 of 2, fedavg and fedtrip mu=0.1 in none; without a result" in second
    )


def test_a_wide_interval_leaves_it_open() -> None:
    """Two seeds that differ by 0.02 and by 0.08: better by 0.05 is what people would read into it."""
    finals = {"fedavg": [0.80, 0.80], "fedprox": [0.80, 0.80], "fedtrip": [0.82, 0.88]}
    (said,) = words(finals)
    assert "2 seeds cannot tell fedtrip (+0.050 [-0.331, +0.431]) from fedavg" in said
    assert "above" not in said


def test_a_difference_of_no_consequence_is_alike_however_sure_it_is() -> None:
    finals = {"fedavg": [0.80, 0.81], "fedprox": [0.803, 0.813], "fedtrip": [0.80, 0.81]}
    assert "fedavg, fedprox and fedtrip are alike" in words(finals)[0]


def test_one_seed_decides_nothing() -> None:
    finals = {"fedavg": [0.86], "fedprox": [0.80], "fedtrip": [0.95]}
    (said,) = words(finals, GRID.replace("[0, 1]", "[0]"))
    assert said == (
        "one seed decides nothing: final accuracy fedtrip 0.9500, fedavg 0.8600, fedprox 0.8000; "
        "fedtrip reached 0.9 in 1 of 1, fedavg and fedprox in none"
    )


def test_runs_without_a_result_are_counted_out_loud() -> None:
    (said,) = words({"fedavg": [0.91, 0.92], "fedtrip": [0.91]})
    assert said.endswith(
        "fedavg reached 0.9 in 2 of 2, fedtrip in 1 of 2, fedprox in none; "
        "without a result: 2 of 2 of fedprox and 1 of 2 of fedtrip"
    )
    assert "alike" not in said


def test_when_all_have_reached_it_none_is_singled_out() -> None:
    same = [0.95, 0.96]
    (said,) = words({"fedavg": same, "fedprox": same, "fedtrip": same})
    assert said.endswith(": the same final accuracy in every run; every run reached 0.9")


def test_without_a_baseline_the_first_method_stands_for_it() -> None:
    text = GRID.replace('baseline = "fedavg"', "")
    finals = {"fedavg": [0.81, 0.82], "fedprox": [0.81, 0.82], "fedtrip": [0.51, 0.52]}
    assert "fedtrip (-0.300 [-0.300, -0.300]) is below fedavg" in words(finals, text)[0]


def test_another_figure_than_accuracy_is_named_and_where_less_of_it_is_better() -> None:
    text = GRID.replace("[0.85, 0.9]", "0.3").replace("[grid]", '[run]\ntask = "regression"\n[grid]')
    finals = {"fedavg": [0.41, 0.42], "fedprox": [0.51, 0.52], "fedtrip": [0.41, 0.92]}
    (said,) = words(finals, text)
    assert "fedprox (+0.100 [+0.100, +0.100]) is above fedavg in mae, where less is better;" in said
    assert "from fedavg in mae" in said
    assert "Mean ± deviation of mae over 2 seeds; to 0.3: the median" in shown(text, finals)


def test_every_setting_of_the_other_axes_has_its_own() -> None:
    text = GRID + 'partition = ["iid", "dirichlet:0.3"]\n'
    low, high = [0.81, 0.82], [0.91, 0.92]
    finals = {
        f"{method} {partition}": high if (method, partition) == ("fedtrip", "dirichlet:0.3") else low
        for method in ("fedavg", "fedprox", "fedtrip")
        for partition in ("iid", "dirichlet:0.3")
    }
    iid, skewed = words(finals, text)
    assert iid.startswith("partition=iid: fedavg, fedprox and fedtrip are alike")
    assert skewed.startswith("partition=dirichlet:0.3: fedavg and fedprox are alike")


# ---------------------------------------------------------------------------------------- on the screen


def shown(text: str, finals: Mapping[str, Sequence[float]], width: int = 80) -> list[str]:
    made = grid(text)
    found = results(made, finals)
    return screen(findings(found, made), Path("runs/compare-g"), "fl-lab report x", width).splitlines()


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_the_end_of_a_comparison_is_a_screen(width: int, count: int) -> None:
    names = [f"method-{number}" for number in range(count)]
    variants = "".join(f'[method.{name}]\nname = "fedavg"\nlr = 0.{n + 1}\n' for n, name in enumerate(names))
    text = f"target = 0.8\n[grid]\nmethod = {names}\nseed = [0, 1]\n{variants}".replace("'", '"')
    lines = shown(text, {name: [0.8 + place / 1000, 0.81] for place, name in enumerate(names)}, width)
    assert len(lines) < 24
    assert max(map(len, lines)) <= width
    assert lines[-1] == "next: fl-lab report x"
    assert any(line.startswith("verdict: ") for line in lines)


def test_a_wide_screen_has_more_columns() -> None:
    finals = {"fedavg": [0.91, 0.92], "fedprox": [0.91, 0.92], "fedtrip": [0.91, 0.92]}
    narrow, wide = shown(GRID, finals, 60)[2].split(), shown(GRID, finals, 200)[2].split()
    assert {"final", "reached"} <= set(narrow) < set(wide)


# ------------------------------------------------------------------------------------- what was asked


def test_what_was_asked_is_kept_with_what_the_command_line_said(tmp_path: Path) -> None:
    text = (
        GRID + '[run]\nmodel = { name = "mlp", hidden = "20" }\nrounds = 3\n[method.fedprox]\nmu = 0.5\n'
        '[method."fedtrip"]\nlr = 0.1\n'
    )
    assert recall(tmp_path) is None
    text += '[[case]]\nname = "a"\nbatch_size = 8\nfedprox.clip = 3\ntarget = 0.6\n'
    text += '[[case]]\nname = "b"\n"fedprox.measure" = "client_local"\n'
    table = with_asked(tomllib.loads(text), target=[0.7])
    made = make_grid(table | {"baseline": {"method": "fedprox"}}, "g.toml")
    keep(tmp_path, table, made)
    found = recall(tmp_path)
    assert found is not None
    assert [cell.digest for cell in found.cells] == [cell.digest for cell in made.cells]
    assert {(found.targets_of(cell), found.measure_of(cell)) for cell in found.cells} == {
        ((0.7,), "global"),
        ((0.7,), "client_local"),
    }
    assert replace(found, cells=()) == replace(made, cells=())  # a cell has the second in its run directory
