"""Budgets and targets of fl-lab run: the first one that is reached ends it, and everything says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgeflock.server.journal.reader import Feed
from wire.test_lab_run import field, lab

FAR = ("--budget=time=10m", "--budget=cpu=2h", "--budget=energy=50kJ", "--model=linear")


@pytest.mark.parametrize(
    ("near", "reason"),
    [
        ("--budget=bytes=100KB", "the budget of bytes leaves no room for another round: "),
        ("--target=accuracy=0.2", "the target is reached: accuracy "),
        ("--rounds=4", "all 4 rounds are done"),
    ],
)
def test_the_first_one_that_is_reached_ends_the_run_with_its_reason(
    tmp_path: Path, near: str, reason: str
) -> None:
    done = lab(*FAR, near, f"--run-dir={tmp_path / 'run'}")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line for line in done.stdout.splitlines() if line.startswith("round ")]
    assert all(re.search(rf" {name} +\d+%", line) for line in lines for name in ("time", "cpu"))
    assert all(re.search(r" energy +(\d+%|-)", line) for line in lines)
    unmeasured = field(done.stdout, "budget of energy").startswith("not known of 50 kJ: ")  # no sensor here
    assert unmeasured == ("round 1: no client states its energy: the budget of energy " in done.stdout)
    assert 0 < len(lines) < 30
    assert field(done.stdout, "ended").startswith(f"completed, {reason}")
    assert field(done.stdout, "budget of time").endswith(" of 10 min")
    (ended,) = [event for event in Feed(tmp_path / "run").read() if event.name == "run_ended"]
    assert field(done.stdout, "ended") == f"completed, {ended.fields['reason']}"
    assert {"time", "cpu", "energy"} <= ended.fields["budget"].keys()


def test_what_is_beyond_a_budget_is_stated(tmp_path: Path) -> None:
    """The clients of no epoch's end stop in mid-round, and the table says by how much that was too late."""
    done = lab("--epochs=1000000", "--budget=time=500ms", "--model=linear", f"--run-dir={tmp_path / 'run'}")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"[\d.]+ \S+ of 500 ms, [\d.]+ \S+ beyond it", field(done.stdout, "budget of time"))


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--budget=time=10m", "--budget=time=20m"), "--budget says time twice: '10m' and '20m'"),
        (("--budget=bytes=-5MB",), "--budget bytes is '-5MB', allowed is a size > 0"),
        (("--budget=cpu=0",), "--budget cpu is '0', allowed is CPU time > 0"),
        (("--budget=energy=5kW",), "--budget energy is '5kW', allowed is an energy > 0"),
        (("--budget=memory=5GB",), "unknown budget 'memory': known are bytes, cpu, energy, time"),
    ],
)
def test_a_budget_that_cannot_be_is_refused_in_one_sentence(
    tmp_path: Path, flags: tuple[str, ...], sentence: str
) -> None:
    done = lab(*flags, f"--run-dir={tmp_path / 'run'}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"fl-lab: error: {sentence}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
