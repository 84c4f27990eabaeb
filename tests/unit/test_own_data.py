"""A client's own data: what is taken and how, and every refusal as one sentence."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from edgeflock.client.config import ClientConfig
from edgeflock.client.training.data import HostedData
from edgeflock.common.datasets.kit import own, registry
from edgeflock.common.datasets.kit.base import Array, Part, Scaling
from edgeflock.common.datasets.kit.own import Reading, check, check_names, fits, how, load_own, load_part
from edgeflock.common.datasets.kit.stored import Items, Stored
from edgeflock.common.errors import BadData, EdgeflockError, MissingData
from edgeflock.common.partitions.kit.assign import cut
from edgeflock.common.payload.layout import NO_BUFFERS, NO_COUNTERS, Layout, ModelLayouts
from edgeflock.common.run import DataDescription, ModelDescription, RunDescription
from edgeflock.common.scores import LOCAL
from edgeflock.common.tasks.classification import TASK
from support.training import whole

RANDOM = np.random.default_rng(0)


def write(path: Path, **arrays: Array) -> Path:
    np.savez(path, allow_pickle=True, **arrays)
    return path


def good(**changed: Array) -> dict[str, Array]:
    return {"x": RANDOM.normal(3, 9, (8, 5)), "y": np.arange(8) % 3, **changed}


def labels(stored: Stored) -> Array:
    return np.concatenate(list(stored.labels()))


def read(path: Path) -> None:
    """Read all that there is, as a run of many classes does."""
    for one in load_own(path).parts:
        fits(one, one.input_shape, TASK(2**31), Scaling())


def refused(path: Path) -> str:
    with pytest.raises(EdgeflockError) as refusal:
        read(path)
    assert isinstance(refusal.value, BadData | MissingData)
    assert refusal.value.exit_code == 2
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_floats_are_taken_as_they_are(tmp_path: Path, kind: str) -> None:
    arrays = good()
    arrays["x"] = arrays["x"].astype(kind)
    path = write(tmp_path / "own.npz", **arrays)
    part = load_part(path)
    ready = check(part, (5,), TASK(3), Scaling()).x
    assert ready.dtype == np.float32
    assert np.array_equal(ready, arrays["x"].astype(np.float32))
    assert load_own(path).test is None


def test_bytes_are_divided_by_255_and_nothing_else_without_a_data_set(tmp_path: Path) -> None:
    x = np.array([[0, 51, 255]], np.uint8)
    part = load_part(write(tmp_path / "own.npz", x=x, y=np.zeros(1, np.int64)))
    np.testing.assert_allclose(check(part, (3,), TASK(1), registry.scaling(None)).x, [[0, 0.2, 1]], rtol=1e-6)


def test_bytes_beside_a_data_set_become_what_its_own_do(tmp_path: Path) -> None:
    digits = registry.load("digits")
    part = load_part(write(tmp_path / "own.npz", x=digits.test.x[:, 0], y=digits.test.y))
    fitting = check(part, digits.input_shape, TASK(digits.classes), registry.scaling("digits"))
    assert np.array_equal(fitting.x, digits.ready(digits.test).x)
    with pytest.raises(BadData, match="bytes go up to 255, those of this run's data set to 16: give floats"):
        check(
            Part(np.full((1, 1, 8, 8), 255, np.uint8), np.zeros(1, np.int64)),
            (1, 8, 8),
            TASK(10),
            digits.scaling,
        )


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        ("mnist", (1 - 0.1307) / 0.3081),
        ("mnist:unit", 1.0),
        ("fashion-mnist", (1 - 0.2860) / 0.3530),
        ("organamnist", 1.0),
        ("npz:mine", 1.0),
        ("folder:fire:64", 1.0),
        ("unknown here", 1.0),
    ],
)
def test_a_client_knows_the_scaling_of_a_data_set_whose_files_it_lacks(spec: str, made: float) -> None:
    whole = Part(np.full((1, 1, 2, 2), 255, np.uint8), np.zeros(1, np.int64))
    assert check(whole, (1, 2, 2), TASK(1), registry.scaling(spec)).x.max() == pytest.approx(made)


def test_floats_are_left_as_they_are_and_it_is_said_which_it_was() -> None:
    floats = Part(np.full((1, 1, 2, 2), 3, np.float32), np.zeros(1, np.int64))
    assert check(floats, (1, 2, 2), TASK(1), registry.scaling("mnist")).x.max() == 3
    assert how(floats, registry.scaling("mnist"), TASK(1)) == "floats, as they are"
    stored = Part(floats.x.astype(np.uint8), floats.y)
    assert how(stored, registry.scaling("mnist"), TASK(1)) == "bytes, over 255, less 0.1307, over 0.3081"
    assert how(stored, registry.scaling("digits"), TASK(1)) == "bytes, over 16"


def test_nothing_is_held_out(tmp_path: Path) -> None:
    arrays = good()
    own = load_own(write(tmp_path / "own.npz", **arrays))
    assert len(own.train) == 8
    assert np.array_equal(labels(own.train), arrays["y"])
    assert own.highest_label == 2


def test_a_test_part_is_taken_if_it_is_there(tmp_path: Path) -> None:
    own = load_own(write(tmp_path / "own.npz", **good(x_test=np.ones((2, 5)), y_test=np.array([7, 0]))))
    assert own.test is not None
    assert list(labels(own.test)) == [7, 0]
    assert own.highest_label == 7


@pytest.mark.parametrize("kind", ["uint8", "int32", "int64", "uint64"])
def test_labels_may_be_any_whole_numbers(tmp_path: Path, kind: str) -> None:
    part = load_part(write(tmp_path / "own.npz", **good(y=np.arange(8).astype(kind)[:, None])))
    y = check(part, (5,), TASK(8), Scaling()).y
    assert y.dtype == np.int64
    assert list(y) == list(range(8))


@pytest.mark.parametrize(
    ("stored", "seen"),
    [((8, 28, 28), (1, 28, 28)), ((8, 6, 6, 3), (3, 6, 6)), ((8, 3, 6, 6), (3, 6, 6)), ((8, 561), (561,))],
)
def test_images_have_their_channels_first(
    tmp_path: Path, stored: tuple[int, ...], seen: tuple[int, ...]
) -> None:
    part = load_part(write(tmp_path / "own.npz", **good(x=RANDOM.integers(0, 255, stored, dtype=np.uint8))))
    assert part.input_shape == seen
    assert part.x.flags["C_CONTIGUOUS"]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"x": np.zeros((7, 5))}, "x has 7 samples and y 8 labels"),
        ({"x": np.zeros((0, 5)), "y": np.zeros(0, np.int64)}, "x has no samples, needed is at least one"),
        ({"x": np.full((8, 5), np.nan)}, "x has a value that is not a finite number in sample 0"),
        ({"x": np.full((8, 5), 1e300)}, "not a finite number"),
        ({"x": np.zeros((8, 5), np.complex64)}, "x is complex64"),
        ({"x": np.zeros(8)}, "x has the shape 8, needed is samples x features"),
        ({"x": np.zeros((8, 0))}, "x has the shape 8x0"),
        ({"x": np.array([None] * 8)}, "'x' holds Python objects"),
        ({"x": np.array(["a"] * 8)[:, None]}, "x is <U1"),
        ({"y": np.array([-1] * 8)}, "y has the label -1, allowed are 0 and above"),
        ({"y": np.zeros(8)}, "y is float64 of shape 8, needed is one whole number per sample"),
        ({"y": np.array(["a"] * 8)}, "y is <U1"),
        ({"y": np.array([object()] * 8)}, "'y' holds Python objects"),
        ({"y": np.eye(8, dtype=np.int64)}, "y is int64 of shape 8x8"),
        ({"y": np.array(3)}, "y is int64 of shape ()"),
        ({"y": np.full(8, 2**63, np.uint64)}, "labels below 2^31"),
        ({"x_test": np.zeros((2, 5))}, "has no array 'y_test'"),
        ({"y_test": np.zeros(2, np.int64)}, "has no array 'x_test'"),
        ({"x_test": np.zeros((2, 4)), "y_test": np.zeros(2, np.int64)}, "different shapes, 5 and 4"),
        (
            {"x_test": np.zeros((2, 5)), "y_test": np.zeros(3, np.int64)},
            "x_test has 2 samples and y_test 3 labels",
        ),
    ],
)
def test_what_cannot_be_trained_on_is_refused(
    tmp_path: Path, changed: dict[str, Array], sentence: str
) -> None:
    path = write(tmp_path / "own.npz", **good(**changed))
    said = refused(path)
    assert said.startswith(str(path))
    assert sentence in said


def test_one_bad_number_is_found_and_named(tmp_path: Path) -> None:
    x = np.zeros((8, 1, 4, 4), np.float32)
    x[5, 0, 2, 2] = np.inf
    assert "in sample 5" in refused(write(tmp_path / "own.npz", **good(x=x)))


def test_missing_arrays_are_named(tmp_path: Path) -> None:
    assert "has no array 'x', needed are x and y; it holds images, labels" in refused(
        write(tmp_path / "own.npz", images=np.zeros(1), labels=np.zeros(1))
    )


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"PK\x03\x04 but no archive", b"\x93NUMPY broken", b"\x80\x04N."]
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "own.npz"
    path.write_bytes(content)
    assert refused(path) == f"{path} is not an .npz archive of NumPy"
    other = path.rename(tmp_path / "own.txt")
    assert refused(other).endswith(
        "is not an .npz archive of NumPy, nor a .csv, .parquet, .npy, a folder or package.module:factory"
    )


def test_a_single_array_is_not_an_archive(tmp_path: Path) -> None:
    with (tmp_path / "own.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    assert "holds a single array" in refused(tmp_path / "own.npz")


@pytest.mark.parametrize("position", [0.3, 0.6, 0.9])
def test_an_archive_cut_or_changed_is_refused(tmp_path: Path, position: float) -> None:
    path = tmp_path / "own.npz"
    np.savez_compressed(path, x=RANDOM.normal(size=(50, 50)), y=np.arange(50))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * position)])
    assert str(path) in refused(path)
    changed = bytearray(whole)
    changed[len(whole) // 3] ^= 0xFF
    path.write_bytes(bytes(changed))
    assert "'x' cannot be read" in refused(path)


@pytest.mark.parametrize("claim", [b"(80, 10000000000)", b"(8, 1000", b"(8, 'a')"])
def test_a_wrong_header_is_refused(tmp_path: Path, claim: bytes) -> None:
    """More than any memory holds, an open bracket, a word for a size: with checksums that are right."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': " + claim + b", }"
    header = header.ljust(117) + b"\n"
    path = tmp_path / "own.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(800))
        archive.writestr("notes", b"not an array")
    assert "'x' cannot be read" in refused(path)


