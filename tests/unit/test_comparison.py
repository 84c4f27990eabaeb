"""Outcomes of a grid put together: when a target is reached, what is averaged and paired, the files."""

from __future__ import annotations

import csv
import math
import shutil
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from edgeflock.common.scores import Summary
from edgeflock.lab.compare import bands, tables
from edgeflock.lab.compare.picture import draw
from edgeflock.lab.compare.screen import tell
from edgeflock.lab.findings.blocks import Block
from edgeflock.lab.findings.findings import findings
from edgeflock.lab.findings.groups import (
    cell_records,
    curve_records,
    groups,
    summary_records,
)
from edgeflock.lab.findings.outcome import lives, outcome, overlap
from edgeflock.lab.findings.paired import Difference, Spread
from edgeflock.lab.findings.quantity import interval, quantity
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.grid.grid import Grid, make_grid
from edgeflock.lab.history import Ending, History, RoundHistory
from edgeflock.lab.plots import theme
from edgeflock.lab.plots.curves import AXES, Against, Curve
from edgeflock.server.config import ServerConfig
from edgeflock.server.journal.reader import Event


def history(accuracies: Sequence[float | None], closing: float | None = None) -> History:
    """Return a run whose rounds cost 100 bytes and 2 seconds each; an accuracy of None is no evaluation."""
    told = [*accuracies, *([] if closing is None else [closing])]
    rounds = [
        RoundHistory(
            epoch=0,
            number=number,
            last="all rounds are done" if number > len(accuracies) else "",
            committed=True,
            cohort=(0,),
            verdicts={},
            values={},
            costs={},
            evaluations={} if accuracy is None else {"global": Summary(accuracy, 1 - accuracy, 10)},
            spent={"bytes": 100.0 * number, "seconds": 2.0 * number},
        )
        for number, accuracy in enumerate(told, 1)
    ]
    ending = Ending("completed", "")
    return History(Path(), ServerConfig(), "", {}, (), tuple(rounds), (), (), ending)


def test_a_target_is_reached_at_the_first_evaluation_that_is_as_good() -> None:
    found = outcome(history([0.5, None, 0.8, 0.7, 0.9]), "global", (0.8, 0.85, 0.95), rounds=5)
    assert found.reached[0.8] == {
        "rounds": 3.0,
        "iterations": None,
        "simulated_s": None,
        "bytes": 300.0,
        "seconds": 6.0,
        "flops": None,
        "all_flops": None,
        "energy_j": None,
    }
    assert (found.reached[0.85] or {})["rounds"] == 5
    assert found.reached[0.95] is None


def test_final_is_the_last_evaluation_and_best_the_highest() -> None:
    found = outcome(history([0.5, 0.9, 0.7, None]), "global", (), rounds=4)
    assert (found.final, found.best, found.total["rounds"]) == (0.7, 0.9, 4)


def test_a_run_without_that_measure_has_no_accuracy() -> None:
    found = outcome(history([0.5]), "local", (0.1,), rounds=1)
    assert (found.final, found.best, found.reached) == (None, None, {0.1: None})


def test_a_closing_round_is_the_final_model_and_no_further_round() -> None:
    found = outcome(history([0.5, 0.6], closing=0.8), "global", (0.8,), rounds=2)
    assert (found.final, found.total["rounds"], found.total["bytes"]) == (0.8, 2, 300)
    assert (found.reached[0.8] or {})["rounds"] == 2


def test_of_a_run_that_went_on_longer_only_the_first_rounds_count() -> None:
    found = outcome(history([0.5, 0.6, 0.7], closing=0.8), "global", (0.7,), rounds=2)
    assert (found.final, found.total["bytes"], found.reached[0.7]) == (0.6, 200, None)


def test_what_was_spent_after_the_last_committed_round_is_the_whole_run_s_too() -> None:
    """A budget has discarded a third round; the report tells the same total."""
    run = history([0.5, 0.6, 0.7])
    cut = replace(run, rounds=run.rounds[:2], others=(replace(run.rounds[2], committed=False),))
    found = outcome(cut, "global", (0.6,), rounds=9)
    assert (found.total["rounds"], found.total["bytes"], found.total["seconds"]) == (2, 300, 6)
    assert (found.reached[0.6] or {})["bytes"] == 200
    assert found.total["bytes"] == cut.total["bytes"]


