"""A run opened from Python: its data frames, curve, summary and picture, and what is said where none is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import edgeflock
from edgeflock.common.errors import BadValue, EdgeflockError, MissingData, UnknownName, UsageError
from edgeflock.common.scores import LOSS, Metric, measures_to_text
from edgeflock.lab.notebook.run import Run
from support.told_run import insert, told_run, writing

pandas = pytest.importorskip("pandas", reason="edgeflock[pandas] is not installed")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three rounds of two clients; a fourth was begun."""
    run_dir = told_run(tmp_path_factory.mktemp("runs") / "told")
    with writing(run_dir) as journal:
        insert(journal, "rounds", {"epoch": 0, "round": 4, "cohort": "[0, 1]"})
        insert(journal, "costs", {"epoch": 0, "round": 4, "seat": 0, "bytes_down": 7})
    return edgeflock.open(str(run_dir))


def test_what_was_tested_is_a_row_for_each_model_and_round(run: Run) -> None:
    found = run.evaluations
    assert [*found.columns[:2]] == ["round", "model"]
    assert [*found.accuracy] == pytest.approx([0.1, 0.2, 0.3])
    assert set(found.model) == {"global"}


def test_rounds_say_who_took_part_and_what_the_method_measured(run: Run) -> None:
    found = run.rounds.set_index("round")
    assert [*found.index] == [1, 2, 3]
    assert found.loc[2, ["members", "counted", "bytes", "loss"]].tolist() == [2, 2, 3800, 1.0]


def test_costs_hold_what_was_paid_for_nothing_too(run: Run) -> None:
    found = run.costs.set_index("round")
    assert [*found.stands] == [True, True, True, False]
    assert found.bytes_down.tolist() == [2000, 2000, 2000, 7]
    assert found.loc[1, "server_commit_s"] == 0.5
    assert found.loc[3, "peak_rss_bytes"] == 4000  # the highest of the clients', no sum
    assert "loss" not in found
    assert "server_measured time" not in found


def test_clients_have_their_sums_and_the_ledger_every_cell(run: Run) -> None:
    assert run.clients.set_index("client").loc["b", ["samples", "counted", "train_s"]].tolist() == [100, 3, 6]
    cells = run.ledger
    assert len(cells) == 7
    assert cells.groupby("client").bytes_down.sum().to_dict() == {"a": 3007, "b": 3000}


def test_events_have_a_time_a_name_and_their_fields(run: Run) -> None:
    first = run.events.iloc[0]
    assert (first["name"], first.client, first.fields["cores"]) == ("client_joined", "a", 4)
    assert first["at"] == pandas.Timestamp(1.0, unit="s", tz="UTC")


def test_a_curve_is_a_metric_over_what_it_cost(run: Run) -> None:
    assert run.curve().to_dict("list") == {"round": [1, 2, 3], "accuracy": pytest.approx([0.1, 0.2, 0.3])}
    assert run.curve("loss", over="bytes").iloc[1].tolist() == [2, 7600, 0.5]


def test_a_run_of_another_task_is_told_by_its_own_metrics(tmp_path: Path) -> None:
    """`others` is what is not the figure."""
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        measures = measures_to_text((Metric("mae", higher=False, share=False), Metric("r2"), LOSS))
        insert(journal, "meta", {"name": "measures", "value": measures})
    found = edgeflock.open(run_dir)
    assert [*found.evaluations.columns[2:4]] == ["mae", "loss"]
    assert [*found.curve().columns] == ["round", "mae"]
    assert (found.summary["best_mae"], found.summary["best_round"]) == (pytest.approx(0.1), 1)
    assert repr(found).endswith("3 rounds, mae 0.3000>")
    assert 'aria-label="test mae"' in found.plot()._repr_html_()


def test_a_name_that_is_wrong_is_answered_with_the_nearest_one(run: Run) -> None:
    with pytest.raises(UnknownName, match="did you mean 'accuracy'"):
        run.curve("acuracy")
    with pytest.raises(UnknownName, match="did you mean 'seconds'"):
        run.curve(over="second")
    with pytest.raises(UnknownName, match="did you mean 'global'"):
        run.curve(model="globl")
    with pytest.raises(UnknownName, match="did you mean 'accuracy'"):
        run.plot("accurcy")
    with pytest.raises(UnknownName, match=r"known are accuracy, loss$"):
        run.plot("nothing")
    with pytest.raises(BadValue, match="allowed is pandas or polars"):
        edgeflock.open(run.path, frames="panda")  # type: ignore[arg-type]  # what somebody types


