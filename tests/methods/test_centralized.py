"""Centralized (METHODS section 3, note 4): the server trains alone on the union of the shards."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.errors import UsageError
from edgeflock.common.partitions.kit import assign
from edgeflock.methods.kit.order import Order
from edgeflock.server.config import ServerConfig
from edgeflock.server.start.resolve import combine, resolve
from support import processes
from support.commands import run
from support.processes import Flock

SEED = 11
ALONE = ("--method=centralized", f"--seed={SEED}", "--clients=3", "--model-arg=hidden=[16]")
LONG = (*ALONE, "--rounds=60", "--batch-size=16")


@pytest.fixture
def flock(tmp_path: Path) -> Iterator[Flock]:
    with processes.flock(tmp_path) as made:
        yield made


# ------------------------------------------------------------------------------- the mathematics


def union(scheme: str, samples_per_client: int) -> tuple[Tensor, Tensor]:
    """Return every sample that one of the three clients holds, once, in the order of the data set."""
    digits = datasets.load("digits", None)
    cut: dict[str, Any] = {"partition": scheme, "seed": SEED, "shards": 3}
    shards = [
        assign.cut(digits, **cut, samples_per_client=samples_per_client, index=index) for index in range(3)
    ]
    held = {row.tobytes() for shard in shards for row in shard.x}
    pool = digits.ready(digits.train)
    rows = [at for at, row in enumerate(pool.x) if row.tobytes() in held]
    return torch.from_numpy(pool.x[rows]).double(), torch.from_numpy(pool.y[rows])


def plain_model(path: Path) -> nn.Sequential:
    """Return the model of a checkpoint as one writes it down, in float64."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)).double()
    for parameter, values in zip(model.parameters(), load_file(path).values(), strict=True):
        parameter.data.copy_(values)
    return model


def train_plainly(
    model: nn.Module, data: tuple[Tensor, Tensor], rounds: Sequence[Sequence[Any]], lr: float
) -> None:
    """torch.optim.SGD, begun anew in every round; the learning rate falls by a tenth after each."""
    x, y = data
    for number, batches in enumerate(rounds):
        optimizer = torch.optim.SGD(model.parameters(), lr=lr * 0.9**number, momentum=0.8, weight_decay=0.01)
        for rows in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def vector(parameters: Sequence[Tensor]) -> np.ndarray[Any, Any]:
    return torch.cat([part.detach().double().reshape(-1) for part in parameters]).numpy()


