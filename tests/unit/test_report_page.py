"""A report of runs whose journals were written by hand: names of all kinds, runs without this or that."""

from __future__ import annotations

import html.parser
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from safetensors.torch import save_file

from edgeflock.common.errors import MissingData, UsageError
from edgeflock.lab.history import read
from edgeflock.lab.plots.album import Album
from edgeflock.lab.report.exam import examine
from edgeflock.lab.report.subject import scores, subjects
from edgeflock.server.console.summary import rows
from edgeflock.server.journal.events import write_event
from edgeflock.server.start.build import build_net
from edgeflock.server.start.samples import load_test_set
from support.captions import Captions
from support.told_run import insert, told_run, writing

pytest.importorskip("matplotlib", reason="edgeflock[lab] is not installed")
pytest.importorskip("jinja2", reason="edgeflock[lab] is not installed")

from edgeflock.lab.report.command import report
from edgeflock.lab.report.page import render

HOSTILE = '<script>alert("1")</script>&$x_{$ 長い'


class Reader(html.parser.HTMLParser):
    """Collects tags, what they load, and the text that people see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.levels: list[int] = []  # of headings
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.levels += [int(tag[1])] if re.fullmatch(r"h\d", tag) else []
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(text for text in self.texts if text)


def page_of(folder: Path, *run_dirs: Path, drawn: bool = True) -> Reader:
    album = (Album if drawn else Captions)(folder / "plots")
    album.begin()
    found = subjects([read(run_dir, bundles=True) for run_dir in run_dirs], None)
    return Reader(render(found, album))


@pytest.fixture(scope="module")
def drawn_page(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """The page of a run with all its plots."""
    folder = tmp_path_factory.mktemp("drawn")
    return page_of(folder, told_run(folder / "run"))


def text_of(folder: Path, *run_dirs: Path) -> str:
    return page_of(folder, *run_dirs, drawn=False).text


def test_the_page_tells_what_the_journal_holds(tmp_path: Path) -> None:
    text = text_of(tmp_path, told_run(tmp_path / "run", rounds=8, seed=5, lr=0.25))
    assert "fedavg with 2 clients; mlp on digits, iid; 1 epoch per round" in text
    assert "learning rate 0.25; seed 5." in text
    assert "Completed: all 8 rounds are done." in text
    assert "final accuracy 0.8000" in text
    assert "bytes 30.4 kB 16 kB down, 14.4 kB up" in text
    assert "--seed=5" in text
    assert "[model]  # identity" in text


def test_budgets_and_the_target_stand_on_the_first_screen(tmp_path: Path) -> None:
    limits: dict[str, Any] = {
        "budget": {"bytes": "1MB", "energy": "50kJ"},
        "target": {"accuracy": "0.985"},
    }
    run_dir = told_run(tmp_path / "run", rounds=2, **limits)
    assert "Target: accuracy 0.985, not reached." in text_of(tmp_path / "1", run_dir)
    used = {"bytes": [250_000, 1_000_000], "energy": [0.0, 50_000.0]}
    with writing(run_dir) as journal:
        write_event(journal, "run_ended", {"kind": "completed", "reason": "", "budget": used}, 2.0)
    text = text_of(tmp_path / "2", run_dir)
    assert "Used of the budgets: bytes 250 kB of 1 MB; energy not known of 50 kJ: no client stated" in text
    going = told_run(tmp_path / "going", rounds=2, ended=False, **limits)
    assert "Target: accuracy 0.985, not reached yet." in text_of(tmp_path / "3", going)
    met = told_run(tmp_path / "met", rounds=2, target={"accuracy": "0.15"})
    assert "Target: accuracy 0.15, reached in round 2." in text_of(tmp_path / "4", met)


def test_a_pause_is_told_apart_from_the_time_of_the_rounds(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        insert(journal, "round_costs", {"epoch": 0, "round": 2, "name": "paused_s", "value": 30.0})
    assert "time 45 s of the rounds, 30 s of it paused" in text_of(tmp_path, run_dir)
    assert ("time", "45 s of rounds, 30 s of them paused") in rows(run_dir, [])


def test_names_of_any_kind_are_shown_and_never_run(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / HOSTILE.replace("/", "-"), names=("a<b>", HOSTILE))
    with writing(run_dir) as journal:
        write_event(journal, "client_joined", {"client": "a<b>", "system": HOSTILE}, 2.0)
        insert(journal, "round_costs", {"epoch": 0, "round": 1, "name": HOSTILE, "value": 1.0})
        key = {"epoch": 0, "round": 3, "model": "<i>../own", "value": 0.5, "loss": 1, "samples": 5}
        insert(journal, "evaluations", key)
        insert(journal, "client_scores", {**key, "seat": 0}, {**key, "seat": 1})
    page = page_of(tmp_path / "report", run_dir)
    assert not {"script", "b", "i", "img", "link", "iframe", "object"} & page.tags
    assert HOSTILE in page.texts
    assert "a<b>" in page.texts
    outside = [path for path in tmp_path.rglob("*.svg") if path.parent != tmp_path / "report" / "plots"]
    assert outside == []


def test_a_damaged_file_of_the_lab_costs_the_command_alone(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    (run_dir / "lab.toml").write_text("proc")
    text = text_of(tmp_path / "report", run_dir)
    assert "The command that repeats it: the configuration file" in text
    assert "The whole configuration (run.toml)" in text


def test_the_page_loads_nothing(drawn_page: Reader) -> None:
    loading = [
        (tag, name, value)
        for tag, name, value in drawn_page.attributes
        if name in ("src", "href", "xlink:href", "action", "data", "srcset")
        and not value.startswith(("#", "data:"))
    ]
    assert loading == []
    policies = [value for tag, name, value in drawn_page.attributes if "default-src 'none'" in value]
    assert len(policies) == 1


def test_ids_on_the_page_are_unique_and_references_are_met(drawn_page: Reader) -> None:
    ids = [value for _, name, value in drawn_page.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 100
    used = {value[1:] for _, name, value in drawn_page.attributes if name == "xlink:href"}
    clips = {
        value for _, name, text in drawn_page.attributes for value in re.findall(r"url\(#([^)]+)\)", text)
    }
    assert used | clips <= set(ids)


def test_what_is_not_there_is_said_and_not_left_out(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run", ended=False)
    text = text_of(tmp_path / "report", run_dir)
    assert "Not finished: 3 of 3 rounds are committed." in text
    assert f"Confusion matrix: {run_dir}/rounds/000003/model.safetensors is gone." in text
    samples = "the clients' numbers of samples are not those of the partition"
    assert f"Labels of the clients: {samples}" in text


def test_no_matrix_is_made_of_nothing(tmp_path: Path) -> None:
    """Neither where the server has no test samples, nor where a task has no class for a sample."""
    own: dict[str, Any] = {"dataset": None, "input_shape": "6", "classes": 2}
    without = text_of(tmp_path / "one", told_run(tmp_path / "without", **own))
    assert "Confusion matrix: the server has no test samples" in without
    pixels = text_of(tmp_path / "two", told_run(tmp_path / "pixels", task="regression", **own))
    assert "Confusion matrix: it is made of runs of classification, this one is of regression." in pixels
    assert "Labels of the clients: no sample of a run of regression has a single class." in pixels


def test_a_run_that_goes_on_is_examined_by_the_model_that_it_has_by_now(tmp_path: Path) -> None:
    """Rounds of milliseconds: that of the newest round in the journal is gone when the report looks."""
    run_dir = told_run(tmp_path / "run", ended=False)
    history = read(run_dir)
    folder = run_dir / "rounds" / "000005"
    folder.mkdir(parents=True)
    net = build_net(history.config, load_test_set(history.config))
    save_file(net.state_dict(), folder / "model.safetensors")
    found = examine(history, None)
    assert (found.round, found.final, found.journalled) == (5, False, None)
    assert "Of the model of round 5, " in text_of(tmp_path / "report", run_dir)


def test_no_heading_is_deeper_than_the_one_above_it_allows(tmp_path: Path) -> None:
    one, other = told_run(tmp_path / "one"), told_run(tmp_path / "other")
    with writing(other) as journal:
        journal.execute("DELETE FROM evaluations")
    for number, run_dirs in enumerate([(one,), (other,), (one, other)]):
        levels = page_of(tmp_path / str(number), *run_dirs, drawn=False).levels
        assert levels[0] == 1
        assert [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1] == []


def test_a_run_without_rounds_or_evaluations_has_a_page_too(tmp_path: Path) -> None:
    page = page_of(tmp_path / "report", told_run(tmp_path / "run", rounds=1, ended=False))
    assert "accuracy so far 0.1000" in page.text
    with writing(tmp_path / "run") as journal:
        for table in ("rounds", "round_costs", "outcomes", "costs", "evaluations"):
            journal.execute(f"DELETE FROM {table}")
    page = page_of(tmp_path / "report", tmp_path / "run")
    assert "No evaluation is in the journal." in page.text
    assert "No round is committed." in page.text


def test_the_band_around_a_mean_of_models_is_explained(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    band = "Around a mean of several models: one standard deviation over them."
    assert band not in text_of(tmp_path / "1", run_dir)
    several = {"epoch": 0, "model": "client_local", "members": 2, "deviation": 0.1, "samples": 50}
    with writing(run_dir) as journal:
        rows = ({**several, "round": round, "value": 0.5, "loss": 1.0} for round in (1, 2, 3))
        insert(journal, "evaluations", *rows)
    assert text_of(tmp_path / "2", run_dir).count(band) == 3  # against rounds, bytes and seconds


def test_labels_are_those_that_the_clients_have_told(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        write_event(journal, "client_ready", {"client": "a", "classes": [60, 40]}, 2.0)
        write_event(journal, "client_ready", {"client": "b", "classes": [0, 30, 70]}, 2.0)
    (subject,) = subjects([read(run_dir, bundles=True)], None)
    assert subject.labels.value == ((60, 40, 0), (0, 30, 70))


def test_several_runs_are_laid_over_each_other(tmp_path: Path) -> None:
    run_dirs = [told_run(tmp_path / f"a-rather-long-name-of-run-{seed}", seed=seed) for seed in range(3)]
    page = page_of(tmp_path / "report", *run_dirs)
    assert "3 runs compared" in page.text
    assert [f"seed {seed}" in page.texts for seed in range(3)] == [True] * 3
    names = {path.name for path in (tmp_path / "report" / "plots").iterdir()}
    assert {"accuracy-bytes.svg", "accuracy-bytes.png", "runs-bytes.svg", "run-03-rounds-bytes.png"} <= names


def test_a_comparison_stands_for_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edgeflock.lab.plots.album.Album", Captions)
    grid = Path("compare")
    told_run(grid / "cells" / "fedavg-0123456789ab", seed=10)
    told_run(grid / "cells" / "fedavg-ba9876543210", seed=2)
    (grid / "cells" / "fedavg-refused" / "logs").mkdir(parents=True)  # its server never began
    written = reported(f"{grid}", f"{grid}/cells/fedavg-0123456789ab")  # one of them is named twice
    assert written.output.startswith("report/index.html\n")
    assert reported(f"{grid}").output.startswith(f"{grid}/report/index.html\n")
    text = Reader((grid / "report" / "index.html").read_text("utf-8")).text
    assert re.search("2 runs compared.* fedavg seed 2 .* fedavg seed 10 ", text)


def test_a_comparison_without_runs_says_so(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "a.log").touch()
    with pytest.raises(MissingData, match=r"is a comparison of which no run has begun$"):
        reported(f"{tmp_path}")


def reported(*arguments: str) -> Result:
    """Run fl-lab report."""
    return CliRunner().invoke(report, arguments, catch_exceptions=False)


def test_pfedmos_scores_are_read_from_its_state(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    run_dir = told_run(tmp_path / "run")
    folder = run_dir / "rounds" / "000003"
    folder.mkdir(parents=True)
    told = '{"score 0": 0.25, "score 1": 0.5, "largest 0": 3.0}'
    save_file({}, folder / "state.safetensors", {"scalars": told})
    assert scores(read(run_dir)) == (("a", 0.25), ("b", 0.5))
    (folder / "state.safetensors").write_bytes(b"no such file")
    assert scores(read(run_dir)) == ()


def test_a_second_report_leaves_no_plots_of_the_first(tmp_path: Path) -> None:
    album = Album(tmp_path / "plots")
    album.begin()
    (tmp_path / "plots" / "old.svg").touch()
    album.begin()
    assert list((tmp_path / "plots").iterdir()) == []


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--out '.*file' cannot be written: Not a directory"):
        reported(f"{told_run(tmp_path / 'run')}", f"--out={tmp_path / 'file'}")


def test_a_run_that_diverged_is_named_beside_the_table_of_several(tmp_path: Path) -> None:
    lost, well = told_run(tmp_path / "lost", rounds=4), told_run(tmp_path / "well", rounds=4)
    with writing(lost) as journal:
        journal.execute("UPDATE evaluations SET loss = 9e999 WHERE round = 4")
    beside = text_of(tmp_path, lost, well).partition("What it took")[0]
    assert "lost: the loss of the last model is not finite" in beside
