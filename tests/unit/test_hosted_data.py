"""What the clients of a process train on and are tested on: their own, or their shards of the run's data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgeflock.client.config import ClientConfig
from edgeflock.client.training.data import HostedData
from edgeflock.common.datasets.kit import registry
from edgeflock.common.datasets.kit.base import Array
from edgeflock.common.errors import BadData, EdgeflockError, UsageError
from edgeflock.common.partitions.kit.assign import cut, local_test
from edgeflock.common.payload.layout import NO_BUFFERS, NO_COUNTERS, Layout, ModelLayouts
from edgeflock.common.run import DataDescription, ModelDescription, RunDescription
from edgeflock.common.scores import LOCAL, POOLED
from support.training import whole

DIGITS = DataDescription("digits", "iid", 7, 4, 50, 0.0)
LAYOUTS = ModelLayouts(Layout.single("w", 1), NO_BUFFERS, NO_COUNTERS)


def run_of(
    data: DataDescription | None = DIGITS, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10
) -> RunDescription:
    return RunDescription("r", 0, 0, "fedavg", {}, ModelDescription("mlp", shape, classes), LAYOUTS, data, 4)


def hosted(**config: object) -> HostedData:
    return HostedData(ClientConfig(**config), torch.device("cpu"))  # type: ignore[arg-type]


def test_a_seat_has_its_shard_and_says_what_is_in_it() -> None:
    member = hosted().member(run_of(), "c", 2)
    part = cut(registry.load("digits"), partition="iid", seed=7, shards=4, samples_per_client=50, index=2)
    assert (member.seat, member.samples) == (2, 50)
    assert torch.equal(whole(member.data)[0], torch.from_numpy(part.x))
    assert member.class_counts == tuple(np.bincount(part.y, minlength=10))
    assert len(hosted().member(run_of(classes=12), "c", 2).class_counts) == 12


def test_samples_of_another_shape_than_the_model_s_are_refused() -> None:
    with pytest.raises(BadData, match=r"digits has samples of \(1, 8, 8\), this run needs \(1, 4, 4\)"):
        hosted().member(run_of(shape=(1, 4, 4)), "c", 0)


def test_a_run_without_a_data_set_needs_data_of_the_client_s_own() -> None:
    with pytest.raises(UsageError, match="needs data of your own: name yours with --data"):
        hosted().member(run_of(None), "c", 0)


def test_what_is_tested_is_made_when_it_is_asked_for_and_the_pooled_once_for_all() -> None:
    data = hosted()
    one, other = (data.member(run_of(), f"c{seat}", seat) for seat in (0, 1))
    assert data._pooled == {}
    pooled = one.tests.of(POOLED)
    assert pooled is not None
    assert len(pooled) == len(registry.load("digits").test.y)
    assert other.tests.of(POOLED) is pooled
    local = one.tests.of(LOCAL)
    assert local is not None
    shard = cut(registry.load("digits"), partition="iid", seed=7, shards=4, samples_per_client=50, index=0)
    wanted = local_test(registry.load("digits"), shard, seed=7, index=0)
    assert torch.equal(whole(local)[1], torch.from_numpy(wanted.y))


@pytest.mark.parametrize("tested", [False, True])
def test_own_data_are_read_once_and_tested_on_what_they_bring(tmp_path: Path, tested: bool) -> None:
    arrays: dict[str, Array] = {"x": np.zeros((8, 5), np.float32), "y": np.arange(8) % 3}
    if tested:
        arrays |= {"x_test": np.ones((2, 5), np.float32), "y_test": np.array([0, 2])}
    path = tmp_path / "own.npz"
    np.savez(path, allow_pickle=True, **arrays)
    data = hosted(data=str(path))
    mine = data.own("c")
    assert mine is not None
    assert data.own("c") is mine
    member = data.member(run_of(None, (5,), 3), "c", 1)
    assert (member.samples, member.class_counts) == (8, (3, 3, 2))
    local = member.tests.of(LOCAL)
    assert (None if local is None else len(local)) == (2 if tested else None)
    assert member.tests.of(POOLED) is None
    assert hosted().own("c") is None


def test_clients_of_one_file_have_it_once(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.zeros((8, 5), np.float32), y=np.arange(8) % 4)
    data = hosted(data=str(tmp_path / "own.npz"))
    assert data.own("c0") is data.own("c1")


def test_own_data_that_the_run_does_not_take_are_refused_before_there_is_a_seat(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.zeros((8, 5), np.float32), y=np.arange(8) % 4)
    data = hosted(data=str(tmp_path / "own.npz"))
    data.own("c")
    data.check(run_of(None, (5,), 4), "c")
    for run in (run_of(None, (5,), 3), run_of(None, (6,), 4)):
        with pytest.raises(BadData):
            data.check(run, "c")


def test_what_reading_own_data_raises_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "own.npz").write_bytes(b"nonsense")
    with pytest.raises(EdgeflockError):
        hosted(data=str(tmp_path / "own.npz")).own("c")