def test_what_stands_in_an_archive_without_being_an_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", b"not an array")
    assert "'x' is not an array of NumPy" in refused(path)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert refused(tmp_path / "no.npz").endswith("no.npz is not there or not a file")


def part(*shape: int, highest: int = 0) -> Part:
    return Part(np.zeros((2, *shape), np.float32), np.array([0, highest]))


@pytest.mark.parametrize(
    ("have", "need"),
    [
        ((1, 28, 28), (1, 28, 28)),
        ((28, 28), (1, 28, 28)),
        ((1, 9, 128), (9, 128)),
        ((561,), (561,)),
        ((1, 561), (561,)),
    ],
)
def test_a_channel_of_one_may_be_missing_or_too_many(have: tuple[int, ...], need: tuple[int, ...]) -> None:
    assert check(part(*have), need, TASK(10), Scaling()).input_shape == need


@pytest.mark.parametrize(
    ("have", "need", "sentence"),
    [
        ((1, 8, 8), (1, 28, 28), "samples have the shape 1x8x8, this run needs 1x28x28"),
        ((3, 32, 32), (1, 32, 32), "3x32x32"),
        ((784,), (1, 28, 28), "samples have the shape 784, this run needs 1x28x28"),
        ((1,), (5,), "this run needs 5"),
    ],
)
def test_another_shape_than_the_run_s_is_refused(
    have: tuple[int, ...], need: tuple[int, ...], sentence: str
) -> None:
    with pytest.raises(BadData, match=sentence):
        check(part(*have), need, TASK(10), Scaling())


