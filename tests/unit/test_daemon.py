"""A server's whole life in this process: from an empty directory to the end of its run, and what is left."""

from __future__ import annotations

import math
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from structlog.testing import capture_logs

from edgeflock.common.errors import EdgeflockError, UsageError
from edgeflock.common.reason import Reason
from edgeflock.server.config import ServerConfig
from edgeflock.server.console.console import ServerConsole
from edgeflock.server.core.refusal import Refused
from edgeflock.server.daemon import run
from edgeflock.server.service.central import CentralTrainer
from edgeflock.server.start import listen
from edgeflock.server.start.resolve import combine
from edgeflock.v1 import control_pb2 as pb
from support.rows import events, rows

SAMPLES = 3823  # of digits, in all shards together


def central(run_dir: Path, **options: Any) -> ServerConfig:
    """Return a run that the server trains itself: it needs nobody."""
    given = {"method": "centralized", "model": "linear", "rounds": 2, "clients": 3, "batch_size": 100}
    return combine({**given, "listen": "127.0.0.1:0", "run_dir": run_dir, **options})


class Watching(ServerConsole):
    """A console that keeps what it is told of the run."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[pb.StatusResponse] = []

    def look(self, status: pb.StatusResponse) -> None:
        self.seen.append(status)


def serve(config: ServerConfig, console: ServerConsole | None = None) -> tuple[int, list[dict[str, Any]]]:
    """Serve it to its end; return the exit code and what was logged."""
    with capture_logs() as logs:
        return run(config, console or ServerConsole()), list(map(dict, logs))


def said(logs: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [line for line in logs if line["event"] == name]


def test_a_run_from_its_beginning_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reflected: list[object] = []
    monkeypatch.setattr(listen, "_add_reflection", reflected.append)
    config = central(tmp_path / "run", budget={"time": "1h", "cpu": "1h"}, epochs=2, eval_blocking=True)
    (console := Watching()).serve(config)
    code, logs = serve(config, console)
    journal = tmp_path / "run" / "journal.sqlite"
    assert code == 0
    assert {(one.run_dir, one.rounds, one.method) for one in console.seen} == {
        (str(tmp_path / "run"), 2, "centralized")
    }
    names = [line["event"] for line in logs]
    milestones = ("run_started", "round_opened", "round_committed", "evaluated", "ended")
    assert [name for name in dict.fromkeys(names) if name in milestones] == list(milestones)
    assert names.count("listening") == 1
    ((started,), (ended,)) = said(logs, "run_started"), said(logs, "ended")
    assert (started["round"], started["epoch"], started["method"]) == (0, 0, "centralized")
    assert started["budget"] == {"time": "1h", "cpu": "1h"}
    assert (ended["kind"], ended["reason"]) == ("completed", "all 2 rounds are done")
    ((told,),) = (events(journal, "run_started"),)
    assert {"run_id", "rounds", "software", "torch", "machine", "cores"} <= told.keys()
    assert (said(logs, "listening_here_only"), reflected) == ([], [])
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"journal.sqlite", "model.safetensors", "run.toml", "rounds", "address"} <= left
    assert not left & {"control", "control.sock", "spool"}
    assert all(
        tensor.isfinite().all() for tensor in load_file(tmp_path / "run" / "model.safetensors").values()
    )
    assert torch.get_num_threads() == 1
    steps = 2 * 39  # epochs, in batches of 100
    columns = "samples, steps, samples_done, forward_samples, backward_samples, bytes_down, bytes_up"
    done = 2 * SAMPLES
    assert rows(journal, f"SELECT {columns} FROM costs") == [(SAMPLES, steps, done, done, done, 0, 0)] * 2
    assert rows(journal, "SELECT count(*) FROM costs WHERE 0 < cpu_s AND 0 < train_s AND train_s < 60") == [
        (2,)
    ]
    first, second = rows(journal, "SELECT value, loss, samples FROM evaluations ORDER BY round")
    assert 0 < first[0] <= 1
    assert second[1] < first[1] < math.log(10)
    assert first[2] == second[2] > 1000
    assert rows(journal, "SELECT value FROM meta WHERE name = 'parted 0'") == [("1",)]
    assert rows(journal, "SELECT value FROM meta WHERE name = 'farewell'") == [("1",)]
    again, logs = serve(config)
    assert (again, [line["event"] for line in logs]) == (0, ["run_is_over"])
    assert (logs[0]["kind"], logs[0]["reason"]) == ("completed", "all 2 rounds are done")


def test_a_run_that_a_signal_parks_in_mid_round_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(central(tmp_path / "whole", rounds=3))

    def at_the_second_round(of: Callable[..., Any]) -> Callable[..., Any]:
        def train(self: CentralTrainer, work: Any) -> Any:
            if work.round.number == 2:
                os.kill(os.getpid(), signal.SIGTERM)
                assert self._stopped.wait(20), "it is not waited for"
            return of(self, work)

        return train

    with monkeypatch.context() as patch:
        patch.setattr(CentralTrainer, "_train", at_the_second_round(CentralTrainer._train))
        code, logs = serve(central(tmp_path / "cut", rounds=3))
    assert code == 0
    ((draining,), (parked,)) = said(logs, "draining"), said(logs, "parked")
    assert (draining["signal"], parked["reason"]) == ("SIGTERM", "asked by SIGTERM")
    assert not said(logs, "ended")
    assert (tmp_path / "cut" / "spool").exists()
    assert not (tmp_path / "cut" / "control").exists()
    reflected: list[object] = []
    monkeypatch.setattr(listen, "_add_reflection", reflected.append)
    code, logs = serve(central(tmp_path / "cut", rounds=3, reflection=True))
    assert len(reflected) == 1
    assert (code, said(logs, "run_started")[0]["round"]) == (0, 1)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert models[0] == models[1]


def test_a_run_that_fails_ends_the_process_with_its_reason(tmp_path: Path) -> None:
    config = central(tmp_path / "run", lr=1e30)
    with capture_logs(), pytest.raises(EdgeflockError, match=r"^round 1 of centralized: 0 good updates are"):
        run(config, ServerConsole())
    journal = tmp_path / "run" / "journal.sqlite"
    assert rows(journal, "SELECT value FROM meta WHERE name = 'ended_kind'") == [("failed",)]
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_taken_port_is_found_before_a_run_directory_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with capture_logs(), pytest.raises(UsageError, match=f"--listen {address} cannot be bound: "):
            run(central(tmp_path / "run", listen=address), ServerConsole())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("reason", [Reason.BUSY, Reason.DRAINING, Reason.LATE])
def test_what_passes_is_tried_again_and_what_does_not_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: Reason
) -> None:
    """The server's own update is refused as a client's may be."""
    deliver, refused = CentralTrainer._deliver, [Refused(reason, "not now")]

    async def once(self: CentralTrainer, *given: Any) -> Refused | None:
        return refused.pop() if refused else await deliver(self, *given)

    monkeypatch.setattr(CentralTrainer, "_deliver", once)
    config = central(tmp_path / "run", rounds=1)
    if reason is Reason.LATE:
        with capture_logs(), pytest.raises(EdgeflockError, match=r"^not now$"):
            run(config, ServerConsole())
    else:
        assert serve(config)[0] == 0
    journal = tmp_path / "run" / "journal.sqlite"
    found = rows(journal, "SELECT value FROM meta WHERE name = 'ended_kind'")
    assert found == ([] if reason is Reason.LATE else [("completed",)]), "a broken process is no end of a run"
