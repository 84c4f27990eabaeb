"""fl-lab report of a real run: what it says is what the run did, and a browser shows it in light and dark."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edgeflock.lab.history import read
from edgeflock.lab.report.exam import examine
from edgeflock.lab.report.labels import distribution
from edgeflock.server.console.summary import model_digest
from support.commands import clean_environ, run

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("matplotlib", reason="edgeflock[lab] is not installed")
pytest.importorskip("jinja2", reason="edgeflock[lab] is not installed")

_RUN = (
    *("--method=pfedmo", "--clients=3", "--rounds=4", "--processes=1", "--partition=dirichlet:0.5"),
    "--budget=energy=5kJ",
)


def lab(*arguments: str, folder: Path) -> str:
    """Run fl-lab in a folder; return what it printed."""
    done = run("fl-lab", *arguments, folder=folder, FL_CLIENT_WATTS="7.5")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with its report."""
    folder = tmp_path_factory.mktemp("report")
    lab("run", "--run-dir=run", *_RUN, folder=folder)
    shown = lab("report", "run", folder=folder)
    assert shown.startswith("run/report/index.html\n")
    return folder / "run"


def page_text(run_dir: Path) -> str:
    return (run_dir / "report" / "index.html").read_text("utf-8")


def test_the_figures_are_those_of_the_journal(run_dir: Path) -> None:
    history, page = read(run_dir), page_text(run_dir)
    last = history.curve()[-1].evaluation
    assert f"<dd>{last.value:.4f}" in page
    assert f"<code>{history.run_id}</code>" in page
    assert model_digest(run_dir) in page
    for client in history.clients:
        row = (
            rf'<th scope="row">{client.name}</th><td>{client.samples:,}</td><td>5</td>'  # the closing one too
        )
        assert re.search(row, page)


def test_the_confusion_matrix_is_that_of_the_final_model(run_dir: Path) -> None:
    history = read(run_dir)
    exam, last = examine(history, None), history.curve()[-1].evaluation
    assert sum(map(sum, exam.table)) == last.samples
    assert exam.accuracy == pytest.approx(last.value, abs=1e-12)
    assert exam.final
    assert 'class="note"' not in page_text(run_dir)


def test_the_labels_that_clients_told_are_those_of_the_partition(run_dir: Path) -> None:
    from edgeflock.common.datasets.kit import registry as datasets
    from edgeflock.lab.reference.partition_rows import describe

    history = read(run_dir)
    config = history.config
    assert config.public_from_shards == 0.05
    expected = describe(
        datasets.load("digits", None), partition="dirichlet:0.5", clients=3, seed=0, public_from_shards=0.05
    )
    assert distribution(history, None) == tuple(row.classes for row in expected.rows)


def test_every_plot_lies_there_as_png_and_svg_and_has_content(run_dir: Path) -> None:
    plots = run_dir / "report" / "plots"
    stems = {path.stem for path in plots.iterdir()}
    told = {
        "method-loss",
        "method-score",
        "method-pull",
        "run-01-scores",
        "run-01-confusion",
        "run-01-labels",
    }
    costs = {"run-01-rounds-server-seconds", "run-01-clients-bytes", "run-01-clients-client_local"}
    assert {"accuracy-rounds", "loss-seconds", *told, *costs} <= stems
    for stem in stems:
        assert (plots / f"{stem}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert len(ET.parse(plots / f"{stem}.svg").findall(".//{*}path")) > 10


def test_the_command_on_the_page_repeats_the_run(run_dir: Path, tmp_path: Path) -> None:
    """Nothing else is needed to get the same bits, and joules of the same clients."""
    import html

    found = re.search(r"<pre>(FL_CLIENT.*? fl-lab run .*?)</pre>", page_text(run_dir), re.DOTALL)
    assert found is not None
    command = html.unescape(found[1]) + " --run-dir=again"
    shown = clean_environ()
    path = f"{Path(sys.executable).parent}{os.pathsep}{shown.get('PATH', '')}"
    subprocess.run(
        ["bash", "-c", command], env={**shown, "PATH": path}, cwd=tmp_path, check=True, timeout=100
    )
    again, before = read(tmp_path / "again"), read(run_dir)
    assert model_digest(tmp_path / "again") == model_digest(run_dir)
    assert replace(again.config, run_dir=None) == replace(before.config, run_dir=None)
    assert [client.device for client in again.clients] == [client.device for client in before.clients]
    assert all(client.device["python"] == platform.python_version() for client in again.clients)
    assert all(client.costs["energy_j"] > 0 for client in again.clients)


# ------------------------------------------------------------------------------------- in a browser

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
BRIGHTNESS = """([selector, property]) => {
  const parts = getComputedStyle(document.querySelector(selector))[property].match(/\\d+/g).map(Number)
  return (parts[0] + parts[1] + parts[2]) / 3
}"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium is installed here")
def test_a_browser_shows_it_light_and_dark_and_as_narrow_as_a_phone(run_dir: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="edgeflock[dev] is not installed")
    asked: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        try:
            page = browser.new_page(viewport={"width": 360, "height": 800})
            page.on("request", lambda request: asked.append(request.url))
            page.goto((run_dir / "report" / "index.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            _check_theme(page, "light", text="<", paper=">")
            _check_theme(page, "dark", text=">", paper="<")
        finally:
            browser.close()
    assert len(asked) == 1, asked


def _check_theme(page: Page, scheme: str, *, text: str, paper: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    holds = {"<": lambda value: value < 110, ">": lambda value: value > 145}
    assert holds[paper](page.evaluate(BRIGHTNESS, ["body", "backgroundColor"]))
    assert holds[text](page.evaluate(BRIGHTNESS, ["h1", "color"]))
    assert holds[paper](page.evaluate(BRIGHTNESS, ["figure svg #p1-patch_1 path", "fill"]))
    assert holds[text](page.evaluate(BRIGHTNESS, ["figure svg #p1-text_1 g", "fill"]))