def test_labels_outside_the_run_s_classes_are_refused() -> None:
    assert check(part(5, highest=9), (5,), TASK(10), Scaling()).y.max() == 9
    with pytest.raises(BadData, match=r"labels go up to 10, this run has 10 classes: 0 to 9"):
        check(part(5, highest=10), (5,), TASK(10), Scaling())


def write_image(path: Path, array: Array) -> None:
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(array).save(path)


def test_a_folder_of_images_is_own_data(tmp_path: Path) -> None:
    for label, name in enumerate(["cat", "dog"]):
        for k in range(3):
            write_image(tmp_path / name / f"{k}.png", np.full((4, 5), 51 * label, np.uint8))
    own = load_own(tmp_path)
    assert own.input_shape == (1, 4, 5)
    assert list(labels(own.train)) == [0, 0, 0, 1, 1, 1]
    assert check(load_part(tmp_path), (1, 4, 5), TASK(2), Scaling()).x.max() == pytest.approx(0.2)
    assert own.test is None
    assert load_own(tmp_path, reading=Reading(size=8)).input_shape == (1, 8, 8)


def test_a_device_that_lacks_a_class_keeps_the_numbers_of_the_others(tmp_path: Path) -> None:
    """By number in the folder's name, or by a list of all classes."""
    write_image(tmp_path / "numbers/07/a.png", np.zeros((4, 4), np.uint8))
    assert list(labels(load_own(tmp_path / "numbers").train)) == [7]
    write_image(tmp_path / "names/dog/a.png", np.zeros((4, 4), np.uint8))
    (tmp_path / "names/classes.txt").write_text("cat\ndog\n\nhorse\n")
    assert list(labels(load_own(tmp_path / "names").train)) == [1]


