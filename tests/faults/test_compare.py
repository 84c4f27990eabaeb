"""fl-lab compare with real processes: to the end, cut and gone on with, with a cell that fails."""

from __future__ import annotations

import csv
import fcntl
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from edgeflock.server.journal.reader import Feed
from support.commands import processes_of, run, start
from support.processes import until

GRID = """
baseline = "fedavg"
target = [0.3, 1.0]
[grid]
method = ["fedavg", "fedprox"]
seed = [0, 1]
[run]
model = "linear"
rounds = 40
clients = 2
processes = 1
"""
BROKEN = """
[grid]
model = ["nowhere.to_be:found", "linear"]
[run]
rounds = 2
clients = 2
processes = 1
"""
TWO = """
[grid]
seed = [0, 1]
[run]
model = "linear"
rounds = 2
clients = 2
processes = 1
"""


def compare(grid: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("fl-lab", "compare", grid, *arguments, timeout_s=180)


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


def begun(out: Path) -> bool:
    """Whether a second cell has committed a round."""
    known = 0
    for folder in (out / "cells").glob("*/"):
        feed = Feed(folder)
        known += any(event.name == "round_committed" for event in feed.read())
        feed.close()
    return known >= 2


@pytest.mark.timeout(400)  # 20 processes that import torch, one after the other
def test_a_grid_that_was_cut_goes_on_and_keeps_what_has_finished(tmp_path: Path) -> None:
    grid, out = tmp_path / "g.toml", tmp_path / "out"
    grid.write_text(GRID)
    cut = start("fl-lab", "compare", grid, f"--out={out}", "--jobs=1")
    assert cut.stdout is not None
    while not (line := cut.stdout.readline()).startswith("1/4  fedavg seed=0  done"):
        assert line or cut.poll() is None
    (model,) = out.glob("cells/*/model.safetensors")
    kept = model.stat().st_mtime_ns, model.read_bytes()
    until(lambda: begun(out) or None, lambda: f"a second cell in {list(out.rglob('*'))}")
    cut.send_signal(signal.SIGINT)
    _, errors = cut.communicate(timeout=60)
    assert cut.returncode == 130
    assert "of 4 cells done, the same command goes on\n" in errors
    assert processes_of(out) == []

    done = compare(grid, f"--out={out}", "--jobs=2", "--full")
    assert (done.returncode, done.stderr) == (0, "")
    assert "finished before; 2 at a time" in done.stdout
    assert (model.stat().st_mtime_ns, model.read_bytes()) == kept
    found = rows(out / "cells.csv")
    assert [(row["method"], row["seed"], row["failure"]) for row in found] == [
        ("fedavg", "0", ""),
        ("fedprox", "0", ""),
        ("fedavg", "1", ""),
        ("fedprox", "1", ""),
    ]
    assert all(float(row["total_rounds"]) == 40 and float(row["total_bytes"]) > 0 for row in found)
    assert all(float(row["rounds_to_0.3"]) < 40 and row["rounds_to_1"] == "" for row in found)
    paired = [row for row in rows(out / "summary.csv") if row["method"] == "fedprox" and row["pairs"] != "0"]
    assert {row["figure"] for row in paired if row["to_accuracy"] == "0.3"} >= {"rounds", "bytes", "seconds"}
    assert "\nNo run reached 1.\n" in done.stdout
    assert len(rows(out / "curves.csv")) == 4 * 40
    assert "\nEvery run: to accuracy 0.3\n" in done.stdout
    assert "## Accuracy, minus fedavg" in (out / "comparison.md").read_text("utf-8")
    assert "\\begin{tabular}" in (out / "comparison.tex").read_text("utf-8")

    again = compare(grid, f"--out={out}")
    assert "4 finished before" in again.stdout
    assert "\nverdict: " in again.stdout
    assert "fl-lab report " in again.stdout.rpartition("\nnext: ")[2]
    assert len(again.stdout.splitlines()) <= 24


def test_a_cell_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    grid, out = tmp_path / "g.toml", tmp_path / "out"
    grid.write_text(BROKEN)
    done = compare(grid, f"--out={out}")
    assert done.returncode == 1
    assert "1/2  fedavg model=nowhere.to_be:found  failed: " in done.stdout
    assert "2/2  fedavg model=linear  done in" in done.stdout
    failure, alone = done.stderr.splitlines()
    assert failure.startswith("failed: fedavg model=nowhere.to_be:found: ")
    assert "nowhere" in failure.partition("found: ")[2]
    assert alone.startswith("  alone: fl-lab run ")
    assert [bool(row["failure"]) for row in rows(out / "cells.csv")] == [True, False]


def test_a_queue_runs_what_is_printed_and_the_tables_are_told_of_what_is_there(tmp_path: Path) -> None:
    grid, out = tmp_path / "g.toml", tmp_path / "out"
    grid.write_text(TWO)
    early = compare(grid, f"--out={out}", "--tell")
    assert (early.returncode, early.stdout) == (2, "")
    assert early.stderr == f"fl-lab: error: --out '{out}' holds no runs of a comparison\n"
    lines = compare(grid, f"--out={out}", "--commands").stdout.splitlines()
    assert [line.count(f"--run-dir={out}/cells/") for line in lines] == [1, 1]
    assert ["--seed=1" in line for line in lines] == [False, True]
    assert run("fl-lab", *shlex.split(lines[0])[1:]).returncode == 0
    assert compare(grid, f"--out={out}", "--commands").stdout.splitlines() == lines[1:]
    told = compare(grid, f"--out={out}", "--tell")
    assert told.returncode == 1
    assert told.stderr.startswith("no result: fedavg seed=1: its run has not begun\n  alone: fl-lab run ")
    assert [bool(row["failure"]) for row in rows(out / "cells.csv")] == [False, True]
    both = compare(grid, "--commands", "--tell")
    assert (both.returncode, both.stderr.count("\n")) == (2, 1)


def test_a_directory_that_another_comparison_holds_is_refused(tmp_path: Path) -> None:
    grid, out = tmp_path / "g.toml", tmp_path / "out"
    grid.write_text(GRID)
    out.mkdir()
    with (out / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = compare(grid, f"--out={out}")
    assert done.returncode == 2
    assert done.stderr == f"fl-lab: error: --out '{out}' is in use by another fl-lab compare\n"


def test_what_is_wrong_with_a_grid_is_said_before_anything_starts(tmp_path: Path) -> None:
    grid = tmp_path / "g.toml"
    for wrong, sentence in (
        (GRID.replace("rounds", "round"), f"unknown key in [run] of {grid}: round, did you mean rounds?\n"),
        (GRID + 'dataset = "mnist"', f"mnist: the data root {tmp_path / 'data'} is not a folder; "),
    ):
        grid.write_text(wrong)
        done = compare(grid, f"--out={tmp_path / 'out'}", f"--data-root={tmp_path / 'data'}")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"fl-lab: error: {sentence}")
        assert list(tmp_path.iterdir()) == [grid]
