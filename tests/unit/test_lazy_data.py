"""Own data that stay where they are: mapped files, Datasets, factories; what they become, every mistake."""

from __future__ import annotations

import ctypes
import errno
import gc
import mmap
import os
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from edgeflock.client.training import lazy
from edgeflock.common.datasets.kit import own, stored
from edgeflock.common.datasets.kit.base import Array, Scaling
from edgeflock.common.datasets.kit.formats import npz
from edgeflock.common.datasets.kit.own import Fit, OwnPart, check, fits, load_own, load_part
from edgeflock.common.datasets.kit.stored import Arrays, Items
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.tasks.classification import TASK
from edgeflock.common.tasks.kit import registry as tasks
from edgeflock.methods.kit.batches import BatchFeed, LocalData, Stock, pick
from edgeflock.methods.kit.order import Order

RANDOM = np.random.default_rng(3)
PICTURES = RANDOM.integers(0, 256, (40, 6, 6, 3), dtype=np.uint8)
LABELS = np.arange(40) % 4
STANDARD = Scaling(mean=(0.1, 0.2, 0.3), std=(0.3, 0.2, 0.1))
CPU = torch.device("cpu")


def both(found: Any, fit: Fit, monkeypatch: pytest.MonkeyPatch) -> tuple[Stock, Stock]:
    """Return the same samples made ready at once, and when they are needed."""
    eager = lazy.stock(found, fit, CPU)
    monkeypatch.setattr(lazy, "READY_BYTES", 0)
    monkeypatch.setattr(lazy, "memory_bytes", lambda: 0)
    return eager, lazy.stock(found, fit, CPU)


def batches(stock: Stock, order: Order, steps: int) -> list[tuple[bytes, bytes]]:
    found = BatchFeed().batches(stock, order, 2, steps)
    return [(batch.x.numpy().tobytes(), batch.y.numpy().tobytes()) for batch in found]


@pytest.mark.parametrize("size", [7, 0])
def test_samples_that_are_made_ready_when_they_are_needed_are_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    eager, late = both(Arrays("a", PICTURES, LABELS), Fit((3, 6, 6), STANDARD, TASK(4)), monkeypatch)
    assert isinstance(eager, LocalData)
    assert not isinstance(late, LocalData)
    order = Order(40, size, 5, 1)
    assert batches(late, order, 9) == batches(eager, order, 9)
    for one, other in zip(late.parts(16), eager.parts(16), strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
    assert torch.equal(pick(late, order, 2, 8).x, pick(eager, order, 2, 8).x)


TASKS: dict[str, tuple[Array, Array, int]] = {
    "classification": (PICTURES, LABELS, 4),
    "regression": (RANDOM.normal(size=(40, 5)), RANDOM.normal(size=(40, 2)), 2),
    "multilabel": (PICTURES, RANDOM.integers(0, 2, (40, 3)), 3),
    "segmentation": (PICTURES, RANDOM.integers(0, 3, (40, 6, 6), dtype=np.uint8), 3),
    "autoencoder": (PICTURES, np.zeros((40, 0), np.float32), 108),
    "next-token": (RANDOM.integers(0, 9, (40, 6), dtype=np.uint8), np.zeros((40, 0), np.float32), 9),
}


@pytest.mark.parametrize("name", TASKS)
def test_of_every_task_mapped_samples_are_the_bits_of_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    x, y, outputs = TASKS[name]
    np.save(tmp_path / "x.npy", x)
    if y.size:
        np.save(tmp_path / "y.npy", y)
    found = load_own(tmp_path).train
    fit = fits(found, found.input_shape, tasks.load(name)(outputs), Scaling())
    eager, late = both(found, fit, monkeypatch)
    assert batches(late, Order(40, 7, 5, 1), 9) == batches(eager, Order(40, 7, 5, 1), 9)


@pytest.mark.parametrize("kind", ["uint8", "float32", "float64", "float16"])
def test_large_arrays_of_an_archive_are_mapped_and_mean_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = tmp_path / "own.npz"
    np.savez(
        path, x=PICTURES.astype(kind), y=LABELS, x_test=np.asfortranarray(PICTURES[:3]), y_test=LABELS[:3]
    )
    whole = load_part(path)
    monkeypatch.setattr(npz, "MAPPED_BYTES", 1)
    found = load_own(path)
    assert isinstance(found.train, Arrays)
    assert isinstance(npz.read(path)["x"], np.memmap)
    assert np.array_equal(
        Fit((3, 6, 6), STANDARD, TASK(4)).of(*found.train.take(np.arange(40)))[0].numpy(),
        check(whole, (3, 6, 6), TASK(4), STANDARD).x,
    )
    assert found.test is not None
    assert np.array_equal(found.test.take(np.arange(3))[0], PICTURES[:3].transpose(0, 3, 1, 2))


def test_a_mapped_archive_that_was_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.npz"
    np.savez(path, x=PICTURES, y=LABELS)
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    monkeypatch.setattr(npz, "MAPPED_BYTES", 1)
    with pytest.raises(EdgeflockError, match=r"own.npz: array 'x' cannot be read \(Bad CRC-32"):
        load_own(path)


def resident_files_mib() -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"RssFile:\s+(\d+)", status)
    assert found
    return int(found[1]) // 1024


