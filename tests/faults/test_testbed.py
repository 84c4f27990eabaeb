"""fl-lab testbed with real namespaces: a kill -9 of it in mid-run, what that leaves, and bits."""

from __future__ import annotations

import csv
import signal
import subprocess
from pathlib import Path

import pytest

from edgeflock.common.errors import UsageError
from edgeflock.lab.testbed import laying, owner
from edgeflock.server.journal.reader import Feed
from support.commands import processes_of, run, spawn, start
from support.processes import Flock, until

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "testbed-small.toml"
ROUNDS = ("rounds = 40", "rounds = 6")
LIMIT_S = 300


def small(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    """Return the small example with other values; skip the test where there is no testbed."""
    try:
        laying.require()
    except UsageError as error:
        pytest.skip(str(error))
    if subprocess.run(["ip", "netns", "list"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces can be made here")
    text = EXAMPLE.read_text("utf-8")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    file = tmp_path / "bed.toml"
    file.write_text(text, "utf-8")
    return file


def begun(folder: Path) -> bool:
    """Whether a cell has committed a round."""
    found = False
    for cell in folder.glob("cells/*"):
        feed = Feed(cell)
        found = found or any(event.name == "round_committed" for event in feed.read())
        feed.close()
    return found


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "cells.csv").read_text("utf-8").splitlines()))


def marks(out: Path) -> set[str]:
    """Return the marks of testbeds whose processes name that folder."""
    found = set()
    for folder in owner.HOME.glob("flt-*"):
        for line in (folder / "processes").read_text("utf-8").splitlines():
            command = Path(f"/proc/{line.split()[0]}/cmdline")
            if command.exists() and str(out) in command.read_text("utf-8"):
                found.add(folder.name)
    return found


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.timeout(2 * LIMIT_S)
def test_a_testbed_that_is_killed_leaves_nothing_after_the_next_start(tmp_path: Path) -> None:
    file, out = small(tmp_path, ROUNDS), tmp_path / "out"
    killed = start("fl-lab", "testbed", file, "--out", out)
    until(lambda: begun(out) or None, lambda: "a committed round", LIMIT_S)
    left = marks(out)
    assert left
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    done = run("fl-lab", "testbed", file, "--out", out, timeout_s=LIMIT_S)
    assert "Traceback" not in done.stderr
    assert "failed" not in done.stderr, done.stderr
    assert "The same run twice: passed" in done.stdout, done.stdout
    for mark in left:
        assert laying.names(mark) == []
        assert not (owner.HOME / mark).exists()
    assert processes_of(out) == []
    assert marks(out) == set()
    assert {row["rounds"] for row in rows(out)} == {"6"}
    assert [row["watched_whole"] for row in rows(out)] == ["false", "true"]
    assert (out / "testbed.md").read_text("utf-8").count("## ") >= 3


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.timeout(2 * LIMIT_S)
def test_pacing_and_control_groups_and_plain_processes_come_to_the_same_bits(tmp_path: Path) -> None:
    """Ctrl-C in between, and cables in place of the air: what a device is given changes no bit."""
    once, short = ("repeat = 1", "repeat = 0"), ("steps = 40", "steps = 10")
    bed = small(tmp_path, ROUNDS, once, short, ('period = "13ms"', 'period = "13ms"\ncpu = "pace"'))
    out = tmp_path / "paced"
    cut = start("fl-lab", "testbed", bed, "--out", out)
    until(lambda: begun(out) or None, lambda: "a committed round", LIMIT_S)
    cut.send_signal(signal.SIGINT)
    cut.communicate(timeout=LIMIT_S)
    assert cut.returncode == 130
    assert marks(out) == set()
    assert processes_of(out) == []
    run("fl-lab", "testbed", bed, "--out", out, timeout_s=LIMIT_S)
    plain = tmp_path / "plain.toml"
    text, _, _ = bed.read_text("utf-8").partition("[devices]")
    plain.write_text(text, "utf-8")
    run("fl-lab", "compare", plain, "--out", tmp_path / "plain", "--jobs", 1, timeout_s=LIMIT_S)
    for row in rows(out):
        (folder,) = (tmp_path / "plain" / "cells").glob(f"{row['method']}-*")
        kept = subprocess.run(["sha256sum", folder / "model.safetensors"], capture_output=True, check=True)
        assert row["sha256"] == kept.stdout.decode().split()[0]


EXTERNAL = """
[grid]
method = ["fedavg", "fednag"]
[run]
listen = "unix:{socket}"
clients = 2
model = "linear"
rounds = 3
[devices]
external = true
"""


@pytest.mark.long
def test_devices_that_come_by_themselves_take_part_in_one_cell_after_the_other(flock: Flock) -> None:
    file, out, socket = flock.folder / "bed.toml", flock.folder / "out", flock.folder / "socket"
    file.write_text(EXTERNAL.format(socket=socket), "utf-8")
    for name in ("a", "b"):
        place = (f"--server=unix:{socket}", f"--id={name}", f"--state-dir={flock.folder / name}")
        spawn(flock, (), "fl-client", "--stay", *place)
    done = run("fl-lab", "testbed", file, "--out", out, timeout_s=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["rounds"] for row in rows(out)] == ["3", "3"]
    assert "Checks" not in (out / "testbed.md").read_text("utf-8")
