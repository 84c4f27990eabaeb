"""Pictures that a grid asks for: what may be asked, and that each kind is drawn, of made results."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeflock.common.errors import UsageError
from edgeflock.lab.compare import bands, figures
from edgeflock.lab.compare.figure_spec import FigureSpec, read_figures, table_of
from edgeflock.lab.findings.findings import Findings, findings
from edgeflock.lab.findings.outcome import outcome
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.findings.smoothing import ema
from edgeflock.lab.grid.grid import make_grid
from edgeflock.lab.plots import theme
from edgeflock.lab.plots.curves import EVERY
from edgeflock.lab.plots.sweep import number
from unit.test_comparison import history

AXES = ("method", "seed", "lr")
GRID = """
target = 0.7
[grid]
method = ["fedavg", "fedprox"]
seed = [0, 1]
"fedprox.mu" = [0.1, 1]
"""


@pytest.fixture
def found() -> Findings:
    """Return runs that gain by seed; fedprox with mu 1 misses the target."""
    grid = make_grid(tomllib.loads(GRID), "g.toml")
    made = []
    for cell in grid.cells:
        last = 0.6 if cell.labels.get("fedprox.mu") == "1" else 0.8 + 0.01 * int(cell.labels["seed"])
        run = history([0.4, 0.5, last])
        rounds = tuple(replace(round, values={"tau": 1.0 * round.number}) for round in run.rounds)
        run = replace(run, rounds=rounds)
        made.append(CellResult(cell, outcome(run, "global", grid.targets, 3), history=run))
    return findings(made, grid)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"kind": "pie"}, "kind in"),
        ({}, "kind in"),
        ({"kind": "boxes", "colour": "red"}, "unknown key"),
        ({"kind": "boxes", "y": "speed"}, "y in"),
        ({"kind": "times", "y": "final_accuracy"}, "y in"),
        ({"kind": "lines", "y": "a b"}, "y in"),
        ({"kind": "lines", "x": ["miles"]}, "x in"),
        ({"kind": "lines", "x": 3}, "x in"),
        ({"kind": "boxes", "x": 3}, "x in"),
        ({"kind": "swept"}, "over in"),
        ({"kind": "swept", "over": "momentum"}, "over in"),
        ({"kind": "lines", "smooth": 1}, "smooth in"),
        ({"kind": "times", "target": "high"}, "target in"),
        ({"kind": "boxes", "file": "../x"}, "file in"),
        ({"kind": "boxes", "model": 3}, "model in"),
    ],
)
def test_what_no_picture_can_be_is_refused_with_the_key(table: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        read_figures([table], AXES, "g.toml")
    assert "[[figure]] 1 of g.toml" in str(refused.value)


def test_two_pictures_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match=r"two figures of g\.toml are called boxes-last_10_accuracy"):
        read_figures([{"kind": "boxes"}, {"kind": "boxes"}], AXES, "g.toml")


def test_a_line_of_words_is_a_table() -> None:
    (spec,) = read_figures([table_of("lines x=iterations,bytes y=loss smooth=0.5")], AXES, "g.toml")
    assert (spec.x, spec.y, spec.smooth, spec.stem) == (("iterations", "bytes"), "loss", 0.5, "lines-loss")
    with pytest.raises(UsageError, match="KEY=VALUE"):
        table_of("boxes last")


@pytest.mark.parametrize(
    "words",
    [
        "lines y=tau x=rounds,bytes",
        "swept over=fedprox.mu",
        "swept over=fedprox.mu y=rounds",
        "boxes",
        "times",
    ],
)
def test_every_kind_is_drawn(words: str, found: Findings, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="edgeflock[lab] is not installed")
    asked = read_figures([table_of(words)], found.grid.axes, "g.toml")
    assert figures.write(found, asked, tmp_path / "f") == []
    assert "prefers-color-scheme: dark" in (tmp_path / "f" / f"{asked[0].stem}.svg").read_text("utf-8")
    assert (tmp_path / "f" / f"{asked[0].stem}.png").read_bytes().startswith(b"\x89PNG")


def test_a_box_says_how_many_seeds_missed_the_target(found: Findings) -> None:
    pytest.importorskip("matplotlib", reason="edgeflock[lab] is not installed")
    results = [
        replace(result, outcome=replace(result.outcome, reached={0.7: None}))
        if result.outcome and result.cell.labels["seed"] == "1"
        else result
        for result in found.results
    ]
    asked = FigureSpec("boxes", "rounds")
    with theme.styled():
        made = figures.make(findings(results, found.grid), asked)
    assert made is not None
    (axes,) = made.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "fedavg, 1 of 2 missed it",
        "fedprox mu=0.1, 1 of 2 missed it",
        "fedprox mu=1, 2 of 2 missed it",
    ]
    assert "in no box" in figures.caption(asked)


def test_what_nobody_knows_is_said_and_not_drawn(found: Findings, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="edgeflock[lab] is not installed")
    asked = [FigureSpec("lines", "B_k"), FigureSpec("boxes", "final_accuracy", model="personal")]
    assert figures.write(found, asked, tmp_path) == [
        "lines-B_k: no picture: no method says anything of 'B_k'",
        "boxes-final_accuracy-personal: no picture: no run knows its final_accuracy",
    ]
    assert list(tmp_path.iterdir()) == []


def test_an_average_of_the_past_begins_where_the_curve_does() -> None:
    assert ema([1.0, 3.0], 0.5) == pytest.approx([1.0, (0.5 * 3 + 0.25 * 1) / 0.75])
    assert ema([2.0, 2.0, 2.0], 0.9) == pytest.approx([2.0, 2.0, 2.0])
    assert ema([], 0.5) == []


def test_lines_are_smoothed_by_run_before_they_are_averaged(found: Findings) -> None:
    looks = bands.strokes(found.groups, found.grid)
    line, *_ = bands.evaluations(found.results, found.groups, looks, "accuracy", EVERY[0], smooth=0.5)
    ends = [ema([0.4, 0.5, last], 0.5)[-1] for last in (0.8, 0.81)]
    assert line.y[-1] == pytest.approx(sum(ends) / 2)
    assert line.spread[-1] == pytest.approx(abs(ends[1] - ends[0]) / 2**0.5)


@pytest.mark.parametrize(
    ("label", "value"), [("0.4", 0.4), ("dirichlet:0.3", 0.3), ("iid", None), ("inf", None)]
)
def test_values_of_an_axis_stand_by_their_size(label: str, value: float | None) -> None:
    assert number(label) == value


def test_what_methods_say_of_their_rounds_is_a_table(found: Findings) -> None:
    table = found.over_seeds()[-1]
    assert (table.title, table.columns) == (
        "What the methods say, mean over the rounds",
        ("", "tau", "runs"),
    )
    assert table.rows[0] == ("fedavg", "2.000 ± 0.000", "2/2")
