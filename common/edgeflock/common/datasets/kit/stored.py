"""Samples as they are stored: arrays, perhaps mapped, or a Dataset; read when they are asked for."""

from __future__ import annotations

import hashlib
import mmap
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from edgeflock.common import seeds
from edgeflock.common.datasets.kit.base import Array, Indices
from edgeflock.common.datasets.kit.formats.npz import channels_first
from edgeflock.common.errors import BadData, NothingYet
from edgeflock.common.foreign import ForeignError, foreign
from edgeflock.common.room import memory_bytes

BLOCK_BYTES = 4 << 20  # read at once where everything is looked at
KEPT_BYTES = 64 << 20  # labels of a Dataset, at most, that are remembered
RESIDENT_BYTES = 64 << 20  # pages of a large mapped file, at most, that this process holds on to
HELD_SHARE = 4  # mapped files of up to this part of the memory keep their pages: each that was given back is
# faulted in again, and a fault for each sample is half of a small model's step
AHEAD_BYTES = 128 << 10  # the system reads no more ahead for one asking, whatever it is asked for
_LOOKED_INTO = 64  # attributes of a Dataset, or entries of a list there
LOOKED_AT = 256  # samples of which a digest is made
SCATTERED = 64  # samples from anywhere in a mapped file that are taken together: with each come megabytes


class Stored(Protocol):
    """Samples that lie somewhere: x and y as they are stored, but channels first; no y is one of (n, 0)."""

    where: str  # what sentences about them begin with
    fixed: bool  # every reading gives the same numbers

    def __len__(self) -> int: ...

    @property
    def input_shape(self) -> tuple[int, ...]: ...

    @property
    def kind(self) -> np.dtype[Any]:
        """The type of the numbers of x."""
        ...

    def take(self, rows: Indices, draw: int = 0) -> tuple[Array, Array]:
        """Return x and y of these rows, copied; what is random in them is drawn from `draw`."""
        ...

    def labels(self) -> Iterator[Array]:
        """Yield y of all samples in stored order, block by block."""
        ...

    def first(self, count: int) -> Stored:
        """Return the first so many of them."""
        ...

    def rest(self) -> None:
        """For a while nobody reads them: what this process holds of their files is given back."""
        ...


def digest(stored: Stored) -> str:
    """Return what tells samples from others: of all their labels, and of some that lie far apart."""
    found = hashlib.sha256(f"{len(stored)} {stored.input_shape} {stored.kind}".encode())
    looked_at = LOOKED_AT if stored.fixed else LOOKED_AT // 16  # an item may take long
    rows = np.linspace(0, len(stored) - 1, min(looked_at, len(stored))).astype(np.int64)
    found.update(stored.take(np.unique(rows))[0].tobytes())
    for y in stored.labels():
        found.update(y.tobytes())
    return found.hexdigest()