CASES = {
    "the whole set": (("--batch-size=0", "--steps=4"), "iid", 0),
    "mini batches, shards that are cut down": (("--batch-size=50", "--epochs=2"), "dirichlet:0.3", 100),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_equals_plain_sgd_on_the_union(flock: Flock, case: str) -> None:
    """One round is the task's epochs or steps on all that the clients hold together; momentum begins at 0."""
    work, scheme, each = CASES[case]
    shape = (f"--partition={scheme}", f"--samples-per-client={each}", "--rounds=3", "--lr=0.1")
    sgd = ("--lr-decay=0.9", "--momentum=0.8", "--weight-decay=0.01", "--keep-every=1")
    assert flock.begin_server(*ALONE, *work, *shape, *sgd).ended() == 0
    data = union(scheme, each)
    order = Order(len(data[1]), 50, SEED, 0)
    mini = [[order.rows(round, step) for step in range(2 * order.batches)] for round in (1, 2, 3)]
    model = plain_model(flock.run_dir / "rounds" / "000000" / "model.safetensors")
    begin = vector(list(model.parameters()))
    rounds: Sequence[Sequence[Any]] = mini if each else [[slice(None)] * 4] * 3
    train_plainly(model, data, rounds, 0.1)
    wanted = vector(list(model.parameters()))
    for final in (flock.run_dir, flock.run_dir / "rounds" / "000003"):
        found = vector(list(load_file(final / "model.safetensors").values()))
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert np.abs(wanted - begin).max() > 0.05
    assert flock.rows("SELECT samples FROM seats") == [(len(data[1]),)]


# ------------------------------------------------------------------------------------ the run


def test_nothing_crosses_a_wire_and_the_journal_says_so(flock: Flock) -> None:
    assert flock.begin_server(*ALONE, "--rounds=4", "--codec=int8").ended() == 0
    assert flock.rows("SELECT seat, client_id FROM seats") == [(0, "server")]
    sizes = "bytes_down, bytes_up, resent_bytes, message_bytes_down, message_bytes_up"
    assert flock.rows(f"SELECT DISTINCT {sizes} FROM costs") == [(0, 0, 0, 0, 0)]
    worked = flock.rows("SELECT round, steps, samples_done, train_s > 0, cpu_s > 0 FROM costs ORDER BY round")
    samples = flock.rows("SELECT samples FROM seats")[0][0]
    assert worked == [(round, -(-samples // 32), samples, 1, 1) for round in (1, 2, 3, 4)]
    assert flock.verdicts("server") == dict.fromkeys((1, 2, 3, 4), "counted")
    scores = flock.rows("SELECT value FROM evaluations WHERE model = 'global' ORDER BY round")
    assert len(scores) == 4
    assert scores[-1][0] > 0.7


def test_a_budget_of_bytes_is_never_used_up(flock: Flock) -> None:
    assert flock.begin_server(*ALONE, "--rounds=3", "--budget=bytes=1KB").ended() == 0
    assert flock.rows("SELECT max(round) FROM rounds WHERE committed") == [(3,)]


def test_a_run_that_is_killed_again_and_again_ends_in_the_same_bits(tmp_path: Path) -> None:
    with processes.flock(tmp_path / "whole") as whole:
        whole.folder.mkdir()
        assert whole.begin_server(*LONG).ended() == 0
        wanted = whole.sha256()
    with processes.flock(tmp_path / "cut") as cut:
        cut.folder.mkdir()
        for rounds, later_s in ((1, 0.0), (2, 0.01), (3, 0.03)):
            server = cut.begin_server(*LONG)
            server.wait_for("round_committed", count=rounds)
            time.sleep(later_s)  # the instant is the test's input, not a synchronisation
            server.kill()
        assert cut.begin_server().ended() == 0
        assert cut.sha256() == wanted
        assert cut.rows("SELECT count(*) FROM outcomes") == [(60,)]


def test_a_server_that_is_told_to_go_leaves_in_the_midst_of_a_round(flock: Flock) -> None:
    """One round takes minutes here; what was trained of it is trained again."""
    server = flock.server(*ALONE, "--rounds=2", "--steps=1000000")
    server.wait_for("round_opened")
    server.signal(signal.SIGTERM)
    assert server.ended() == 0
    assert server.events("parked")


def test_a_finished_run_goes_on_if_more_rounds_are_asked_for(flock: Flock) -> None:
    assert flock.begin_server(*ALONE, "--rounds=2").ended() == 0
    assert flock.begin_server("--rounds=4").ended() == 0
    assert flock.rows("SELECT max(round) FROM rounds WHERE committed") == [(4,)]


def test_a_client_that_comes_is_sent_away_with_a_sentence(flock: Flock) -> None:
    server = flock.server(*ALONE, "--rounds=2", "--steps=1000000")
    client = flock.client("c0")
    assert client.ended() == 1
    assert "centralized trains on the server: this run takes no clients" in client.sentence()
    server.kill()


def test_fl_lab_starts_no_client(tmp_path: Path) -> None:
    lab = partial(run, "fl-lab", "run", "--method=centralized")
    done = lab("--rounds=2", f"--run-dir={tmp_path / 'run'}")
    assert done.returncode == 0
    assert "centralized on digits (mlp) with the union of 4 shards, 2 rounds" in done.stdout
    ends = dict(line.split("  ", 1) for line in done.stdout.split("\n\n")[1].splitlines())
    assert (ends["bytes up"].strip(), ends["bytes down"].strip()) == ("0 B", "0 B")
    assert [path.name for path in (tmp_path / "run" / "logs").iterdir()] == ["server.jsonl"]
    refused = lab(f"--run-dir={tmp_path / 'own'}", "--client-data=c{index}.npz")
    assert refused.returncode == 2
    assert "--client-data cannot reach it" in refused.stderr
    assert not (tmp_path / "own").exists()


# -------------------------------------------------------------------------------- what is refused


def test_clients_own_data_are_refused(tmp_path: Path) -> None:
    (tmp_path / "test.npz").touch()
    with pytest.raises(UsageError, match="union of a named data set's shards, give --dataset"):
        combine({"method": "centralized", "eval_data": tmp_path / "test.npz"})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"cohort": 2}, "--cohort is 2, allowed is 4"),
        ({"participation": "online"}, "--participation is online, allowed is roster"),
        ({"cohort_lines": ("c0",) * 20}, "--cohort-script names cohorts"),
    ],
)
def test_choosing_among_clients_is_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=f"where no client is contacted: {sentence}"):
        resolve(ServerConfig(method="centralized", **values))


def test_a_run_toml_of_it_can_become_another_methods_run() -> None:
    alone = resolve(ServerConfig(method="centralized"))
    assert (alone.central, alone.min_updates, resolve(alone)) == (True, 1, alone)
    assert not resolve(ServerConfig(method="fedavg", central=True)).central