class Rows:
    """A Dataset over a mapped array."""

    def __init__(self, file: Path) -> None:
        self.mapped = [np.load(file, mmap_mode="r")]

    def __len__(self) -> int:
        return len(self.mapped[0])

    def __getitem__(self, row: int) -> tuple[Array, int]:
        return self.mapped[0][row], 0


@pytest.fixture
def small_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may have 700 MB."""
    for module in (lazy, stored):
        monkeypatch.setattr(module, "memory_bytes", lambda: 700 << 20)


@pytest.mark.usefixtures("small_device")
@pytest.mark.parametrize("as_dataset", [False, True])
def test_of_a_large_mapped_file_little_stays_in_memory(tmp_path: Path, as_dataset: bool) -> None:
    """400 MB, looked through and trained on in shuffled order; in a sparse file, which is quickly made."""
    (tmp_path / "own").mkdir()
    np.lib.format.open_memmap(tmp_path / "own/x.npy", "w+", np.float32, (8000, 12_500))
    np.save(tmp_path / "own/y.npy", np.zeros(8000, np.int64))
    before = resident_files_mib()
    found = Items("rows", Rows(tmp_path / "own/x.npy")) if as_dataset else load_own(tmp_path / "own").train
    late = lazy.stock(found, own.fits(found, (12_500,), TASK(1), Scaling()), CPU)
    most = 0
    for _ in BatchFeed().batches(late, Order(8000, 64, 0, 0), 1, 125):
        most = max(most, resident_files_mib() - before)
    assert most < 100


@pytest.mark.usefixtures("small_device")
def test_of_a_large_mapped_file_no_more_is_read_from_the_disk_than_is_asked_for(tmp_path: Path) -> None:
    """By itself the system reads what lies around a sample, too: with little memory, again for each one."""
    path = tmp_path / "x.npy"
    np.lib.format.open_memmap(path, "w+", np.float32, (64_000, 784))
    found = load_own(path).train
    assert isinstance(found, Arrays)
    found.rest()
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    rows = np.arange(500, 64_000, 1000)
    before = in_cache(path)
    assert np.array_equal(found.take(rows)[0], np.zeros((64, 784), np.float32))
    assert before == 0
    assert in_cache(path) <= 64 * 2 * mmap.PAGESIZE


def in_cache(path: Path) -> int:
    """Return how many bytes of a file the system holds in memory."""
    libc, size = ctypes.CDLL(None, use_errno=True), path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        said, start = (ctypes.c_ubyte * pages)(), np.frombuffer(mapped, np.uint8)
        address = ctypes.c_void_p(start.ctypes.data)
        del start
        assert libc.mincore(address, ctypes.c_size_t(size), said) == 0
    return sum(one & 1 for one in said) * mmap.PAGESIZE


def test_samples_are_made_ready_while_there_is_room_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sixteenth of the memory is given out once; what nobody has any more is given out again."""
    monkeypatch.setattr(lazy, "READY_BYTES", 0)
    monkeypatch.setattr(lazy, "memory_bytes", lambda: 16 * 1000)
    arrays = Arrays("a", np.ones((40, 5), np.float32), LABELS)  # 800 bytes
    room, fit = lazy.ReadyRoom(), Fit((5,), Scaling(), TASK(4))
    first = lazy.stock(arrays, fit, CPU, room)
    second = lazy.stock(arrays, fit, CPU, room)
    assert isinstance(first, LocalData)
    assert not isinstance(second, LocalData)
    assert not isinstance(lazy.stock(Items("b", Jittered()), Fit((3,), Scaling(), TASK(3)), CPU), LocalData)
    del first
    gc.collect()
    third = lazy.stock(arrays, fit, CPU, room)
    assert isinstance(third, LocalData)
    monkeypatch.setattr(lazy, "free_bytes", lambda: 3000)
    del third
    assert not isinstance(lazy.stock(arrays, fit, CPU, room), LocalData)