def test_the_summary_and_the_name_say_how_it_stands(run: Run, tmp_path: Path) -> None:
    said = run.summary
    assert (said["state"], said["rounds"], said["accuracy"]) == ("completed", 3, pytest.approx(0.3))
    assert (said["best_accuracy"], said["best_round"]) == (pytest.approx(0.3), 3)
    assert said["bytes"] == 11407  # of the round that was given up, too
    assert repr(run) == f"<{run.path}: completed, 3 rounds, accuracy 0.3000>"
    going_on = edgeflock.open(told_run(tmp_path / "run", rounds=1, ended=False))
    assert repr(going_on).endswith("is going on, 1 round, accuracy 0.1000>")
    assert not going_on.ended
    with pytest.raises(UsageError, match=r'is not over: model\("best"\)'):
        going_on.model()


def test_options_are_those_of_the_run(run: Run) -> None:
    assert {"method": "fedavg", "rounds": 3}.items() <= run.options.items()


def test_a_picture_is_shown_in_a_page_and_saved_as_files(run: Run, tmp_path: Path) -> None:
    page = run.plot()._repr_html_()
    assert page.count("<svg ") == 2
    assert 'aria-label="test accuracy"' in page
    run.plot("loss", beside=run)
    run.plot("loss", over="bytes", beside=[run, str(run.path)]).save(tmp_path / "loss.png")
    run.plot().save(str(tmp_path / "both.svg"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both-1.svg", "both-2.svg", "loss.png"]
    with pytest.raises(BadValue, match=re.escape("allowed is a file that ends with .svg or .png")):
        run.plot().save("plot.pdf")


def test_what_is_no_run_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="is not a run directory"):
        edgeflock.open(tmp_path / "none")
    (tmp_path / "cells" / "fedavg-1").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"is a comparison, allowed is one of its runs, such as .*fedavg-1"):
        edgeflock.open(tmp_path)
    with pytest.raises(BadValue, match="run is 7, allowed is a run directory"):
        edgeflock.open(7)  # type: ignore[arg-type]  # what somebody types
    empty = edgeflock.open(begun_run(tmp_path / "run"))
    assert len(empty.evaluations) == len(empty.curve()) == 0
    assert [*empty.evaluations.columns] == ["round", "model"]
    with pytest.raises(MissingData, match="nothing to draw yet"):
        empty.plot()


def begun_run(run_dir: Path) -> Path:
    """A run before its first round."""
    with writing(told_run(run_dir, rounds=1, ended=False)) as journal:
        for table in ("rounds", "outcomes", "costs", "round_costs", "evaluations"):
            journal.execute(f"DELETE FROM {table} WHERE round > 0")
    return run_dir


def test_frames_are_of_polars_where_that_is_asked_for(run: Run) -> None:
    pytest.importorskip("polars", reason="edgeflock[polars] is not installed")
    found = edgeflock.open(run, frames="polars").evaluations
    assert type(found).__module__.startswith("polars")
    assert found["round"].to_list() == [1, 2, 3]


def test_where_neither_library_is_there_a_sentence_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    assert run.summary["rounds"] == 3
    with pytest.raises(UsageError, match=r"a data frame needs pandas, .* not installed: .*\[pandas\]'"):
        assert run.evaluations is None


# ------------------------------------------------------------------------------------ the package itself


def said(script: str) -> str:
    words = [sys.executable, "-c", script]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_nothing_of_the_lab_is_imported_before_it_is_asked_for() -> None:
    """A device pays for none of it: neither `import edgeflock` nor the whole of fl-client."""
    script = "import sys, edgeflock, {}; print([name for name in sys.modules if name in {}])"
    lab = "('edgeflock.lab', 'pandas', 'polars', 'matplotlib', 'IPython', 'inspect')"
    assert said(script.format("edgeflock.v1", lab)) == "[]"
    lab = "('edgeflock.lab', 'pandas', 'polars', 'matplotlib', 'IPython')"
    assert said(script.format("edgeflock.client.daemon, edgeflock.client.cli", lab)) == "[]"


def test_a_device_without_the_lab_is_told_what_to_install() -> None:
    script = """
import sys, edgeflock
edgeflock.__path__ = [path for path in edgeflock.__path__ if not path.endswith("lab/edgeflock")]
try:
    from edgeflock import simulate
except ImportError as error:
    print(error)
print(hasattr(edgeflock, "nothing"), {"open", "simulate", "__version__"} <= set(dir(edgeflock)))
"""
    sentence, end = said(script).splitlines()
    assert sentence.startswith("edgeflock.simulate needs the lab, which is not installed: ")
    assert "install" in sentence
    assert sentence.endswith("[lab]'")
    assert end == "False True"


def test_errors_are_shown_as_their_sentence_in_a_notebook() -> None:
    assert EdgeflockError("rounds is 0")._render_traceback_() == ["edgeflock: rounds is 0"]
