"""fl-lab paper with real processes: run, kept, gone on with, shown, refused once its settings are others."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from support.commands import run

PAPER = """
[paper]
title = "A paper"
source = "Table 1"
shows = "accuracy on digits"
seeds = 2
minutes = 1
[grid]
method = ["fedavg", "fedprox", "again"]
[run]
model = "linear"
rounds = 3
clients = 2
processes = 1
[method.again]                  # the same run as fedavg, asked of its clients' models
name = "fedavg"
[[case]]
name = "digits"
target = 0.99
[[figure]]
kind = "times"
y = "bytes"
[[table]]
title = "Rounds"
quantity = "rounds"
ratio = "fedavg"
[table.paper]
fedavg = 3
fedprox = ">3"
[[claim]]
says = "FedProx is not above FedAvg by a point"
rule = "gain"
quantity = "final_accuracy"
of = "fedprox"
over = "fedavg"
most = 1
[[deviation]]
what = "digits"
why = "they come with edgeflock"
[quick]
methods = ["fedavg"]
run = { rounds = 2 }
"""


def paper(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run("fl-lab", "paper", *arguments, timeout_s=180)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_paper_is_run_kept_shown_and_refused_when_its_settings_are_others(tmp_path: Path) -> None:
    file, out = tmp_path / "mine.toml", tmp_path / "out"
    file.write_text(PAPER)
    quick = paper(file, "--quick", f"--out={tmp_path / 'quick'}")
    assert (quick.returncode, "verdict: the quick version, no verdict on the paper" in quick.stdout) == (
        0,
        True,
    )

    done = paper(file, f"--out={out}", "--keep")
    assert done.returncode == 0, done.stderr
    assert "6 cells (1 case x 3 methods x 2 seeds), 2 by a run of another" in done.stdout
    assert "> 3" in done.stdout
    kept = sorted(path.name for path in (tmp_path / "results").iterdir())
    assert kept == ["mine.csv", "mine.svg", "mine.toml"]
    about = tomllib.loads((tmp_path / "results" / "mine.toml").read_text())
    assert (about["seeds"], about["cells"], about["of"], about["failures"]) == ([0, 1], 4, 4, [])

    again = paper(file, f"--out={out}")
    assert "4 finished before" in again.stdout
    shown = paper(file, "--show")
    assert shown.stdout.strip().splitlines()[-1] == again.stdout.partition("\nwritten:")[0].splitlines()[-1]

    file.write_text(PAPER.replace("rounds = 3", "rounds = 4"))
    refused = paper(file, "--show")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "results/mine.csv is of other settings" in refused.stderr