def blocks(stored: Stored) -> Iterator[tuple[int, Array, Array]]:
    """Yield the first row, x and y of all samples in stored order, block by block."""
    size = max(1, BLOCK_BYTES // max(1, stored.kind.itemsize * int(np.prod(stored.input_shape))))
    for start in range(0, len(stored), size):
        rows = np.arange(start, min(start + size, len(stored)))
        yield start, *stored.take(rows)


class Arrays:
    """Two arrays, in memory or mapped."""

    fixed = True

    def __init__(self, where: str, x: Array, y: Array) -> None:
        self.where, self.x, self.y = where, channels_first(x), y
        self._pages = MappedPages((x, y))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    @property
    def kind(self) -> np.dtype[Any]:
        return self.x.dtype

    def take(self, rows: Indices, draw: int = 0) -> tuple[Array, Array]:
        if not self._pages:
            return self.x[rows], self.y[rows]
        self._pages.announce((self.x, self.y), rows)
        if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
            part = slice(int(rows[0]), int(rows[-1]) + 1)
            taken = np.array(self.x[part]), np.array(self.y[part])
            self._pages.touch(sum(half.nbytes for half in taken))
            return taken
        found = [np.empty((len(rows), *half.shape[1:]), half.dtype) for half in (self.x, self.y)]
        for start in range(0, len(rows), SCATTERED):
            some = slice(start, start + SCATTERED)
            for half, out in zip((self.x, self.y), found, strict=True):
                out[some] = half[rows[some]]
            self._pages.touch(RESIDENT_BYTES)
        return found[0], found[1]

    def labels(self) -> Iterator[Array]:
        size = max(1, BLOCK_BYTES // max(1, self.y[:1].nbytes))
        for start in range(0, len(self), size):
            self._pages.announce((self.y,), np.arange(start, min(start + size, len(self))))
            found = np.array(self.y[start : start + size])
            self._pages.touch(found.nbytes)
            yield found

    def first(self, count: int) -> Arrays:
        return Arrays(self.where, self.x[:count], self.y[:count])

    def rest(self) -> None:
        self._pages.give_back()


class MappedPages:
    """The pages of mapped files that this process holds on to: they count as its memory.

    True if the files are large. Of these only what is asked for is read, and now and then all pages are given
    back: the system would read megabytes around each sample.
    """

    def __init__(self, arrays: Iterable[Array]) -> None:
        found = (_mapping(array) for array in arrays)
        self._mapped = list({id(one): one for one in found if one is not None}.values())
        self._large = sum(map(len, self._mapped)) > memory_bytes() // HELD_SHARE
        self._starts = [np.frombuffer(one, np.uint8).ctypes.data for one in self._mapped]
        self._announced = False
        self._touched = 0

    def __bool__(self) -> bool:
        return self._large

    def announce(self, arrays: Iterable[Array], rows: Indices) -> None:
        """Say which rows will be read: the system reads them at once, and from now on nothing around them."""
        if not self._large:
            return
        if not self._announced:
            self._announced = True
            self._advise(mmap.MADV_RANDOM)
        for array in arrays:
            for mapped, start in zip(self._mapped, self._starts, strict=True):
                if start <= array.ctypes.data < start + len(mapped):
                    for begin, end in _pages(array, rows, start, len(mapped)):
                        mapped.madvise(mmap.MADV_WILLNEED, begin, end - begin)

    def touch(self, count: int) -> None:
        """Note that so many bytes were read."""
        self._touched += count
        if self._large and self._touched >= RESIDENT_BYTES:
            self.give_back()

    def give_back(self) -> None:
        self._touched = 0
        self._advise(mmap.MADV_DONTNEED)

    def _advise(self, how: int) -> None:
        for mapped in self._mapped:
            mapped.madvise(how)


def _pages(array: Array, rows: Indices, start: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where in a mapping that begins there the pages of some rows lie, in pieces that are read."""
    first = np.sort(array.ctypes.data - start + rows * array.strides[0])
    begins = first // mmap.PAGESIZE * mmap.PAGESIZE
    ends = np.minimum(np.maximum.accumulate(first + array[:1].nbytes), size)
    apart = np.flatnonzero(begins[1:] > ends[:-1]) + 1
    if len(rows):
        for begin, end in zip(begins[[0, *apart]].tolist(), ends[[*(apart - 1), -1]].tolist(), strict=True):
            for piece in range(begin, end, AHEAD_BYTES):
                yield piece, min(piece + AHEAD_BYTES, end)


def _mapping(array: Array) -> mmap.mmap | None:
    """Return the file mapping that an array lies in, if its pages can be dropped without a loss."""
    found: Any = array
    while isinstance(found, np.ndarray):
        if isinstance(found, np.memmap) and found.mode in ("r", "r+") and hasattr(mmap, "MADV_DONTNEED"):
            mapped: Any = found._mmap  # type: ignore[attr-defined]  # numpy's stubs do not know it
            return mapped if isinstance(mapped, mmap.mmap) else None
        found = found.base
    return None


def _arrays_of(thing: Any, depth: int = 3) -> Iterator[Array]:
    """Yield the arrays that a Dataset holds, or the Dataset that it was made of."""
    if isinstance(thing, np.ndarray):
        yield thing
    elif depth:
        held = thing if isinstance(thing, list | tuple) else list(getattr(thing, "__dict__", {}).values())
        for part in held[:_LOOKED_INTO]:
            yield from _arrays_of(part, depth - 1)


@runtime_checkable
class MapStyle(Protocol):
    """A map-style Dataset, as torch has them."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Any: ...


class Items:
    """A Dataset whose items are (x, y), or x alone; each is made when it is asked for.

    What an item draws from the generators of random, NumPy and torch is a function of `draw` and its row.
    """

    def __init__(self, where: str, dataset: MapStyle, *, fixed: bool = False) -> None:
        self.where, self.fixed, self._dataset = where, fixed, dataset
        self._count = self._length()
        self._pages = MappedPages(_arrays_of(dataset))
        self._first: tuple[Array, Array] | None = None
        with _own_generators():
            self._first = self._item(0, 0)
        self._labels = self._read_through()

    def __len__(self) -> int:
        return self._count

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(channels_first(self._example[0][None]).shape[1:])

    @property
    def kind(self) -> np.dtype[Any]:
        return self._example[0].dtype

    @property
    def _example(self) -> tuple[Array, Array]:
        assert self._first is not None
        return self._first

    def take(self, rows: Indices, draw: int = 0) -> tuple[Array, Array]:
        with nullcontext() if self.fixed else _own_generators():
            items = [self._item(int(row), draw) for row in rows]
        x, y = (np.stack([item[half] for item in items]) for half in (0, 1))
        self._pages.touch(RESIDENT_BYTES)
        return channels_first(x), y

    def labels(self) -> Iterator[Array]:
        if self._labels is not None:
            yield self._labels
            return
        for _, _, y in blocks(self):
            yield y

    def first(self, count: int) -> Items:
        found = copy(self)
        found._count, found._labels = count, None if self._labels is None else self._labels[:count]
        return found

    def rest(self) -> None:
        self._pages.give_back()

    def _length(self) -> int:
        with self._sentence("the length of the Dataset"):
            count = len(self._dataset)
        if count < 1:
            raise NothingYet(f"{self.where}: the Dataset has no samples, needed is at least one")
        return count

    def _read_through(self) -> Array | None:
        """Make every item once: mistakes are heard of at the start; return the labels if they are few."""
        found: list[Array] = []
        few = len(self) * self._example[1].nbytes <= KEPT_BYTES
        for start, x, y in blocks(self):
            check_finite(f"{self.where}: x", x, start)
            check_finite(f"{self.where}: y", y, start)
            found += [y] if few else []
        return np.concatenate(found) if few else None

    def _item(self, row: int, draw: int) -> tuple[Array, Array]:
        if not self.fixed:
            _seed(seeds.derive(draw, "item", row))
        with self._sentence(f"item {row} of the Dataset"):
            item = self._dataset[row]
            pair = isinstance(item, tuple | list) and len(item) == 2
            x, y = item if pair else (item, None)
            found = _array(x), (np.zeros(0, np.float32) if y is None else _array(y))
        for name, mine, first in zip("xy", found, self._first or found, strict=True):
            self._check(row, name, mine, first)
        return found

    def _check(self, row: int, name: str, mine: Array, first: Array) -> None:
        if mine.dtype.kind not in "fiub" or (name == "x" and mine.size == 0):
            what = "nothing" if mine.size == 0 else str(mine.dtype)
            wanted = "needed are numbers: items are (x, y), or x alone"
            raise BadData(f"{self.where}: {name} of item {row} is {what}, {wanted}")
        if mine.shape != first.shape or mine.dtype != first.dtype:
            found, wanted = f"{mine.dtype} {words(mine.shape)}", f"{first.dtype} {words(first.shape)}"
            raise BadData(
                f"{self.where}: {name} of item {row} is {found}, that of the first item is {wanted}"
            )

    @contextmanager
    def _sentence(self, what: str) -> Iterator[None]:
        try:
            with foreign(f"{self.where}: {what}"):
                yield
        except ForeignError as error:
            raise BadData(str(error)) from error


def check_finite(what: str, numbers: Array, start: int = 0) -> None:
    """Raise BadData if floats hold something that is no finite float32, with the sample that does."""
    if numbers.dtype.kind != "f" or not numbers.size:
        return
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite
        good = np.isfinite(numbers.astype(np.float32, copy=False))
    if not good.all():
        row = start + int(np.argmin(good.reshape(len(good), -1).all(axis=1)))
        raise BadData(f"{what} has a value that is not a finite number in sample {row}")


class Chosen:
    """Some samples of what is stored, by their rows, ascending."""

    def __init__(self, stored: Stored, rows: Indices) -> None:
        self.where, self.fixed = stored.where, stored.fixed
        self._stored, self._rows = stored, rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self._stored.input_shape

    @property
    def kind(self) -> np.dtype[Any]:
        return self._stored.kind

    def take(self, rows: Indices, draw: int = 0) -> tuple[Array, Array]:
        return self._stored.take(self._rows[rows], draw)

    def labels(self) -> Iterator[Array]:
        start = 0
        for y in self._stored.labels():
            first, last = np.searchsorted(self._rows, (start, start + len(y)))
            yield y[self._rows[first:last] - start]
            start += len(y)

    def first(self, count: int) -> Chosen:
        return Chosen(self._stored, self._rows[:count])

    def rest(self) -> None:
        self._stored.rest()


def as_array(what: str, value: Any) -> Array:
    """Return an array of NumPy or a tensor as an array that shares its memory; lists are copied."""
    try:
        found = _array(value)
    except ValueError as error:  # rows of different lengths
        raise BadData(f"{what} is no array of numbers: {error}") from error
    return found


def words(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "()"


def _array(value: Any) -> Array:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype is torch.bfloat16 else value).numpy()
    found: Array = np.asanyarray(value)
    return found


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed)


@contextmanager
def _own_generators() -> Iterator[None]:
    """Let nobody else draw from the generators of whole libraries, and leave them as they were."""
    with seeds.GLOBAL:
        before = random.getstate(), np.random.get_state(), torch.default_generator.get_state()
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            torch.default_generator.set_state(before[2])
