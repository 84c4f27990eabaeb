"""fl-lab demo as people start it: it kills, it goes on, it compares, and it leaves nothing behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from edgeflock.common.command.terminal import Terminal
from edgeflock.common.errors import EdgeflockError
from edgeflock.lab.demo import compare
from edgeflock.server.console.summary import model_digest
from edgeflock.server.journal.reader import Event, Feed
from support import commands
from support.commands import processes_of

SMALL = ("--clients=2", "--rounds=4", "--dashboard=127.0.0.1:0", "--no-open")
LIMIT_S = 200


def start(out: Path) -> subprocess.Popen[str]:
    return commands.start("fl-lab", "demo", f"--out={out}", *SMALL)


def events(run_dir: Path) -> list[Event]:
    with closing(Feed(run_dir)) as feed:
        return feed.read()


def test_the_model_is_the_same_with_both_kills_and_without(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    with start(out) as process:
        said, errors = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, errors) == (0, "")
    digests = re.findall(r"^(?:killed|undisturbed) +(\w{64})$", said, re.MULTILINE)
    assert digests == [model_digest(out / "killed")] * 2 == [model_digest(out / "undisturbed")] * 2
    told = [line.split(",")[0] for line in said.splitlines() if line.startswith(("kill -9", "Started"))]
    assert [line.split()[:4] for line in told] == [
        ["kill", "-9", "of", "client"],
        ["Started", "again", "on", "what"],
        ["kill", "-9", "of", "the"],
        ["Started", "again:", told[-1].split()[2], "rounds"],
    ]
    assert re.findall(r"^round ([1-4])/4 ", said, re.MULTILINE) == ["1", "2", "3", "4"]
    names = [(event.name, event.fields) for event in events(out / "killed")]
    assert [fields["client"] for name, fields in names if name == "client_joined"].count("c1") >= 2
    assert [fields["round"] for name, fields in names if name == "run_started"] in ([0, 2], [0, 3])
    counted = [fields["counted"] for name, fields in names if name == "round_committed"]
    assert counted == [2, 2, 2, 2]
    assert (out / "killed" / "report" / "index.html").is_file()
    assert processes_of(tmp_path) == []


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    with start(tmp_path / "demo") as process:
        assert process.stdout is not None
        assert any(line.startswith("kill -9 of client") for line in process.stdout)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert processes_of(tmp_path) == []


def test_a_demo_does_not_go_into_the_directory_of_another(tmp_path: Path) -> None:
    (tmp_path / "killed").mkdir()
    with start(tmp_path) as process:
        said, errors = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, said) == (2, "")
    assert errors == f"fl-lab: error: --out '{tmp_path}' holds a demo already: give another directory\n"


def test_models_that_differ_are_a_failure(tmp_path: Path) -> None:
    for name in ("killed", "undisturbed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_text(name)
    with pytest.raises(EdgeflockError, match="the models differ"):
        compare(Terminal(sys.stdout), tmp_path / "killed", tmp_path / "undisturbed")
