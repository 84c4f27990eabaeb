"""Runs started from Python: refused ones, a real one beside a loop and from a thread, an interrupted one."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import edgeflock
from edgeflock.common.errors import EdgeflockError, UsageError
from edgeflock.lab.notebook.run import Run
from edgeflock.lab.reference import typed_options
from edgeflock.lab.run.config import LabConfig
from edgeflock.server.config import ServerConfig
from edgeflock.server.files import run_dir as rundir


def test_the_types_for_editors_are_those_of_the_options() -> None:
    """If this fails: python -m edgeflock.lab.reference.options_page docs/configuration.md."""
    assert typed_options.place().read_text("utf-8") == typed_options.text()


def test_an_editor_that_asks_at_run_time_is_told_every_option_and_its_default() -> None:
    told = inspect.signature(edgeflock.simulate).parameters
    assert told["rounds"].default == ServerConfig().rounds
    assert told["processes"].default == LabConfig().processes
    assert told["progress"].default is True
    assert {"method", "set", "lr", "dataset", "run_dir", "client_data"} <= set(told)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"partion": "iid"}, "unknown option partion, did you mean partition?"),
        ({"mu": 0.1}, "unknown option mu, an option of a method: give set={'mu': ...}"),
        ({"qqqq": 1}, "unknown option qqqq, fl-lab run --help lists them"),
        ({"rounds": 0}, "rounds is '0', allowed is an integer >= 1"),
        ({"rounds": True}, "rounds is 'true', allowed is an integer >= 1"),
        ({"lr": {"a": 1}}, "lr is {'a': 1}, allowed is a number >= 0"),
        ({"set": {"mu": None}}, "set['mu'] is None, allowed is a text, a number or a path"),
        ({"model": len}, "server and clients are processes of their own"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence_before_anything_starts(
    options: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refused:
        edgeflock.simulate(**options)
    assert sentence in str(refused.value)
    assert [*tmp_path.iterdir()] == []


def test_what_the_run_refuses_is_its_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="unknown method 'fedavgg': did you mean 'fedavg'"):
        edgeflock.simulate(method="fedavgg", rounds=1)
    assert [*tmp_path.iterdir()] == []


def test_a_run_is_held_from_any_thread_beside_a_loop_and_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here the thread is not the main one, and its loop is running; signals stay as they were."""
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    found: list[Run] = []

    async def in_a_loop() -> None:
        found.append(
            edgeflock.simulate(
                method="fedprox", set={"mu": 0.1}, clients=2, processes=1, rounds=2, eval_blocking=True
            )
        )

    thread = threading.Thread(target=lambda: asyncio.run(in_a_loop()))
    thread.start()
    thread.join()
    (run,) = found
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
    assert (run.path.parent, run.summary["state"], run.summary["rounds"]) == (Path("runs"), "completed", 2)
    assert run.options["set"]["mu"] == "0.1"
    said = capsys.readouterr().out
    assert "round 1/2  accuracy " in said
    assert "round 2/2  accuracy " in said
    assert sum(parameter.numel() for parameter in run.model("best").parameters()) == 7510


ENDLESS = "import edgeflock; edgeflock.simulate(rounds=100000, clients=1, run_dir='run')"


@pytest.mark.long
def test_an_interrupt_ends_all_processes_in_good_order_and_the_run_can_go_on(tmp_path: Path) -> None:
    words = [sys.executable, "-c", ENDLESS]
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as asked:
        assert asked.stdout is not None
        assert asked.stderr is not None
        next(line for line in asked.stdout if " 1/100000 " in line)
        server = rundir.holder(tmp_path / "run")
        assert server
        asked.send_signal(signal.SIGINT)
        rest, errors = asked.stdout.read(), asked.stderr.read()
    assert asked.returncode == -signal.SIGINT
    assert "simulate(run_dir='run') goes on with it" in rest
    assert errors.rstrip().endswith("KeyboardInterrupt")
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
    run = edgeflock.open(tmp_path / "run")
    done = run.summary["rounds"]
    assert (run.ended, done >= 1) == (False, True)
    assert edgeflock.simulate(run_dir=run.path, rounds=done + 1, progress=False).ended


def test_a_run_that_fails_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "def make(shape, classes):\n    raise RuntimeError('no such layer')\n"
    )
    script = """
import edgeflock
try:
    edgeflock.simulate(model="broken:make", clients=1, rounds=1, run_dir="run", progress=False)
except edgeflock.simulate.__globals__["EdgeflockError"] as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert "no such layer" in done.stdout
    assert done.stderr == ""
    assert issubclass(UsageError, EdgeflockError)