def test_a_file_that_the_address_space_has_no_room_for_is_no_wrong_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", PICTURES)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(np.lib.format, "open_memmap", refuse)
    with pytest.raises(EdgeflockError, match=r"x.npy cannot be read: Cannot allocate memory; ulimit -v must"):
        load_own(tmp_path / "x.npy")


class Jittered(Dataset[Any]):
    """Items that draw from all three generators."""

    def __init__(self, count: int = 12) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        noise = torch.rand(3) + float(np.random.rand()) + random.random()
        return torch.full((3,), float(row)) + noise, row % 3


def test_what_a_dataset_draws_is_a_function_of_seed_seat_round_epoch_and_row() -> None:
    items = Items("mine", Jittered())
    late, order = lazy.stock(items, Fit((3,), Scaling(), TASK(3)), CPU), Order(12, 5, 1, 0)
    assert not isinstance(late, LocalData)
    first = batches(late, order, 6)
    torch.manual_seed(99)
    random.seed(99)
    states = random.getstate(), torch.get_rng_state()
    assert batches(late, order, 6) == first
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert pick(late, order, 2, 4).x.numpy().tobytes() == first[4][0]
    assert batches(late, Order(12, 5, 2, 0), 6) != first
    assert {x for x, _ in first[:3]}.isdisjoint(x for x, _ in first[3:])  # another epoch, other draws