def test_of_a_run_without_a_committed_round_the_costs_are_known(grid: Grid) -> None:
    run = history([0.5])
    lost = replace(run, rounds=(), others=(replace(run.rounds[0], committed=False),))
    made = [CellResult(cell, outcome(lost, "global", grid.targets, 1)) for cell in grid.cells]
    whole = findings(made, grid).over_seeds()[-1]
    assert "bytes" in whole.columns
    assert findings(made, grid).notes()[0].endswith("no round was committed.")


def test_a_method_whose_models_take_long_to_test_is_named(
    grid: Grid, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = history([0.5, 0.6])
    slow = replace(
        slow, rounds=tuple(replace(r, values={"open_s": 1.0, "evaluate_s": 3.0}) for r in slow.rounds)
    )
    quick = history([0.5, 0.6])
    made = [
        CellResult(cell, outcome(slow if cell.method == "fedprox" else quick, "global", (0.6,), 2))
        for cell in grid.cells
    ]
    tell(findings(made, grid), tmp_path, width=80, full=True)
    shown = capsys.readouterr().out
    assert "75% of the seconds of fedprox went into testing its models" in shown
    assert "of the seconds of fedavg" not in shown


def notes(made: Sequence[CellResult], grid: Grid, out: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the sentences below the tables."""
    tell(findings(made, grid), out, width=80, full=True)
    return capsys.readouterr().out.rpartition("\n\n")[2].splitlines()


def test_a_target_that_no_run_reached_has_a_sentence_and_no_tables(
    grid: Grid, results: list[CellResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = replace(grid, targets=(0.6, 0.95))
    made = [
        replace(r, outcome=outcome(history([0.5, 0.6]), "global", far.targets, 2) if r.outcome else None)
        for r in results
    ]
    assert [b.title for b in findings(made, far).blocks() if "0.95" in b.title] == []
    found = notes(made, far, tmp_path, capsys)
    assert found[:2] == [
        "1 of 4 runs did not reach 0.6: each counts as more (>) than what it had.",
        "No run reached 0.95.",
    ]


@pytest.mark.parametrize(
    ("sources", "sentence"),
    [
        ({"model_j"}, "Energy is a model, not measured: seconds times the watts that clients state."),
        (
            {"model_j", "sensor_j"},
            "Energy is in part a model, not measured: seconds times the watts that clients state.",
        ),
        (set(), "Energy is not known: no client has a sensor that can be read, and none was told its watts."),
    ],
)
def test_it_is_said_where_energy_comes_from(
    sources: set[str],
    sentence: str,
    grid: Grid,
    results: list[CellResult],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = history([0.6])
    round = replace(run.rounds[0], costs=dict.fromkeys(sources, 1.0))
    made = [replace(results[0], history=replace(run, rounds=(round,))), *results[1:]]
    assert sentence in notes(made, grid, tmp_path, capsys)


def test_a_run_whose_last_model_has_diverged_is_named_and_one_whose_tests_failed(
    grid: Grid, results: list[CellResult]
) -> None:
    run = history([0.6, 0.1])
    last = replace(run.rounds[1], evaluations={"global": Summary(0.1, math.inf, 10)})
    lost = replace(run, rounds=(run.rounds[0], last))
    untested = replace(run, events=(Event(1, 0, "evaluation_failed", {"round": 1, "reason": "no memory"}),))
    made = [
        replace(results[0], outcome=outcome(lost, "global", (0.6,), 2), history=lost),
        replace(results[1], history=untested),
        *results[2:],
    ]
    urgent = findings(made, grid).urgent()
    names = [result.cell.name for result in made]
    assert f"Diverged, their loss or score is not finite any more: {names[0]}." in urgent
    assert f"Tests of models failed in {names[1]} (1 test)." in urgent
    assert not any("Diverged" in note for note in findings(results, grid).notes())


def test_it_is_said_whose_operations_are_not_all_in_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = make_grid(tomllib.loads(GRID.replace("fedprox", "pfedmo")), "g.toml")
    made = [CellResult(cell, outcome(history([0.6]), "global", (0.6,), 1)) for cell in grid.cells]
    assert "FLOPs are the clients': pfedmo trains on the server, too, which is not in them." in notes(
        made, grid, tmp_path, capsys
    )


def test_every_life_of_a_server_lasts_to_its_last_word() -> None:
    times = [("run_started", 10), ("round_committed", 13), ("run_started", 100), ("run_ended", 104)]
    assert lives([Event(n, at, name, {}) for n, (name, at) in enumerate(times)]) == [(10, 13), (100, 104)]
    assert lives([]) == []


def test_cells_that_ran_at_the_same_time_are_noticed() -> None:
    assert not overlap([(100, 104), (10, 13), (13, 20)])
    assert overlap([(100, 104), (10, 13), (12, 20)])


GRID = """
baseline = "fedavg"
target = [0.6]
[grid]
method = ["fedavg", "fedprox"]
seed = [0, 1]
"""


@pytest.fixture
def grid() -> Grid:
    return make_grid(tomllib.loads(GRID), "g.toml")


@pytest.fixture
def results(grid: Grid) -> list[CellResult]:
    """Final accuracies 0.7 and 0.8 of fedavg, 0.6 and a failure of fedprox; in the order of the cells."""
    runs = {"fedavg seed=0": [0.5, 0.7], "fedprox seed=0": [0.5, 0.6], "fedavg seed=1": [0.6, 0.8]}
    return [
        CellResult(cell, outcome(history(runs[cell.name]), "global", (0.6,), 2), run_dir="d")
        if cell.name in runs
        else CellResult(cell, None, "it broke", "d")
        for cell in grid.cells
    ]


def test_groups_are_averaged_over_seeds_and_paired_with_the_baseline(
    grid: Grid, results: list[CellResult]
) -> None:
    fedavg, fedprox = groups(results, grid)
    final = (None, "final_accuracy")
    assert fedavg.spreads[final].mean == pytest.approx(0.75)
    assert fedavg.differences == {}
    assert (fedprox.spreads[final].count, fedprox.cells) == (1, 2)
    assert fedprox.differences[final].mean == pytest.approx(-0.1)
    assert (fedprox.differences[final].error, fedprox.differences[final].count) == (None, 1)
    assert fedprox.differences[0.6, "rounds"].mean == 0


def test_a_baseline_is_compared_with_within_the_same_other_options() -> None:
    text = GRID.replace("seed = [0, 1]", "lr = [0.1, 0.2]")
    grid = make_grid(tomllib.loads(text), "g.toml")
    finals = {"fedavg lr=0.1": 0.5, "fedavg lr=0.2": 0.6, "fedprox lr=0.1": 0.7, "fedprox lr=0.2": 0.9}
    made = [CellResult(c, outcome(history([finals[c.name]]), "global", (), 1)) for c in grid.cells]
    found = {group.name: group.differences for group in groups(made, grid)}
    final = (None, "final_accuracy")
    assert found["fedprox lr=0.1"][final].mean == pytest.approx(0.2)
    assert found["fedprox lr=0.2"][final].mean == pytest.approx(0.3)
    assert found["fedavg lr=0.1"] == {}


def test_the_tables_for_people(grid: Grid, results: list[CellResult]) -> None:
    accuracy, costs, *shown = findings(results, grid).blocks()
    assert accuracy.title == "Every run: accuracy"
    assert accuracy.rows[2] == ("fedavg seed=1", "0.8000", "0.8000")
    assert (costs.title, costs.columns) == ("Every run: to accuracy 0.6", ("", "rounds", "bytes", "seconds"))
    assert costs.rows[2:] == (
        ("fedavg seed=1", "1.0", "100 B", "2.00 s"),
        ("fedprox seed=1", "-", "-", "-"),
    )
    assert [block.title.partition(",")[0] for block in shown] == [
        "Accuracy",
        "Accuracy",
        "To accuracy 0.6",
        "To accuracy 0.6",
        "The whole run",
    ]
    assert shown[0].rows == (
        ("fedavg", "0.7500 ± 0.0707", "0.7500 ± 0.0707", "2/2"),
        ("fedprox", "0.6000", "0.6000", "1/2"),
    )
    assert shown[2].rows[0] == ("fedavg", "1.5 [1.0, 2.0]", "150 [100, 200] B", "3.00 [2.00, 4.00] s", "2/2")
    assert shown[3].rows == (("fedprox", "1.00", "1.00", "1.00", "1"),)


def test_without_seeds_a_run_is_in_one_table_alone(grid: Grid, results: list[CellResult]) -> None:
    alone = make_grid(tomllib.loads(GRID.replace("seed = [0, 1]", "seed = [0]")), "g.toml")
    shown = findings(results[:2], alone).blocks()
    assert shown[0].title == "Accuracy"


def group_lines(made: Sequence[CellResult], grid: Grid, axis: Against) -> list[Curve]:
    found = groups(made, grid)
    return bands.evaluations(made, found, bands.strokes(found, grid), "accuracy", axis)


def test_a_method_has_the_same_colour_in_every_setting_and_a_setting_the_same_dash() -> None:
    made = make_grid(
        tomllib.loads(GRID + 'partition = ["iid", "natural"]\n'.replace("natural", "classes:2")), "g"
    )
    found = groups([CellResult(cell, None) for cell in made.cells], made)
    looks = {group.name: look for group, look in zip(found, bands.strokes(found, made), strict=True)}
    assert len({look.colour for name, look in looks.items() if name.startswith("fedavg")}) == 1
    assert len({look.colour for look in looks.values()}) == 2
    assert len({str(look.dash) for name, look in looks.items() if "classes" in name}) == 1
    assert len({str(look.dash) for look in looks.values()}) == 2


def test_more_methods_than_colours_are_told_apart_by_dashes() -> None:
    seeds = {f"method.m{n}": n for n in range(len(theme.HUES) + 1)}
    names = [name.removeprefix("method.") for name in seeds]
    text = f"[grid]\nmethod = {names}\n".replace("'", '"') + "".join(
        f'[{name}]\nname = "fedavg"\nlr = {n + 1}.0\n' for name, n in seeds.items()
    )
    made = make_grid(tomllib.loads(text), "g")
    looks = bands.strokes(groups([CellResult(cell, None) for cell in made.cells], made), made)
    assert len({(look.colour, look.pattern) for look in looks}) == len(looks)


def test_a_line_of_the_picture_is_the_mean_of_the_rounds_that_all_seeds_have(grid: Grid) -> None:
    runs: list[list[float | None]] = [[0.5, 0.7, 0.9], [0.5, 0.6], [0.6, 0.8], [0.5, None]]
    made = [
        CellResult(cell, outcome(history(run), "global", (), 3))
        for cell, run in zip(grid.cells, runs, strict=True)
    ]
    rounds, _, sent, _, _ = (group_lines(made, grid, axis) for axis in AXES)
    assert [(line.label, line.x, line.y) for line in rounds] == [
        ("fedavg", [1, 2], pytest.approx([0.55, 0.75])),
        ("fedprox", [1], [0.5]),
    ]
    assert sent[0].x == [100, 200]
    assert sent[0].spread == pytest.approx([0.05 * 2**0.5] * 2)


def test_the_picture_follows_light_and_dark(grid: Grid, results: list[CellResult], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="edgeflock[lab] is not installed")
    assert draw(findings(results, grid), tmp_path / "comparison") == ""
    assert "prefers-color-scheme: dark" in (tmp_path / "comparison.svg").read_text("utf-8")
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_a_closing_round_has_no_point_in_the_picture(grid: Grid) -> None:
    made = [CellResult(grid.cells[0], outcome(history([0.5, 0.6], closing=0.8), "global", (), 2))]
    (line,) = group_lines(made, grid, AXES[0])
    assert (line.x, line.y) == ([1, 2], [0.5, 0.6])


def test_there_is_no_picture_of_nothing(grid: Grid, tmp_path: Path) -> None:
    failed = [CellResult(cell, None, "it broke") for cell in grid.cells]
    assert draw(findings(failed, grid), tmp_path / "p") == "no picture: no model was evaluated"
    assert list(tmp_path.iterdir()) == []


def test_quantities_have_a_unit_that_fits() -> None:
    assert quantity("bytes", Spread(2_345_678, 100_000, 3)) == "2.35 ± 0.10 MB"
    assert quantity("bytes", Spread(23_456_789, 100_000, 3)) == "23.5 ± 0.1 MB"
    assert quantity("flops", Spread(1.02e12, 4e10, 2)) == "1.02 ± 0.04 T"
    assert quantity("flops", Spread(3.2e12, None, 1)) == "3.20 T"
    assert quantity("energy_j", Spread(950, 4, 2)) == "950 ± 4 J"
    assert quantity("energy_j", Spread(0.28, None, 1)) == "0.28 J"
    assert quantity("seconds", Spread(12.345, None, 1)) == "12.3 s"
    assert quantity("seconds", None) == "-"
    assert quantity("seconds", Spread(0.0031, 0.0004, 2)) == "0.0031 ± 0.0004 s"
    assert quantity("energy_j", Spread(0.0021, None, 1)) == "0.0021 J"
    assert interval("rounds", Difference(-0.04, 1, -0.5, 0.0, 2)) == "-0.04 [-0.5, +0.0]"
    assert interval("final_accuracy", Difference(-1e-17, None, None, None, 1)) == "+0.0000"
    assert interval("bytes", Difference(-1500, 1, -2500, 500, 2)) == "-1.50 [-2.50, +0.50] kB"
    assert interval("final_accuracy", Difference(0.01, None, None, None, 1)) == "+0.0100"


AWKWARD = Block("100 % & more_", ("", "a|b"), (("x#1", "0.5 ± 0.1"),))


def test_text_is_aligned() -> None:
    assert tables.as_text(AWKWARD) == "100 % & more_\n             a|b\n  x#1  0.5 ± 0.1"


def test_markdown_keeps_its_columns() -> None:
    assert tables.as_markdown(AWKWARD).splitlines()[2:] == [
        "|  | a\\|b |",
        "| --- | ---: |",
        "| x#1 | 0.5 ± 0.1 |",
    ]


def test_latex_is_escaped() -> None:
    text = tables.as_latex(AWKWARD)
    assert r"\caption{100 \% \& more\_}" in text
    assert r"x\#1 & 0.5 $\pm$ 0.1 \\" in text
    assert text.count("{") == text.count("}")


def test_latex_compiles(tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    wide = Block(
        "Wide", ("", *(f"c{number}" for number in range(9))), (("a|b<c>", *["+1.0 [-3.5, +2.2] MB"] * 9),)
    )
    body = tables.as_latex(AWKWARD) + tables.as_latex(wide)
    head = "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}\n"
    (tmp_path / "t.tex").write_text(head + body + "\\end{document}\n", "utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=50)
    if "File `booktabs.sty' not found" in done.stdout:
        pytest.skip("LaTeX has no booktabs")
    assert (done.returncode, "Overfull" in done.stdout) == (0, False), done.stdout


def test_the_csv_says_how_every_cell_ended(grid: Grid, results: list[CellResult], tmp_path: Path) -> None:
    tables.write_csv(tmp_path / "cells.csv", cell_records(results, grid))
    rows = list(csv.DictReader((tmp_path / "cells.csv").read_text("utf-8").splitlines()))
    assert [(row["method"], row["seed"], row["final_accuracy"], row["failure"]) for row in rows] == [
        ("fedavg", "0", "0.7", ""),
        ("fedprox", "0", "0.6", ""),
        ("fedavg", "1", "0.8", ""),
        ("fedprox", "1", "", "it broke"),
    ]
    assert [row["bytes_to_0.6"] for row in rows] == ["200.0", "200.0", "100.0", ""]


def test_parquet_holds_what_the_csv_holds(grid: Grid, results: list[CellResult], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="edgeflock[parquet] is not installed")
    found = groups(results, grid)
    for records in (
        cell_records(results, grid),
        summary_records(found, grid),
        curve_records(results, grid),
    ):
        assert tables.write_parquet(tmp_path / "t.parquet", records)
        assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == list(records)


# ----------------------------------------------------------------------------- how far they compare


def compared(text: str, runs: Mapping[str, History], measure: str = "global") -> list[str]:
    """Return the notes of a grid whose methods ended in these runs."""
    asked = make_grid({**tomllib.loads(text), "measure": measure}, "g.toml")
    made = [
        CellResult(cell, outcome(run, measure, (), cell.config.rounds), history=run, measure=measure)
        for cell in asked.cells
        for run in [runs[cell.method]]
    ]
    return findings(made, asked).notes()


def test_what_ended_a_run_before_its_last_round_is_said() -> None:
    text = "[grid]\nmethod = ['fedavg', 'fedadm']\nseed = [0, 1]\n[run]\nrounds = 9\nlr = 0.1\nbatch_size = 8"
    cut = replace(
        history([0.5, 0.6]), ending=Ending("completed", "the budget of time is used up: 60.2 s of 60 s")
    )
    said = compared(text, {"fedavg": history([0.5] * 9), "fedadm": cut})
    words = "fedadm ended before its last round in 2 runs, after 2 rounds: the budget of time is used up."
    assert words in said
    assert not any(note.startswith("fedavg ended") for note in said)


def test_what_differs_by_the_methods_own_defaults_is_said() -> None:
    text = "[grid]\nmethod = ['fedavg', 'fedprox', 'fednag']\n[run]\nrounds = 1\n"
    methods: list[str] = ["fedavg", "fedprox", "fednag"]
    runs = dict.fromkeys(methods, history([0.5]))
    said = (
        "By the methods' own defaults, for the grid does not say: lr 0.05 (fedavg, fedprox) and 0.01 "
        "(fednag); batch_size 32 (fedavg, fedprox) and 64 (fednag)."
    )
    assert said in compared(text, runs)
    told = compared(text + "lr = 0.1\nbatch_size = 8", runs)
    assert not any("own defaults" in note for note in told)


def test_a_run_of_several_lives_is_named() -> None:
    lives = tuple(Event(number, float(number), "run_started", {}) for number in (1, 2, 3))
    cut = replace(history([0.5]), events=lives)
    said = compared("[grid]\nseed = [0]\n[run]\nrounds = 1", {"fedavg": cut})
    assert "Cut and gone on with: fedavg seed=0 (3 lives of its server)." in said


def test_of_how_many_models_an_accuracy_is_the_mean_is_said() -> None:
    def tested(*members: int) -> History:
        run = history([0.5] * len(members))
        each = [{"client_local": Summary(0.5, 0.5, 10, members=count)} for count in members]
        rounds = (replace(round, evaluations=made) for round, made in zip(run.rounds, each, strict=True))
        return replace(run, rounds=tuple(rounds))

    text = "[grid]\nmethod = ['fedavg', 'fedprox', 'fedtr']\n[run]\nrounds = 2"
    runs = {"fedavg": tested(2, 2), "fedprox": tested(2, 2), "fedtr": tested(3, 8)}
    said = (
        "Final accuracies of 'client_local' are means over 2 models (fedavg, fedprox), 8 models (fedtr); "
        "those of earlier rounds, the best one too, over 3 (fedtr)."
    )
    assert said in compared(text, runs, "client_local")


def test_a_final_accuracy_of_an_older_round_is_named() -> None:
    said = compared("[grid]\nseed = [0]\n[run]\nrounds = 3", {"fedavg": history([0.5, 0.6, None])})
    assert "Final accuracies of an older round: fedavg seed=0 (round 2 of 3)." in said


def test_what_was_said_at_the_starts_stands_beside_the_table_once_with_the_clients_tests() -> None:
    run = history([0.5])
    run = replace(
        run,
        events=(
            *(Event(1, 0.0, "caution", {"reason": "fedtr: its model falls"}),) * 2,
            Event(2, 0.0, "classes_held", {"held": 7, "classes": 10, "reason": "..."}),
        ),
        rounds=(replace(run.rounds[0], spent={"seconds": 2.0, "exam_s": 90.0}),),
    )
    said = compared("[grid]\nseed = [0, 1]\n[run]\nrounds = 1", {"fedavg": run})
    assert said.count("Caution, fedtr: its model falls.") == 1
    assert said.count("With iid 7 of 10 classes were held by somebody.") == 1
    assert "Clients tested their own models, in no cost: 1.50 min (fedavg) a run." in said
