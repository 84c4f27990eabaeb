"""TensorBoard event files of real runs: by the server's child, by the command, once each."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

from edgeflock.common.errors import MissingData, UsageError
from edgeflock.lab.cli import group
from edgeflock.lab.export.feed import scalars
from edgeflock.server.config import ServerConfig
from edgeflock.server.journal.reader import Event
from edgeflock.server.start import children
from support.processes import Flock, flock

reading = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="edgeflock[tensorboard] is not installed"
)


def curve(folder: Path, tag: str) -> list[tuple[int, float]]:
    """Return what TensorBoard would show."""
    loaded = reading.EventAccumulator(str(folder))
    loaded.Reload()
    return [(entry.step, entry.value) for entry in loaded.Scalars(tag)]


def run(made: Flock, *flags: str) -> None:
    server = made.server("--clients=2", *flags)
    client = made.client("c0,c1")
    assert (server.ended(), client.ended()) == (0, 0)


def told(made: Flock) -> list[tuple[int, float]]:
    """Return what the journal holds, in the precision of event files."""
    rows = made.rows("SELECT round, value FROM evaluations ORDER BY round")
    return [(number, float(numpy.float32(value))) for number, value in rows]


def write(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> str:
    group.main(["tensorboard", str(run_dir)], prog_name="fl-lab", standalone_mode=False)
    return capsys.readouterr().out


def test_the_servers_child_writes_every_round_of_all_its_lives_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with flock(tmp_path) as made:
        run(made, "--rounds=3", "--tensorboard")
        run(made, "--rounds=5", "--tensorboard")
        files = made.run_dir / "report" / "tensorboard"
        assert curve(files, "accuracy/global") == told(made)
        assert [step for step, _ in curve(files, "round/bytes_up")] == [1, 2, 3, 4, 5]
        assert write(made.run_dir, capsys).startswith("0 new scalars in ")


def test_the_command_writes_what_the_journal_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with flock(tmp_path) as made:
        run(made, "--rounds=3", "--budget=bytes=1GB")
        assert not (made.run_dir / "report").exists()
        write(made.run_dir, capsys)
        files = made.run_dir / "report" / "tensorboard"
        assert curve(files, "accuracy/global") == told(made)
        assert [0 < value < 1 for _, value in curve(files, "budget/bytes")] == [True] * 3


def test_numbers_of_events_become_scalars_and_nothing_else_does() -> None:
    fields = {
        "round": 2,
        "loss": 0.5,
        "counted": 3,
        "not_counted": {"a": "LATE"},
        "budget": {"time": [5, 20]},
    }
    assert dict(scalars(Event(1, 0.0, "round_committed", fields))) == {
        "round/loss": 0.5,
        "round/counted": 3,
        "budget/time": 0.25,
    }
    group_of_models = {"round": 2, "model": "local", "accuracy": 0.9, "worst_tenth": 0.1}
    assert dict(scalars(Event(2, 0.0, "evaluated", group_of_models))) == {
        "accuracy/local": 0.9,
        "worst_tenth/local": 0.1,
    }
    assert list(scalars(Event(3, 0.0, "client_joined", {"round": 2, "samples": 7}))) == []


def test_a_missing_run_is_named_wherever_the_files_go(tmp_path: Path) -> None:
    for out in ((), (f"--out={tmp_path / 'files'}",)):
        with pytest.raises(MissingData, match=r"nosuch is not a run directory"):
            group.main(
                ["tensorboard", str(tmp_path / "nosuch"), *out], prog_name="fl-lab", standalone_mode=False
            )
    assert not (tmp_path / "files").exists()


def test_a_missing_package_is_named_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not installed
    with pytest.raises(UsageError, match=r"--tensorboard needs tensorboard, .*\[tensorboard\]'"):
        children.check(ServerConfig(tensorboard=True))
    children.check(ServerConfig())
    with pytest.raises(UsageError, match=r"this command needs tensorboard, .*\[tensorboard\]'"):
        group.main(["tensorboard", str(tmp_path)], prog_name="fl-lab", standalone_mode=False)
