"""Data sets: every official format, read from small files of exactly that format."""

from __future__ import annotations

import gzip
import http.server
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeflock.common.command import extras
from edgeflock.common.datasets.kit import download
from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.datasets.kit.base import Array, Dataset, Part, Scaling
from edgeflock.common.datasets.kit.files import Place
from edgeflock.common.datasets.kit.formats import idx, pickled
from edgeflock.common.datasets.kit.home import default_root
from edgeflock.common.errors import BadData, BadValue, EdgeflockError, MissingData, UnknownName
from edgeflock.common.partitions.kit.assign import assign, cut, local_test
from edgeflock.lab.reference.datasets_list import lines
from edgeflock.lab.reference.partition_rows import describe
from edgeflock.server.start.resolve import combine, content_digest
from edgeflock.server.start.samples import load_test_set

RANDOM = np.random.default_rng(0)


def pixels(*shape: int) -> Array:
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


def labels(count: int, classes: int) -> Array:
    return (np.arange(count) % classes).astype(np.uint8)


def write_idx(path: Path, array: Array) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_mnist(folder: Path, ending: str = "") -> tuple[Array, Array]:
    x, y = pixels(12, 28, 28), labels(12, 10)
    for half, count in (("train", 12), ("t10k", 5)):
        write_idx(folder / f"{half}-images-idx3-ubyte{ending}", x[:count])
        write_idx(folder / f"{half}-labels-idx1-ubyte{ending}", y[:count])
    return x, y


def refused(name: str, root: Path | None) -> str:
    with pytest.raises(EdgeflockError) as refusal:
        datasets.load(name, root)
    assert refusal.value.exit_code == 2
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on a network: downloads meet a proxy that is not there."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)


def test_digits_are_in_the_package() -> None:
    digits = datasets.load("digits")
    assert (digits.input_shape, digits.classes, len(digits.train), len(digits.test)) == (
        (1, 8, 8),
        10,
        3823,
        1797,
    )
    assert list(np.bincount(digits.train.y)) == [376, 389, 380, 389, 387, 376, 377, 387, 380, 382]
    assert list(np.bincount(digits.test.y)) == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    ready = digits.ready(digits.test)
    assert (ready.x.dtype.name, float(ready.x.min()), float(ready.x.max())) == ("float32", 0.0, 1.0)
    assert list(ready.x[0, 0, 0]) == [0, 0, 5 / 16, 13 / 16, 9 / 16, 1 / 16, 0, 0]


def test_a_data_set_is_decoded_once() -> None:
    assert datasets.load("digits") is datasets.load("digits", Path("/anywhere"))


def test_loading_needs_no_torch() -> None:
    load = "import sys; from edgeflock.common.datasets.kit import registry; registry.load('digits')"
    assert download.python("-c", f"{load}; sys.exit('torch' in sys.modules)", timeout_s=60)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "folder", "mean", "std"),
    [
        ("mnist", "MNIST/raw", 0.1307, 0.3081),
        ("mnist", "mnist", 0.1307, 0.3081),
        ("mnist", ".", 0.1307, 0.3081),
        ("fashion-mnist", "FashionMNIST/raw", 0.2860, 0.3530),
        ("fashion-mnist", "fashion_mnist", 0.2860, 0.3530),
    ],
)
def test_idx_files_are_read(
    tmp_path: Path, name: str, folder: str, mean: float, std: float, ending: str
) -> None:
    x, y = write_mnist(tmp_path / folder, ending)
    found = datasets.load(name, tmp_path)
    assert found.train.x.dtype == np.uint8, "a shard is converted when it is cut, not the whole set"
    assert np.array_equal(found.train.x[:, 0], x)
    assert np.array_equal(found.train.y, y)
    assert len(found.test) == 5
    np.testing.assert_allclose(
        found.ready(found.test).x[:, 0], (x[:5] / 255 - mean) / std, rtol=1e-5, atol=1e-6
    )