def test_a_device_that_lacks_a_class_and_does_not_say_which_is_refused(tmp_path: Path) -> None:
    for name in ("cat", "horse"):
        write_image(tmp_path / name / "a.png", np.zeros((4, 4), np.uint8))
    check_names(load_own(tmp_path), 2)
    with pytest.raises(
        BadData, match=r"has folders of 2 classes \(cat, horse\), this run has 3: put a classes.txt"
    ):
        check_names(load_own(tmp_path), 3)
    (tmp_path / "classes.txt").write_text("cat\ndog\nhorse\n")
    found = load_own(tmp_path)
    check_names(found, 3)
    assert list(labels(found.train)) == [0, 2]


def test_pictures_of_two_sizes_are_brought_to_one_that_is_said(tmp_path: Path) -> None:
    for side in (4, 6):
        write_image(tmp_path / "cat" / f"{side}.png", np.full((side, side), 7, np.uint8))
    assert "is 6x6 pixels, the first image is 4x4: give one size for all, --size 64" in refused(tmp_path)
    assert load_own(tmp_path, reading=Reading(size=5)).input_shape == (1, 5, 5)


def test_many_pictures_are_decoded_when_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for label in range(2):
        for k in range(3):
            write_image(tmp_path / str(label) / f"{k}.png", np.full((4, 4, 3), 10 * k + label, np.uint8))
    few = load_own(tmp_path).train
    monkeypatch.setattr(own, "DECODED_BYTES", 0)
    many = load_own(tmp_path).train
    rows = np.array([4, 0, 5])
    assert isinstance(many, Items)
    for one, other in zip(few.take(rows), many.take(rows), strict=True):
        assert np.array_equal(one, other)


def test_a_folder_with_train_and_test_brings_its_test_part(tmp_path: Path) -> None:
    for half, count in (("train", 3), ("test", 1)):
        for k in range(count):
            write_image(tmp_path / half / "only" / f"{k}.png", np.zeros((4, 4, 3), np.uint8))
    own = load_own(tmp_path)
    assert own.test is not None
    assert (len(own.train), len(own.test)) == (3, 1)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    assert "holds no images in sub-folders" in refused(tmp_path)
    write_image(tmp_path / "tiger/a.png", np.zeros((4, 4), np.uint8))
    (tmp_path / "classes.txt").write_text("cat\n")
    assert "tiger is the folder of no class, the classes are cat" in refused(tmp_path)


@pytest.mark.parametrize(("partition", "alike"), [("fedadm:3", True), ("fedadm:1", False), ("iid", False)])
def test_clients_with_the_same_samples_have_them_once(partition: str, alike: bool) -> None:
    """As long as any of them is there: the seats of another run have their own memory again."""
    hosted = HostedData(ClientConfig(), torch.device("cpu"))
    model, data = ModelDescription("mlp", (1, 8, 8), 10), DataDescription("digits", partition, 0, 3, 0, 0.0)
    layouts = ModelLayouts(Layout.single("w", 1), NO_BUFFERS, NO_COUNTERS)
    run = RunDescription("r", 0, 0, "fedavg", {}, model, layouts, data, 3)
    members = [hosted.member(run, f"c{seat}", seat) for seat in range(3)]
    assert len({id(member.data) for member in members}) == (1 if alike else 3)
    digits = registry.load("digits")
    for seat in range(3):
        part = cut(digits, partition=partition, seed=0, shards=3, index=seat)
        x, y = whole(members[seat].data)
        assert torch.equal(x, torch.from_numpy(part.x))
        assert torch.equal(y, torch.from_numpy(part.y))
    assert len(hosted._shards) == (1 if alike else 3)
    del members
    assert not hosted._shards


def test_a_client_s_own_bytes_become_what_those_of_the_run_s_data_set_do(tmp_path: Path) -> None:
    digits = registry.load("digits")
    stored = {"x": digits.test.x, "y": digits.test.y, "x_test": digits.test.x, "y_test": digits.test.y}
    hosted = HostedData(ClientConfig(data=write(tmp_path / "own.npz", **stored)), torch.device("cpu"))
    assert hosted.own("c0") is not None
    model, data = ModelDescription("mlp", (1, 8, 8), 10), DataDescription("digits", "iid", 0, 4, 0, 0.0)
    layouts = ModelLayouts(Layout.single("w", 1), NO_BUFFERS, NO_COUNTERS)
    run = RunDescription("r", 0, 0, "fedavg", {}, model, layouts, data, 4)
    member, expected = hosted.member(run, "c0", 0), torch.from_numpy(digits.ready(digits.test).x)
    local = member.tests.of(LOCAL)
    assert local is not None
    assert torch.equal(whole(member.data)[0], expected)
    assert torch.equal(whole(local)[0], expected)
