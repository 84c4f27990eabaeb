"""The examples of tasks: their data and models fit their tasks, and learn; their commands run."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from edgeflock.client.training.lazy import stock
from edgeflock.common.datasets.kit import own
from edgeflock.common.datasets.kit.base import Scaling
from edgeflock.common.models.kit.registry import build_net
from edgeflock.common.payload.package import Kind
from edgeflock.common.plugins import loading
from edgeflock.common.run import CUSTOM, ModelDescription
from edgeflock.common.tasks.kit.marking import Marking, ScoreTally
from edgeflock.methods.kit.local import Local
from edgeflock.methods.kit.values import Plan
from edgeflock.methods.kit.workbench import Workbench

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "tasks"
MODULES = ("sensors", "ink", "verses")


def commands() -> list[list[str]]:
    """Return the words of every command in the examples' first lines."""
    found = []
    for name in MODULES:
        text = (FOLDER / f"{name}.py").read_text("utf-8").split('"""')[1]
        told = re.findall(r"^    (fl-lab run (?:.*\\\n)*.*)$", text, re.M)
        found += [shlex.split(one.replace("\\\n", " ")) for one in told]
    return found


def options(words: list[str]) -> dict[str, str]:
    return dict(zip(words[2::2], words[3::2], strict=True))


NAMES = [options(words)["--task"] for words in commands()]


def test_there_is_one_for_every_task_but_the_usual_one() -> None:
    assert sorted(NAMES) == ["autoencoder", "multilabel", "next-token", "regression", "segmentation"]


@pytest.mark.parametrize("words", commands(), ids=NAMES)
def test_its_model_learns_its_data(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    asked = options(words)
    shape = tuple(map(int, asked["--input-shape"].split("x")))
    arguments = {"hidden": "4"} if "--model-arg" in asked else {}
    name = CUSTOM if "--model" in asked else "mlp"
    described = ModelDescription(name, shape, int(asked["--classes"]), arguments, asked["--task"])
    net = build_net(described, 1, asked.get("--model"))
    found = own.load_own(Path(asked["--client-data"]), "c1")
    assert found.test is not None
    made = [
        stock(part, own.fits(part, shape, net.task, Scaling(), tokens=net.tokens), torch.device("cpu"))
        for part in found.parts
    ]
    bench, marking = Workbench(net), Marking(net.task, net.task.metrics[0])
    work = Local(
        bench,
        made[0],
        Plan(lr=float(asked["--lr"]), epochs=8, batch_size=8),
        seed=0,
        seat=0,
        round=1,
        received={Kind.MODEL: bench.params.clone()},
    )
    values = []
    for _ in range(2):
        tally = ScoreTally(net)
        with torch.no_grad(), bench.evaluating():
            for x, y in made[1].parts(64):
                tally.add(net(x)[1], y)
        values.append(marking.score(tally.samples, tally.loss, tally.sums).value)
        for batch in work.batches():
            work.compute(batch)
            work.heavy_ball()
    assert marking.figure.better(values[1], values[0]), values


@pytest.mark.long
@pytest.mark.parametrize("words", commands(), ids=NAMES)
def test_its_command_runs_to_its_end(tmp_path: Path, words: list[str]) -> None:
    program = [str(Path(sys.executable).with_name("fl-lab")), *words[1:]]
    more = ["--rounds", "2", "--processes", "1", "--run-dir", str(tmp_path / "run")]
    done = subprocess.run([*program, *more], cwd=FOLDER, env={**os.environ}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figure = importlib.import_module("edgeflock.lab.history").read(tmp_path / "run").figure.name
    assert f"final {figure}" in done.stdout + done.stderr


def files_of_the_page(folder: Path) -> None:
    """Write the files that the page shows, whose first lines name them."""
    page = (FOLDER.parents[1] / "docs" / "bring-your-model.md").read_text("utf-8")
    for code, name in re.findall(r"```python\n(# (\w+\.py).*?)```", page, re.S):
        (folder / name).write_text(code, "utf-8")


def test_the_page_s_text_is_read_and_its_model_answers_to_every_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files_of_the_page(tmp_path)
    (tmp_path / "text.txt").write_text("The quick brown fox." * 10, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    letters = importlib.import_module("letters")
    text = letters.load()
    assert text.shape == (3, 64)
    assert "".join(letters.LETTERS[one] for one in text[0, :9]) == "the quick"
    net = build_net(
        ModelDescription(CUSTOM, (64,), len(letters.LETTERS), {}, "next-token"), 1, "letters:make"
    )
    assert net(torch.from_numpy(text[:, :7]))[1].shape == (3, 7, 36)


def test_the_page_s_own_model_and_task_fit_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files_of_the_page(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    loading.allow("mytask:TASK", "--task")
    net = build_net(ModelDescription(CUSTOM, (5,), 1, {}, "mytask:TASK"), 1, "mymodel:make")
    tally = ScoreTally(net)
    with torch.no_grad():
        outputs = net(torch.ones(4, 5))[1]
        tally.add(outputs, torch.zeros(4, 1))
    found = Marking(net.task, net.task.metrics[0]).score(tally.samples, tally.loss, tally.sums)
    assert found.value == pytest.approx(float(outputs.abs().mean()))