MODULE = """
import numpy as np, torch
from torch.utils.data import TensorDataset
X, Y = np.ones((8, 5), np.float32), np.arange(8) % 3
def arrays(): return X, Y
def tensors(): return torch.from_numpy(X), torch.from_numpy(Y)
def four(): return X, Y, X[:2], Y[:2]
def named(): return {"x": X, "y": Y, "x_test": X[:2], "y_test": Y[:2]}
def dataset(): return TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
def datasets(): return dataset(), TensorDataset(torch.from_numpy(X[:2]), torch.from_numpy(Y[:2]))
def of(client_id): return X[:3] if client_id == "c7" else X, Y[:3] if client_id == "c7" else Y
def hinted(client_id="nobody", many=3): return of(client_id)
def unlabelled(): return X
DATASET = dataset()

def fails():
    rows = {}
    return rows["x"], None
def leaves(): raise SystemExit(3)
def nothing(): pass
def text(): return "x"
def three(): return X, Y, X
def ragged(): return [[1, 2], [3]], [0, 1]
def shorter(): return X, Y[:3]
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self): return iter([])
def stream(): return Stream()
class Odd(torch.utils.data.Dataset):
    def __init__(self, fault): self.fault = fault
    def __len__(self): return 6
    def __getitem__(self, row):
        fault = self.fault if row == 4 else ""
        if fault == "raises": return {}["missing"]
        x = np.zeros(6 if fault == "shape" else 5, np.float64 if fault == "kind" else np.float32)
        if fault == "nan": x[2] = np.nan
        if fault == "text": x = "four"
        return x, (np.zeros(2) if fault == "label" else 1)
def odd_raises(): return Odd("raises")
def odd_shape(): return Odd("shape")
def odd_kind(): return Odd("kind")
def odd_nan(): return Odd("nan")
def odd_text(): return Odd("text")
def odd_label(): return Odd("label")
def empty(): return TensorDataset(torch.zeros(0, 2))
def misnamed(): return {"x": X, "labels": Y}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "brought.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "brought"
    sys.modules.pop("brought", None)


def made(reference: str, client_id: str = "c0") -> OwnPart:
    return load_own(Path(reference), client_id)


@pytest.mark.parametrize(
    ("name", "tested"),
    [
        *[(name, 0) for name in ("arrays", "tensors", "dataset", "DATASET", "of", "hinted")],
        *[(name, 2) for name in ("four", "named", "datasets")],
    ],
)
def test_a_factory_may_return_arrays_a_dict_or_datasets(module: str, name: str, tested: int) -> None:
    found = made(f"{module}:{name}")
    assert (len(found.train), found.input_shape, found.highest_label) == (8, (5,), 2)
    assert (len(found.test) if found.test is not None else 0) == tested


def test_a_factory_is_told_for_which_client_it_is_asked(module: str) -> None:
    assert [len(made(f"{module}:{name}", "c7").train) for name in ("of", "hinted", "arrays")] == [3, 3, 8]


def test_data_without_labels_are_read_and_classification_refuses_them(module: str) -> None:
    found = made(f"{module}:unlabelled")
    assert next(found.train.labels()).shape == (8, 0)
    with pytest.raises(
        EdgeflockError, match=r"brought:unlabelled: there are no labels \(y\), needed is one whole number"
    ):
        fits(found.train, found.input_shape, TASK(3), Scaling())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_such", r"--data is 'brought:no_such', allowed is package.module:factory, importable from here"),
        ("fails", r"--data brought:fails failed: KeyError: x \(brought.py:18\)"),
        ("leaves", r"--data brought:leaves failed: SystemExit: 3 \(brought.py:19\)"),
        ("nothing", "brought:nothing returned nothing, allowed are (x, y), x alone"),
        ("misnamed", "brought:misnamed returned a dict with labels, allowed are x, y, x_test, y_test"),
        ("text", "brought:text returned str, allowed are"),
        ("three", r"returned a tuple of 3 (ndarray, ndarray, ndarray), allowed are"),
        ("ragged", "brought:ragged: x is no array of numbers: setting an array element with a sequence"),
        ("shorter", "brought:shorter: x has 8 samples and y 3 labels"),
        ("stream", "brought:stream returned Stream without __len__, allowed are"),
        (
            "odd_raises",
            r"brought:odd_raises: item 4 of the Dataset failed: KeyError: missing \(brought.py:33\)",
        ),
        ("odd_shape", "brought:odd_shape: x of item 4 is float32 6, that of the first item is float32 5"),
        ("odd_kind", "brought:odd_kind: x of item 4 is float64 5, that of the first item is float32 5"),
        ("odd_nan", "brought:odd_nan: x has a value that is not a finite number in sample 4"),
        ("odd_text", "brought:odd_text: x of item 4 is <U4, needed are numbers"),
        ("odd_label", "brought:odd_label: y of item 4 is float64 2, that of the first item is int64 ()"),
        ("empty", "brought:empty: the Dataset has no samples, needed is at least one"),
    ],
)
def test_every_mistake_of_a_factory_is_a_sentence(module: str, name: str, sentence: str) -> None:
    with pytest.raises(EdgeflockError) as refusal:
        made(f"{module}:{name}")
    assert sentence.replace("\\", "") in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_a_folder_of_npy_files_and_one_alone_are_own_data(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", PICTURES)
    assert next(load_own(tmp_path / "x.npy").train.labels()).shape == (40, 0)
    np.save(tmp_path / "y.npy", LABELS)
    found = load_own(tmp_path)
    assert (found.input_shape, found.highest_label, found.test) == ((3, 6, 6), 3, None)
    (tmp_path / "x.npy").write_bytes(b"nonsense")
    with pytest.raises(EdgeflockError, match=r"x\.npy is not an \.npy file"):
        load_own(tmp_path)


def test_a_share_is_held_out_by_seed_and_seat_and_what_is_added_later_moves_nothing() -> None:
    x, y = np.arange(300, dtype=np.float32).reshape(100, 3), np.arange(100)
    few, many = (OwnPart(Arrays("a", x[:count], y[:count]), None) for count in (80, 100))
    kept = own.held_out(many, 0.2, 7, 1)
    assert kept.test is not None
    train, test = (np.concatenate(list(part.labels())) for part in (kept.train, kept.test))
    assert 10 < len(test) < 30
    assert sorted([*train, *test]) == list(range(100))
    assert np.array_equal(kept.test.take(np.arange(len(test)))[0][:, 0], 3.0 * test)
    before = own.held_out(few, 0.2, 7, 1)
    assert before.test is not None
    assert np.array_equal(np.concatenate(list(before.test.labels())), test[test < 80])
    other = own.held_out(many, 0.2, 7, 2)
    assert other.test is not None
    assert not np.array_equal(np.concatenate(list(other.test.labels())), test)
    assert own.held_out(OwnPart(many.train, few.train), 0.2, 7, 1).test is few.train, "they bring their own"
