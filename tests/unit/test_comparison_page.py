"""The page of a comparison: verdict and tables on top, a colour for a method, what is missing is said."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeflock.common.errors import MissingData
from edgeflock.lab.grid import grid_toml
from edgeflock.lab.grid.grid import make_grid, run_dir
from edgeflock.lab.history import read
from edgeflock.lab.plots import theme
from edgeflock.lab.report.command import report
from edgeflock.lab.report.headline import proper_name, title
from edgeflock.lab.report.page import warning
from edgeflock.server.journal.events import write_event
from support.captions import Captions
from support.told_run import told_run, writing

GRID = """
baseline = "fedavg"
target = [0.3, 0.95]
[grid]
method = ["fedavg", "fedprox", "fedtrip"]
seed = [0, 1]
[run]
clients = 2
rounds = 4
[[figure]]
kind = "times"
"""


def comparison(out: Path, unfinished: str = "", never: str = "") -> Path:
    """Write a comparison whose runs all do the same; one is not over, one has not begun."""
    grid = make_grid(tomllib.loads(GRID), "g.toml")
    out.mkdir()
    grid_toml.keep(out, tomllib.loads(GRID), grid)
    for cell in grid.cells:
        if cell.name != never:
            told_run(
                run_dir(out, cell),
                rounds=4,
                ended=cell.name != unfinished,
                method=cell.config.method,
                seed=cell.config.seed,
            )
    return out


def page(out: Path) -> str:
    pytest.importorskip("matplotlib", reason="edgeflock[lab] is not installed")
    pytest.importorskip("jinja2", reason="edgeflock[lab] is not installed")
    done = CliRunner().invoke(report, [str(out)], catch_exceptions=False)
    assert done.output.splitlines()[0] == f"{out}/report/index.html"
    assert done.output.splitlines()[2].startswith("next: open file:///")
    return (out / "report" / "index.html").read_text("utf-8")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeflock.lab.plots.album.Album", Captions)


@pytest.mark.usefixtures("undrawn")
def test_the_report_of_a_comparison_is_the_comparison(tmp_path: Path) -> None:
    text = page(comparison(tmp_path / "c"))
    told = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", text))
    means = "fedtrip 0.4000, fedprox 0.4000, fedavg 0.4000"
    assert f"<h1>digits, 2 clients, iid, 2 seeds: {means}</h1>" in text
    assert "Verdict. fedavg, fedprox and fedtrip are alike, as far as 2 seeds tell" in told
    assert "every run reached 0.3; no run reached 0.95." in told
    heads = re.findall("<h[23]>(.*?)</h[23]>", text)
    assert heads[:4] == [
        "Accuracy",
        "Accuracy, minus fedavg: mean [95% t interval] over pairs of the same seed",
        "To accuracy 0.3, median [interval]",
        "To accuracy 0.3, over fedavg: median ratio [interval] over pairs of the same seed",
    ]
    levels = list(map(int, re.findall(r"<h(\d)", text)))
    assert [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1] == []  # none is skipped
    assert "Pictures that were asked for" in heads
    assert heads.index("Accuracy and loss") < heads.index("Every run: accuracy")
    assert "fedprox lies on fedavg. fedtrip lies on fedavg." in told
    assert "fl-lab compare grid.toml --out" in told


def test_a_method_has_its_colour_in_legends_tables_and_plots(tmp_path: Path) -> None:
    out = comparison(tmp_path / "c")
    text = page(out)
    swatches = set(re.findall(r'style="stroke: (#\w+); stroke-width: 3"/><path d="([^"]+)"', text))
    assert swatches == {(look.colour, look.mark) for look in (theme.marked(n, 0) for n in range(3))}
    for stem in ("accuracy-rounds", "loss-bytes", "cost-seconds", "method-loss"):
        drawn = (out / "report" / "plots" / f"{stem}.svg").read_text("utf-8").partition("</style>")[2]
        assert all(theme.HUES[number][0] in drawn for number in range(3)), stem


@pytest.mark.usefixtures("undrawn")
def test_runs_without_a_result_are_named_on_the_page(tmp_path: Path) -> None:
    text = page(comparison(tmp_path / "c", unfinished="fedprox seed=1", never="fedtrip seed=0"))
    assert "fedprox seed=1 has no result: its run is not over: 4 of 4 rounds are committed." in text
    assert "fedtrip seed=0 has no result: its run has not begun." in text
    assert "without a result: 1 of 2 of fedprox and 1 of 2 of fedtrip" in text
    assert "4 of 6 runs finished" in text


@pytest.mark.usefixtures("undrawn")
def test_runs_that_the_grid_does_not_ask_for_are_named_and_left_out(tmp_path: Path) -> None:
    out = comparison(tmp_path / "c")
    told_run(out / "cells" / "moon-0123456789ab", method="moon")
    text = page(out)
    assert "Not on this page: moon-0123456789ab, which the grid does not ask for" in text
    assert "6 runs." in text


def test_a_comparison_of_which_no_run_has_begun_says_so(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    grid_toml.keep(tmp_path, tomllib.loads(GRID), make_grid(tomllib.loads(GRID), "g.toml"))
    with pytest.raises(MissingData, match=r"is a comparison of which no run has begun$"):
        page(tmp_path)


# ---------------------------------------------------------------------------------------- titles of runs


def test_a_title_names_method_data_clients_and_result(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "a", rounds=4, method="fedtrip", partition="dirichlet:0.5")
    assert title(read(run_dir)) == "FedTrip on digits, 2 clients, dirichlet:0.5: 0.4000 after 4 rounds"


def test_a_title_of_a_run_that_is_not_over_says_so(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "a", rounds=1, names=("a",), ended=False)
    assert title(read(run_dir)) == "FedAvg on digits, 1 client, iid: 0.1000 after 1 of 1 round, not finished"


def test_methods_are_called_as_their_papers_write_them() -> None:
    names = [proper_name(name) for name in ("fedavg", "scaffold", "moon", "pfedmo", "mimelite")]
    assert names == ["FedAvg", "SCAFFOLD", "MOON", "pFedMo", "MimeLite"]


def test_a_last_model_far_below_the_best_one_is_warned_of(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run", rounds=5)
    assert warning(read(run_dir)) == ""
    with writing(run_dir) as journal:
        journal.execute("UPDATE evaluations SET value = 0.1 WHERE round = 5")
    assert warning(read(run_dir)) == (
        "the last model has accuracy 0.1000, far below the best one, 0.4000 in round 4; "
        "fl-lab export RUN --which best takes that of round 4."
    )
    with writing(run_dir) as journal:
        write_event(journal, "evaluation_failed", {"round": 3, "reason": "no memory"})
    assert warning(read(run_dir)).endswith("takes that of round 4. 1 test of its models failed.")