def test_pixels_without_standardisation_are_in_the_unit_interval(tmp_path: Path) -> None:
    x, _ = write_mnist(tmp_path)
    unit = datasets.load("mnist:unit", tmp_path)
    np.testing.assert_allclose(unit.ready(unit.train).x[:, 0], x / 255, rtol=1e-6)
    standard = datasets.load("mnist", tmp_path)
    assert standard.ready(standard.train).x.min() < 0


def test_emnist_s_transposed_images_are_put_upright(tmp_path: Path) -> None:
    x = pixels(6, 28, 28)
    for half in ("train", "test"):
        stem = tmp_path / "EMNIST/raw"
        write_idx(stem / f"emnist-balanced-{half}-images-idx3-ubyte", x.transpose(0, 2, 1).copy())
        write_idx(stem / f"emnist-balanced-{half}-labels-idx1-ubyte", np.array([0, 46, 1, 2, 3, 4], np.uint8))
    found = datasets.load("emnist", tmp_path)
    assert np.array_equal(found.train.x[:, 0], x)
    assert (found.classes, int(found.test.y.max())) == (47, 46)


@pytest.mark.parametrize("damage", ["cut", "magic", "not gzip", "labels"])
def test_a_damaged_idx_file_is_refused(tmp_path: Path, damage: str) -> None:
    write_mnist(tmp_path)
    images, truth = tmp_path / "train-images-idx3-ubyte", tmp_path / "train-labels-idx1-ubyte"
    if damage == "cut":
        images.write_bytes(images.read_bytes()[:-1])
    elif damage == "magic":
        images.write_bytes(b"\x89PNG" + images.read_bytes())
    elif damage == "not gzip":
        images.rename(tmp_path / "train-images-idx3-ubyte.gz")
    else:
        write_idx(truth, np.full(12, 10, np.uint8))
    assert str(tmp_path) in refused("mnist", tmp_path)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no idx file|not an idx file"),
        (b"\0\0\x08", "not an idx file"),
        (b"\0\0\x08\x01", "ends within its header"),
        (b"\0\x01\x08\x01\0\0\0\x01x", "not an idx file"),
        (b"\0\0\x0c\x01\0\0\0\x01\0\0\0\x01", "not an idx file of unsigned bytes"),  # int32
        (b"\0\0\x08\x03\0\0\0\x01\0", "header"),  # cut within its sizes
        (b"\0\0\x08\x02\0\0\0\x01", "header"),
        (b"\0\0\x08\x01\0\0\0\x02x", "holds 1 bytes of data, its header says 2"),
        (b"\0\0\x08\x01\0\0\0\x01xy", "holds 2 bytes of data, its header says 1"),
    ],
)
def test_what_is_no_idx_file_of_bytes_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(BadData, match=words):
        idx.read(tmp_path / "file")


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ((12, 784), (12,), "2 dimensions and labels of 1, needed are 3 and 1"),
        ((12, 28, 28), (12, 1), "3 dimensions and labels of 2, needed are 3 and 1"),
        ((12, 28, 28), (11,), "12|11"),
    ],
)
def test_idx_files_of_other_shapes_are_refused(
    tmp_path: Path, x: tuple[int, ...], y: tuple[int, ...], words: str
) -> None:
    write_idx(tmp_path / "x", np.zeros(x, np.uint8))
    write_idx(tmp_path / "y", np.zeros(y, np.uint8))
    with pytest.raises(BadData, match=words):
        idx.images(tmp_path / "x", tmp_path / "y", 10)


def cifar_batch(count: int, classes: int) -> tuple[Array, Array]:
    return pixels(count, 3072), labels(count, classes)


