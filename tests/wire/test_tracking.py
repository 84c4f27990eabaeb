"""A run in MLflow and in Weights & Biases: by command and by the server's child, every figure once."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import edgeflock
from edgeflock.common.errors import UsageError
from edgeflock.server.config import ServerConfig
from edgeflock.server.journal.events import write_event
from edgeflock.server.start import children
from support.processes import flock
from support.told_run import told_run, writing

MLFLOW = pytest.mark.skipif(find_spec("mlflow") is None, reason="edgeflock[mlflow] is not installed")
WANDB = pytest.mark.skipif(find_spec("wandb") is None, reason="edgeflock[wandb] is not installed")
_BLOCK, _HEAD = 32768, 7  # of a file of Weights & Biases: records in blocks, as LevelDB has them


def track(name: str, run_dir: Path, **environ: str) -> str:
    """Run `fl-lab track` in the folder of the run; return what it says."""
    words = [sys.executable, "-m", "edgeflock", "lab", "track", name, run_dir.name]
    done = subprocess.run(
        words, cwd=run_dir.parent, env={**os.environ, **environ}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tell(run_dir: Path, *rounds: int) -> None:
    """Let the journal of a run tell of rounds, as a server does."""
    with writing(run_dir) as journal:
        for round in rounds:
            costs = {"round": round, "loss": 2.0 / round, "bytes_up": 900, "seconds": 5.0}
            write_event(journal, "round_committed", costs, 10.0 * round)
            found = {"round": round, "model": "global", "mae": 1.0 / round}
            write_event(journal, "evaluated", found, 10.0 * round + 1)


def stored(database: Path, question: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(database)) as found:
        return found.execute(question).fetchall()


@pytest.mark.long
@MLFLOW
def test_options_figures_and_the_end_of_a_run_are_in_mlflow_once_however_often_it_is_written(
    tmp_path: Path,
) -> None:
    run_dir = told_run(tmp_path / "cells" / "run", ended=False)
    tell(run_dir, 1, 2)
    environ = {"MLFLOW_TRACKING_URI": "sqlite:///kept.db"}
    assert track("mlflow", run_dir, **environ).startswith("8 new scalars in sqlite:///kept.db; ")
    tell(run_dir, 3)
    with writing(run_dir) as journal:
        meta = {"ended_kind": "completed", "ended_reason": "all rounds are done"}
        journal.executemany("INSERT INTO meta (name, value) VALUES (?, ?)", meta.items())
    assert track("mlflow", run_dir, **environ).startswith("4 new scalars in ")
    assert track("mlflow", run_dir, **environ).startswith("0 new scalars in ")

    kept = run_dir.parent / "kept.db"
    figures = stored(
        kept, "SELECT step, value, timestamp FROM metrics WHERE key = 'mae/global' ORDER BY step"
    )
    assert figures == [(1, 1.0, 11000), (2, 0.5, 21000), (3, pytest.approx(1 / 3), 31000)]
    assert stored(kept, "SELECT count(*) FROM metrics WHERE key = 'round/bytes_up'") == [(3,)]
    assert stored(kept, "SELECT value FROM metrics WHERE key = 'total/bytes'") == [(11400,)]
    assert ("fedavg",) in stored(kept, "SELECT value FROM params WHERE key = 'method'")
    assert stored(kept, "SELECT name, status FROM runs") == [("run", "FINISHED")]
    assert (tmp_path.name,) in stored(kept, "SELECT name FROM experiments")  # of that comparison


def records(file: Path) -> Iterator[Any]:
    """Yield what a file of Weights & Biases holds."""
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue] it is made

    data, place, held = file.read_bytes(), _HEAD, b""
    while place + _HEAD <= len(data):
        if _BLOCK - place % _BLOCK < _HEAD:
            place += _BLOCK - place % _BLOCK
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        held += data[place + _HEAD : place + _HEAD + size]
        place += _HEAD + size
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(held)
            held = b""


@pytest.mark.long
@WANDB
@pytest.mark.filterwarnings("ignore")
def test_figures_and_options_lie_in_files_of_weights_and_biases_where_there_is_no_key(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run", ended=False)
    tell(run_dir, 1, 2)
    environ = {"HOME": str(tmp_path)}
    assert track("wandb", run_dir, **environ).startswith(
        "8 new scalars in run/report/wandb/wandb/offline-run-"
    )
    assert track("wandb", run_dir, **environ).startswith("0 new scalars in ")
    (file,) = run_dir.rglob("*.wandb")
    found = [*records(file)]
    rows = [
        {
            one.nested_key[0] if one.nested_key else one.key: json.loads(one.value_json)
            for one in record.history.item
        }
        for record in found
        if record.WhichOneof("record_type") == "history"
    ]
    assert [(row["round"], row["mae/global"]) for row in rows if "mae/global" in row] == [(1, 1.0), (2, 0.5)]
    (run,) = [record.run for record in found if record.WhichOneof("record_type") == "run"]
    assert (run.run_id, run.display_name, run.project) == ("told", "run", "edgeflock")


@pytest.mark.long
@MLFLOW
def test_the_servers_child_writes_all_lives_of_a_run_and_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where MLflow makes its files
    with flock(tmp_path) as made:
        for rounds in (3, 5):
            server = made.server("--clients=2", f"--rounds={rounds}", "--track=mlflow")
            client = made.client("c0,c1")
            assert (server.ended(), client.ended()) == (0, 0)
        told = made.rows("SELECT round, value FROM evaluations ORDER BY round")
    store = tmp_path / "mlflow.db"
    question = "SELECT step, value FROM metrics WHERE key = 'accuracy/global' ORDER BY step"
    assert stored(store, question) == told
    assert stored(store, "SELECT value FROM tags WHERE key = 'now.rounds'") == [("5",)]
    (place,) = stored(store, "SELECT artifact_uri FROM runs")[0]
    model = edgeflock.load(Path(place.removeprefix("file://")) / "model.safetensors")
    assert model.about["round"] == "5"


def test_a_missing_package_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UsageError, match=r"--track mlflow needs mlflow, .*\[mlflow\]'"):
        children.check(ServerConfig(track=("mlflow",)))
