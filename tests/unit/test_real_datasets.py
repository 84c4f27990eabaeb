"""The real data sets, where they are beside the project: known counts, means, and pixels upright."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.partitions.kit.assign import cut

SHARED = Path(__file__).resolve().parents[3] / "shared"
UNPACK = SHARED / "tools" / "unpack_data.py"

pytestmark = pytest.mark.skipif(not UNPACK.is_file(), reason="the real data sets are not beside the project")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    subprocess.run([sys.executable, str(UNPACK), str(folder)], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(
    ("name", "mean", "std"), [("mnist", 0.1307, 0.3081), ("fashion-mnist", 0.2860, 0.3530)]
)
def test_mean_and_deviation_are_the_known_ones(root: Path, name: str, mean: float, std: float) -> None:
    found = datasets.load(name, root)
    assert (len(found.train), len(found.test), found.input_shape) == (60_000, 10_000, (1, 28, 28))
    assert found.train.x.mean() / 255 == pytest.approx(mean, abs=5e-5)
    assert found.train.x.std() / 255 == pytest.approx(std, abs=5e-5)
    assert (found.scaling.mean, found.scaling.std) == ((mean,), (std,))
    some = found.ready(found.train.take(np.arange(20_000)))
    assert some.x.mean() == pytest.approx(0, abs=0.01)
    assert some.x.std() == pytest.approx(1, abs=0.01)


def test_class_counts_are_the_known_ones(root: Path) -> None:
    mnist, fashion = datasets.load("mnist", root), datasets.load("fashion-mnist", root)
    assert list(np.bincount(mnist.train.y)) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert list(np.bincount(fashion.train.y)) == [6000] * 10
    assert list(np.bincount(fashion.test.y)) == [1000] * 10


def test_the_packed_files_are_read_where_they_lie(root: Path) -> None:
    packed, plain = datasets.load("mnist", SHARED / "data"), datasets.load("mnist", root)
    assert np.array_equal(packed.train.x, plain.train.x)
    assert np.array_equal(packed.test.y, plain.test.y)


def test_uci_har_is_shared_out_by_subject(root: Path) -> None:
    found = datasets.load("uci-har", root)
    assert (len(found.train), len(found.test), found.input_shape) == (7352, 2947, (561,))
    assert list(np.bincount(found.train.y)) == [1226, 1073, 986, 1286, 1374, 1407]
    assert list(found.train.x[0, :3]) == pytest.approx([0.28858451, -0.02029417, -0.13290514], abs=1e-7)
    shards = [cut(found, partition="natural", seed=0, shards=21, index=index) for index in range(21)]
    assert sum(len(shard) for shard in shards) == 7352
    assert all(len(set(shard.groups if shard.groups is not None else [])) == 1 for shard in shards)


def test_an_archive_with_medmnist_s_names_is_read(root: Path) -> None:
    found = datasets.load("mednist28", root)
    assert (len(found.train), len(found.test), found.classes, found.input_shape) == (
        6000,
        1500,
        6,
        (1, 28, 28),
    )


def test_cifar10_is_read_where_it_is(root: Path) -> None:
    if not (root / "cifar-10-batches-bin").is_dir():
        pytest.skip("cifar10 is not among the data here")
    found = datasets.load("cifar10", root)
    assert (len(found.train), len(found.test)) == (50_000, 10_000)
    assert found.train.x.mean(axis=(0, 2, 3)) / 255 == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