@pytest.mark.parametrize("version", ["binary", "python 2", "python 3", "numpy 1"])
def test_cifar10_is_read_in_both_versions(tmp_path: Path, version: str) -> None:
    folder = tmp_path / ("cifar-10-batches-bin" if version == "binary" else "cifar-10-batches-py")
    folder.mkdir()
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    stored = [cifar_batch(3, 10) for _ in names]
    for name, (x, y) in zip(names, stored, strict=True):
        if version == "binary":
            (folder / f"{name}.bin").write_bytes(np.concatenate([y[:, None], x], axis=1).tobytes())
            continue
        batch: dict[object, object] = {"data": x, "labels": [int(label) for label in y]}
        if version == "python 2":
            batch = {str(key).encode(): value for key, value in batch.items()}
        data = pickle.dumps(batch, protocol=4 if version == "python 3" else 2)
        (folder / name).write_bytes(
            data.replace(b"numpy._core", b"numpy.core") if version == "numpy 1" else data
        )
    found = datasets.load("cifar10", tmp_path)
    assert (found.input_shape, found.classes, len(found.train), len(found.test)) == ((3, 32, 32), 10, 15, 3)
    assert np.array_equal(found.train.x[3:6].reshape(3, -1), stored[1][0])
    assert np.array_equal(found.test.y, stored[5][1])
    red = (stored[5][0][0, 0] / 255 - 0.4914) / 0.2470
    assert found.ready(found.test).x[0, 0, 0, 0] == pytest.approx(red, rel=1e-5)


@pytest.mark.parametrize("version", ["binary", "python"])
def test_cifar100_is_read_with_its_fine_labels(tmp_path: Path, version: str) -> None:
    folder = tmp_path / ("cifar-100-binary" if version == "binary" else "cifar-100-python")
    folder.mkdir()
    x, y = cifar_batch(4, 100)
    fine = y + 90
    for name in ("train", "test"):
        if version == "binary":
            records = np.concatenate([y[:, None], fine[:, None], x], axis=1)
            (folder / f"{name}.bin").write_bytes(records.tobytes())
        else:
            batch = {b"data": x, b"fine_labels": fine.tolist(), b"coarse_labels": y.tolist()}
            (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    found = datasets.load("cifar100", tmp_path)
    assert (found.input_shape, found.classes) == ((3, 32, 32), 100)
    assert list(found.test.y) == [90, 91, 92, 93]
    assert np.array_equal(found.train.x.reshape(4, -1), x)


class Harm:
    """What an attacker's pickle would run."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('harm was done')",)


@pytest.mark.parametrize("value", [Harm(), Path("x"), np.array([Harm()], dtype=object), {b"data": print}])
def test_a_pickle_that_asks_for_more_than_arrays_is_refused(value: object) -> None:
    with pytest.raises(BadData, match="asks for"):
        pickled.read("file", pickle.dumps(value, protocol=2))


def test_a_broken_pickle_is_refused() -> None:
    for data in (b"", b"abc", pickle.dumps([1, 2])[:-3], b"\x80\x02}q\x00U\xff"):
        with pytest.raises(BadData, match="not a pickle of plain data"):
            pickled.read("file", data)


ROWS = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    "batch",
    [
        [1],
        {b"data": b"x", b"fine_labels": [1, 1]},
        {b"fine_labels": [1, 1]},
        {b"data": ROWS.astype(np.int16), b"fine_labels": [1, 1]},
        {b"data": ROWS[:, 1:], b"fine_labels": [1, 1]},
        {b"data": ROWS[0], b"fine_labels": [1]},
        {b"data": ROWS},
        {b"data": ROWS, b"fine_labels": (1, 1)},
        {b"data": ROWS, b"fine_labels": [1, 1.0]},
        {b"data": ROWS, b"fine_labels": [1, 2**70]},
        {b"data": ROWS, b"fine_labels": [1, -1]},
        {b"data": ROWS, b"fine_labels": [1, 100]},
        {b"data": ROWS, b"fine_labels": [1]},
        {b"\xff": ROWS, "\udcff": [1]},
    ],
    ids=lambda batch: str(batch)[-30:],
)
def test_a_cifar_batch_of_the_wrong_shape_is_refused(tmp_path: Path, batch: object) -> None:
    for name in ("train", "test"):
        (tmp_path / name).write_bytes(pickle.dumps(batch, protocol=2))
    assert "train" in refused("cifar100", tmp_path)


def test_a_cifar_file_cut_short_is_refused(tmp_path: Path) -> None:
    for name in ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(bytes(3073))
    assert "needed is a multiple of 3074" in refused("cifar100", tmp_path)


def write_har(root: Path, half: str, rows: int) -> Array:
    folder = root / "UCI HAR Dataset" / half
    folder.mkdir(parents=True)
    x = RANDOM.uniform(-1, 1, (rows, 561))
    np.savetxt(folder / f"X_{half}.txt", x, fmt="%16.7e")
    np.savetxt(folder / f"y_{half}.txt", np.arange(rows) % 6 + 1, fmt="%d")
    np.savetxt(folder / f"subject_{half}.txt", np.arange(rows) % 3 + 1, fmt="%d")
    return x


def test_uci_har_is_read_with_its_subjects(tmp_path: Path) -> None:
    x = write_har(tmp_path, "train", 9)
    write_har(tmp_path, "test", 4)
    found = datasets.load("uci-har", tmp_path)
    assert (found.input_shape, found.classes, found.train.x.dtype.name) == ((561,), 6, "float32")
    np.testing.assert_allclose(found.ready(found.train).x, x, atol=1e-6)
    assert list(found.train.y) == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    some = found.train.take(np.array([1, 5])).groups
    assert some is not None
    assert list(some) == [2, 3]


@pytest.mark.parametrize("text", ["", "1 2 3\n", "a b\n", "nan\n"])
def test_a_damaged_table_of_uci_har_is_refused(tmp_path: Path, text: str) -> None:
    write_har(tmp_path, "train", 3)
    (tmp_path / "UCI HAR Dataset/train/y_train.txt").write_text(text)
    assert "y_train.txt" in refused("uci-har", tmp_path)


def write_image(path: Path, array: Array) -> None:
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(array).save(path)


def test_tiny_imagenet_is_read_from_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-imagenet-200"
    colours = {"n02": (200, 10, 10), "n01": (10, 200, 10)}
    for name, colour in colours.items():
        for k in range(3):
            image = np.full((64, 64, 3), colour, np.uint8)
            write_image(folder / f"train/{name}/images/{name}_{k}.JPEG", image)
    write_image(folder / "val/images/val_0.JPEG", np.full((64, 64), 7, np.uint8))
    (folder / "val/val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t62\t57\n")
    (folder / "wnids.txt").write_text("n02\nn01\n")
    found = datasets.load("tiny-imagenet", tmp_path)
    assert (found.input_shape, found.classes, list(found.train.y)) == ((3, 64, 64), 2, [0, 0, 0, 1, 1, 1])
    assert found.train.x[0, 1].mean() > 180, "class 0 is n01, the green one"
    assert list(found.test.y) == [1]
    assert abs(int(found.test.x[0, 2, 5, 5]) - 7) <= 1, "a grey image has three equal channels"


@pytest.mark.parametrize("shape", [(28, 28), (28, 28, 3)])
def test_medmnist_is_read_from_its_official_file(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x, y = pixels(22, *shape), labels(22, 11)[:, None]
    parts = {
        f"{half}_{kind}": a for half in ("train", "val", "test") for kind, a in (("images", x), ("labels", y))
    }
    np.savez(tmp_path / "organcmnist.npz", allow_pickle=True, **parts)
    found = datasets.load("organcmnist", tmp_path)
    channels = 3 if len(shape) == 3 else 1
    assert (found.input_shape, found.classes, len(found.train)) == ((channels, 28, 28), 11, 22)
    ready = found.ready(found.test).x
    np.testing.assert_allclose(ready[:, 0], x.reshape(22, 28, 28, -1)[..., 0] / 127.5 - 1, atol=1e-5)


def write_npz(path: Path, **changed: Array) -> None:
    arrays = {"x": pixels(6, 4, 4), "y": labels(6, 3), "x_test": pixels(3, 4, 4), "y_test": labels(3, 3)}
    np.savez(path, allow_pickle=True, **{**arrays, **changed})


@pytest.mark.parametrize("name", ["npz:mine", "mine", "npz:mine.npz"])
def test_an_archive_of_the_data_root_is_a_data_set(tmp_path: Path, name: str) -> None:
    write_npz(tmp_path / "mine.npz")
    found = datasets.load(name, tmp_path)
    assert (found.name, found.input_shape, found.classes) == ("npz:mine", (1, 4, 4), 3)
    assert found.ready(found.train).x.max() <= 1


def test_floats_of_an_archive_are_taken_as_they_are(tmp_path: Path) -> None:
    x = RANDOM.normal(5, 3, (6, 4))
    write_npz(tmp_path / "mine.npz", x=x, x_test=x[:3])
    found = datasets.load("mine", tmp_path)
    np.testing.assert_allclose(found.ready(found.train).x, x, rtol=1e-6)


@pytest.mark.parametrize(
    ("task", "y"),
    [
        ("regression", np.linspace(0, 1, 6)),
        ("regression", RANDOM.normal(size=(6, 3))),
        ("multilabel", RANDOM.integers(0, 2, (6, 14))),
        ("segmentation", RANDOM.integers(0, 3, (6, 4, 4))),
    ],
)
def test_labels_of_an_archive_may_be_those_of_any_task(tmp_path: Path, task: str, y: Array) -> None:
    write_npz(tmp_path / "mine.npz", y=y, y_test=y[:3])
    given = {"dataset": "npz:mine", "data_root": tmp_path, "task": task, "clients": 2}
    test = load_test_set(combine(given))
    assert len(test.y) == 3
    mine = datasets.load("npz:mine", tmp_path)
    assert mine.classes == 0
    shard = cut(mine, partition="iid", seed=0, shards=2, index=0)
    assert np.array_equal(local_test(mine, shard, seed=0, index=0).y, y[:3])
    assert sorted(len(row) for row in assign(mine, partition="quantity:1", seed=0, shards=1)) == [6]
    assert describe(mine, partition="iid", clients=2, seed=0).rows[0].samples == 3
    with pytest.raises(BadData, match=r"no classes, by which this partition cuts: iid, quantity:ALPHA"):
        load_test_set(combine({**given, "partition": "dirichlet:1"}))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"y": np.zeros(5, np.int64)}, "6 samples and 5 labels"),
        ({"y": np.full(6, np.nan)}, "labels are not all finite"),
        ({"y": np.array(["a"] * 6)}, "labels are <U1 (6,), allowed is numbers for each sample"),
        ({"y": np.full(6, -1)}, "labels -1 to -1"),
        ({"y": np.full(6, 20240101)}, "the highest label is 20240101, allowed is 0 to 99999"),
        ({"x": np.full((6, 4, 4), np.nan)}, "finite floats"),
        ({"x": np.zeros((6, 4, 4), np.int64)}, "samples are int64"),
        ({"x": np.zeros((6, 5, 5), np.uint8)}, "samples of (1, 5, 5) in x"),
        ({"x": np.array([object()] * 6)}, "holds Python objects"),
    ],
)
def test_a_wrong_archive_is_refused(tmp_path: Path, changed: dict[str, Array], sentence: str) -> None:
    write_npz(tmp_path / "mine.npz", **changed)
    assert sentence in refused("mine", tmp_path)


def write_classes(folder: Path, count: int = 10, side: int = 6) -> None:
    for shade, name in ((200, "smoke"), (100, "fire")):
        for k in range(count):
            write_image(folder / name / f"{k:02}.png", np.full((side, side, 3), shade + k, np.uint8))


def test_a_folder_of_images_is_a_data_set_with_every_fifth_image_held_out(tmp_path: Path) -> None:
    write_classes(tmp_path / "fire")
    found = datasets.load("folder:fire", tmp_path)
    assert (found.input_shape, found.classes) == ((3, 6, 6), 2)
    assert list(found.train.y) == [0] * 8 + [1] * 8
    assert [int(image[0, 0, 0]) for image in found.test.x] == [104, 109, 204, 209]


def test_a_server_tests_on_a_folder_of_images(tmp_path: Path) -> None:
    write_classes(tmp_path / "fire/train", 3)
    write_classes(tmp_path / "fire/test", 1, side=9)
    given = {"eval_data": tmp_path / "fire/train"}
    found = load_test_set(combine(given))
    assert (found.input_shape, found.classes, found.y.tolist()) == ((3, 6, 6), 2, [0] * 3 + [1] * 3)
    assert float(found.x[0].max()) == pytest.approx(100 / 255)
    resized = load_test_set(combine({"eval_data": tmp_path / "fire", "size": 4}))
    assert (resized.input_shape, len(resized.y)) == ((3, 4, 4), 2)
    with pytest.raises(
        BadData, match=r"has folders of 2 classes .fire, smoke., this run has 3: put a classes"
    ):
        load_test_set(combine({**given, "classes": 3}))
    before = content_digest(tmp_path / "fire")
    (tmp_path / "fire/test/fire/00.png").unlink()
    assert content_digest(tmp_path / "fire") != before


def test_a_folder_with_train_and_test_is_taken_as_it_is_split(tmp_path: Path) -> None:
    write_classes(tmp_path / "fire/train", 3)
    write_classes(tmp_path / "fire/test", 1)
    found = datasets.load("folder:fire", tmp_path)
    assert (len(found.train), len(found.test)) == (6, 2)


def test_images_of_a_folder_are_resized_only_if_asked(tmp_path: Path) -> None:
    write_classes(tmp_path / "fire")
    write_image(tmp_path / "fire/smoke/99.png", np.zeros((9, 7, 3), np.uint8))
    assert "99.png is 7x9 pixels, the first image is 6x6" in refused("folder:fire", tmp_path)
    assert datasets.load("folder:fire:4", tmp_path).input_shape == (3, 4, 4)


def test_folders_named_after_days_are_no_classes(tmp_path: Path) -> None:
    for day in ("20240101", "20240102"):
        write_image(tmp_path / "fire" / day / "0.png", np.zeros((6, 6, 3), np.uint8))
    assert "whose sub-folders are numbers: the highest label is 20240102" in refused("folder:fire", tmp_path)


def test_what_is_no_image_is_refused_by_name(tmp_path: Path) -> None:
    write_classes(tmp_path / "fire")
    (tmp_path / "fire/smoke/03.png").write_bytes(b"not an image")
    assert "03.png is not an image" in refused("folder:fire", tmp_path)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("folder", "folder:NAME[:SIDE]"),
        ("folder:no", "there is no folder"),
        ("folder:../fire", "below the data root"),
        ("folder:/etc", "below the data root"),
        ("npz:../../secret", "below the data root"),
        ("npz:no", "file 'no.npz' is missing"),
        ("folder:fire:0", "1 to 4096"),
        ("mnist:raw", "mnist or mnist:unit"),
        ("mnits", "did you mean 'mnist'"),
        ("organamnist", "file 'organamnist.npz' is missing"),
        ("uci-har", "file 'train/X_train.txt' (and 2 more) is missing"),
        ("tiny-imagenet", "people get it from http"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_sentence(tmp_path: Path, name: str, sentence: str) -> None:
    assert sentence in refused(name, tmp_path)


def test_the_kind_of_refusal_can_be_told_apart(tmp_path: Path) -> None:
    for name, kind in (("mnits", UnknownName), ("mnist:x", BadValue), ("organamnist", MissingData)):
        with pytest.raises(kind):
            datasets.load(name, tmp_path)


def test_a_missing_data_root_is_said() -> None:
    assert refused("npz:mine", None) == "npz: no data root is given (--data-root)"
    assert "is not a folder" in refused("mnist", Path("nowhere"))


def test_without_a_data_root_the_users_cache_is_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored
    assert default_root() == tmp_path / "home/.cache/edgeflock"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sentence = refused("uci-har", None)
    assert f"looked for in {tmp_path}/edgeflock/UCI HAR Dataset" in sentence
    assert sentence.endswith("; --data-root names the folder that has it")
    assert list(tmp_path.iterdir()) == [], "nothing is made for what is not there"
    write_mnist(tmp_path / "edgeflock/MNIST/raw")
    assert len(datasets.load("mnist").train) == 12


def test_every_named_set_says_what_it_holds_and_where_it_is(tmp_path: Path) -> None:
    """Found where it lies; what torchvision knows is downloaded, the rest is to be brought."""
    write_mnist(tmp_path / "mnist")
    write_har(tmp_path, "train", 3)  # without its test half
    told = "\n".join(lines(datasets.entries(), tmp_path)).split("\n")
    assert told[1:5] == [
        "bundled:",
        "  digits           1x8x8       10     3,823    1,797",
        "here:",
        "  mnist          1x28x28       10    60,000   10,000  mnist",
    ]
    fetched = told[told.index("downloaded at first use:") + 1 :][:4]
    assert [line.split()[0] for line in fetched] == ["fashion-mnist", "cifar10", "cifar100", "emnist"]
    brought = told.index("to be brought, from https://archive.ics.uci.edu/dataset/240:")
    assert told[brought + 1].split() == ["uci-har", "561", "6", "7,352", "2,947"]
    assert "your own, below --data-root: folder:NAME[:SIDE], npz:NAME" in told
    assert f"Looked in {tmp_path}; --data-root DIR looks elsewhere." in told
    named = [line.split()[0] for line in told if line.startswith("  ")][1:]
    assert sorted(named) == [name for name in datasets.names() if ":" not in name]
    assert max(map(len, told[:-2])) <= 80


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "emnist", "cifar10", "cifar100"])
def test_without_a_network_the_missing_file_is_named_within_seconds(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    sentence = refused(name, tmp_path)
    assert time.monotonic() - start < 10
    assert sentence.startswith(f"{name}: file ")
    assert str(tmp_path) in sentence
    assert "people get it from http" in sentence
    assert "a download was tried, but its host did not answer" in sentence
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PROBE_S", 0.5)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        assert download.fetch("MNIST", address, tmp_path) == "its host did not answer"


@dataclass
class Mirror:
    """A web server on loopback that has MNIST's four files, and what was asked of it."""

    address: str
    path: Path  # of a folder for PYTHONPATH that leads torchvision there, in the process that downloads
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    write_mnist(tmp_path / "mirror", ".gz")
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given: object) -> None:
            super().__init__(*given, directory=str(tmp_path / "mirror"))  # type: ignore[arg-type]

        def log_message(self, format: str, *given: object) -> None:
            found.asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        found = Mirror(f"http://127.0.0.1:{server.server_port}/", tmp_path / "ours")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def led_there(mirror: Mirror) -> None:
    """The real torchvision in the real child process; only its list of mirrors is ours."""
    if not extras.installed("torchvision"):
        pytest.skip("torchvision is not installed")
    mirror.path.mkdir()
    (mirror.path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'download' in sys.orig_argv:\n"
        "    from edgeflock.common.plugins.torchvision_gate import torchvision\n"
        "    kind = torchvision().datasets.MNIST\n"
        f"    kind.mirrors = [{mirror.address!r}]\n"
        "    kind.resources = [(name, None) for name, _ in kind.resources]\n"
    )


def test_torchvision_downloads_what_is_missing(
    tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    led_there(mirror)
    monkeypatch.syspath_prepend(str(mirror.path))
    root = tmp_path / "root"
    assert download.fetch("MNIST", mirror.address, root) == ""
    assert len(datasets.load("mnist", root).train) == 12
    assert [path.name for path in root.iterdir()] == ["MNIST"]


LOAD = """
from dataclasses import replace
from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.datasets import mnist
mnist.PLACE = replace(mnist.PLACE, probe=ADDRESS)
print(len(datasets.load("mnist").train))
"""


def test_of_four_processes_one_downloads_and_all_have_it(tmp_path: Path, mirror: Mirror) -> None:
    """Into a cache that holds what a killed download has left."""
    led_there(mirror)
    root = tmp_path / "cache/edgeflock"
    (root / ".download-killed").mkdir(parents=True)
    environ = {**os.environ, "XDG_CACHE_HOME": str(root.parent), "PYTHONPATH": str(mirror.path)}
    words = [sys.executable, "-c", LOAD.replace("ADDRESS", repr(mirror.address))]
    four = [
        subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    told = [process.communicate(timeout=100) for process in four]
    assert [out for out, _ in told] == ["12\n"] * 4, told
    assert sum(f"MNIST is downloaded into {root}" in errors for _, errors in told) == 1
    assert sum("train-images" in line for line in mirror.asked) == 2, "one asks for its length and its bytes"
    assert [path.name for path in root.iterdir()] == ["MNIST"]


def test_a_download_that_fails_leaves_nothing_behind(tmp_path: Path, mirror: Mirror) -> None:
    root = tmp_path / "root"
    root.mkdir()
    wanted = "it failed" if extras.installed("torchvision") else "it needs torchvision, "
    assert download.fetch("MNIST", mirror.address, root).startswith(wanted)
    assert list(root.iterdir()) == []


def test_a_file_without_permission_is_missing_data(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").mkdir()
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-images-idx3-ubyte").unlink()
    assert "cannot be read" in refused("mnist", tmp_path)


def test_packed_and_plain_files_may_stand_side_by_side(tmp_path: Path) -> None:
    place = Place("p", "home", ("a", ""))
    (tmp_path / "one.gz").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "two").touch()
    found = place.find(tmp_path, ("one", "two"))
    assert found == {"one": tmp_path / "one.gz", "two": tmp_path / "a" / "two"}


def test_every_name_is_listed_with_what_it_takes() -> None:
    names = datasets.names()
    assert {
        "digits",
        "mnist",
        "fashion-mnist",
        "emnist",
        "cifar10",
        "cifar100",
        "uci-har",
        "tiny-imagenet",
    } <= {*names}
    assert {"organamnist", "organcmnist", "organsmnist", "folder:NAME[:SIDE]", "npz:NAME"} <= {*names}
    assert names == sorted(names)


def test_making_ready_does_not_touch_what_is_stored() -> None:
    part = Part(np.ones((2, 1, 2, 2), np.float32), np.zeros(2, np.int64))
    made = Dataset("d", 1, part, part, Scaling(mean=(1.0,), std=(2.0,)))
    assert made.ready(part).x.max() == 0.0
    assert part.x.max() == 1.0


def test_the_example_of_the_guide_works(tmp_path: Path) -> None:
    guide = Path(__file__).resolve().parents[2] / "docs" / "add-a-dataset.md"
    example: dict[str, Any] = {}
    exec(guide.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0], example)
    x, _ = write_mnist(tmp_path / "KMNIST/raw")
    found = example["SETS"]["kmnist"].read("kmnist", tmp_path)
    assert np.array_equal(found.train.x[:, 0], x)
