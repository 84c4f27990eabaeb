"""A client's own data: read as they are, refused with a sentence; nothing is held out, nothing is converted.

What the numbers are is seen to here; what a run makes of them in `fits` and `Fit`, which know the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from torch import Tensor

from edgeflock.common import seeds
from edgeflock.common.datasets.kit import factory
from edgeflock.common.datasets.kit.base import Array, Part, Scaling
from edgeflock.common.datasets.kit.formats import images, npz, table
from edgeflock.common.datasets.kit.formats.table import Columns
from edgeflock.common.datasets.kit.stored import (
    Arrays,
    Chosen,
    Items,
    Stored,
    blocks,
    check_finite,
    digest,
    words,
)
from edgeflock.common.errors import BadData, MissingData, UsageError
from edgeflock.common.plugins.loading import is_reference
from edgeflock.common.tasks.kit.base import LearningTask

DECODED_BYTES = 256 << 20  # pictures that take no more are decoded once
_ARRAYS = ("x", "y", "x_test", "y_test")
_KINDS = "nor a .csv, .parquet, .npy, a folder or package.module:factory"


@dataclass(frozen=True)
class Reading:
    """What is said of how own data are to be read."""

    size: int | None = None  # side in pixels that images of a folder are resized to
    label: tuple[str, ...] = ()  # columns of a table
    columns: tuple[str, ...] = ()  # that are the samples; (): all but the label
    growing: bool = False  # a table's last line may not be whole yet


PLAINLY = Reading()


@dataclass(frozen=True, eq=False)
class OwnPart:
    """All of `x`, `y` is training data; `test` only if the owner brings `x_test`, `y_test`."""

    train: Stored
    test: Stored | None
    guessed: tuple[str, ...] = ()  # classes by the names of folders, where nothing says that these are all
    made: tuple[tuple[object, int], ...] = ()  # Datasets of a factory
    stamp: tuple[tuple[str, int, int, int], ...] = ()  # of the files, which are others if it is another

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.train.input_shape

    @property
    def parts(self) -> tuple[Stored, ...]:
        return (self.train,) if self.test is None else (self.train, self.test)

    @cached_property
    def highest_label(self) -> int:
        """The highest label of either part; 0 where labels are no whole numbers, or there are none."""
        found = [int(y.max(initial=0)) for part in self.parts for y in part.labels() if y.dtype.kind in "iu"]
        return max((0, *found))


@dataclass(frozen=True)
class Fit:
    """What a run makes of samples as they are stored."""

    input_shape: tuple[int, ...]
    scaling: Scaling
    task: LearningTask
    tokens: bool = False  # the model takes whole numbers

    def of(self, x: Array, y: Array) -> tuple[Tensor, Tensor]:
        """Return samples as the model is given them, and labels as the task has them."""
        return self.task.tensors(self._scaled(x), y, tokens=self.tokens)

    def inputs(self, x: Array) -> Tensor:
        """Return samples alone as the model is given them."""
        return self.task.inputs(self._scaled(x), tokens=self.tokens)

    def _scaled(self, x: Array) -> Array:
        x = x.reshape(-1, *self.input_shape)
        if not is_scaled(x, self.task, tokens=self.tokens):
            return x
        return self.scaling.of(Part(x, np.zeros(len(x), np.int64))).x


def is_scaled(x: Array | Part | Stored, task: LearningTask, *, tokens: bool = False) -> bool:
    """Whether stored numbers are the bytes of pictures, or of what is classified, and no tokens."""
    kind, sides = (x.dtype, x.ndim - 1) if isinstance(x, np.ndarray) else (x.kind, len(x.input_shape))
    return kind == np.uint8 and not (tokens or task.tokens) and (task.classes or sides > 1)


def load_own(
    source: Path, client_id: str = "", reading: Reading = PLAINLY, before: OwnPart | None = None
) -> OwnPart:
    """Return own data, as they are stored: of `package.module:factory`, of a folder, or of a file.

    Those of `before` are returned where nothing has changed since. Raises MissingData, BadData or another
    UsageError.
    """
    try:
        found = _read(source, client_id, reading, before)
    except OSError as error:
        raise MissingData(f"{source} cannot be read: {error.strerror or error}") from error
    for part in found.parts if found is not before else ():
        if isinstance(part, Arrays):  # a Dataset has seen to it
            _look_through(part)
    return found


def load_part(path: Path, reading: Reading = PLAINLY) -> Part:
    """Return the training part of own data in memory, as it is stored."""
    return _in_memory(load_own(path, reading=reading).train)


def load_tests(path: Path, reading: Reading = PLAINLY, classes: int = 0) -> Part:
    """Return own data to test on in memory, as they are stored: of a folder its test part, if it has one.

    Raises BadData, too, where folders are those of some of so many classes.
    """
    found = load_own(path, reading=reading)
    check_names(found, classes)
    return _in_memory(found.test if path.is_dir() and found.test is not None else found.train)


def _in_memory(found: Stored) -> Part:
    x, y = found.take(np.arange(len(found)))
    return Part(np.ascontiguousarray(x), y)


def how(part: Part | Stored, scaling: Scaling, task: LearningTask, *, tokens: bool = False) -> str:
    """Say what is made of the stored numbers."""
    if is_scaled(part, task, tokens=tokens):
        return f"bytes, {scaling}"
    if part.kind.kind == "f":
        return "floats, as they are"
    return "whole numbers, as they are" if tokens or task.tokens else "whole numbers, as floats"


def check(part: Part, input_shape: tuple[int, ...], task: LearningTask, scaling: Scaling) -> Part:
    """Return a part as a run expects it: a channel dimension of one may be missing or too many, and bytes of
    pictures are scaled as those of the run's data set. Whole numbers stay such, for models that take them.

    Raises BadData for another shape, for labels that are none of the task's and for bytes beyond those of
    the set.
    """
    if part.input_shape != input_shape:
        _check_shape("", part.input_shape, input_shape)
        part = Part(part.x.reshape(-1, *input_shape), part.y, part.groups)
    part = replace(part, y=task.labels(part.y))
    if is_scaled(part, task):
        if len(part):
            _check_bytes(int(part.x.max()), scaling)
        return scaling.of(part)
    return replace(part, x=np.ascontiguousarray(part.x, np.int64 if part.kind.kind in "iu" else np.float32))


def fits(
    part: Stored,
    input_shape: tuple[int, ...],
    task: LearningTask,
    scaling: Scaling,
    *,
    tokens: bool = False,
) -> Fit:
    """Return what makes own data what a run expects. Raises BadData as `check` does."""
    _check_shape(f"{part.where}: ", part.input_shape, input_shape)
    for y in part.labels():
        _check_labels(part, y, task)
    if is_scaled(part, task, tokens=tokens) and scaling.over < 255:
        for _, x, _ in blocks(part):
            _check_bytes(int(x.max()), scaling)
    return Fit(input_shape, scaling, task, tokens)


def _check_labels(part: Stored, y: Array, task: LearningTask) -> None:
    """Raise BadData unless labels are those of the task; it names where they are."""
    try:
        task.labels(y)
    except BadData as error:
        said = "--label names their column" if table.is_table(Path(part.where)) else "y"
        raise BadData(f"{part.where}: {str(error).replace('(y)', f'({said})')}") from None


def as_far_as(found: OwnPart, samples: int, wanted: str) -> OwnPart | None:
    """Return own data with the first so many training samples if they have that digest, else None."""
    if len(found.train) < samples:
        return None
    train = found.train.first(samples) if len(found.train) > samples else found.train
    return replace(found, train=train) if digest(train) == wanted else None


def held_out(found: OwnPart, share: float, seed: int, seat: int) -> OwnPart:
    """Return own data with a share of the training samples kept for tests, where they bring none.

    Which ones is drawn from seed and seat, sample by sample: those that are added later move none.
    """
    if not share or found.test is not None:
        return found
    chosen = seeds.numpy_generator(seed, "hold-out", seat).random(len(found.train)) < share
    if chosen.all() or not chosen.any():  # of so few samples
        chosen = np.arange(len(chosen)) == len(chosen) - 1
    if len(chosen) < 2:
        return found
    train, test = (Chosen(found.train, np.flatnonzero(rows)) for rows in (~chosen, chosen))
    return replace(found, train=train, test=test)


def check_names(found: OwnPart, classes: int) -> None:
    """Raise BadData if labels may mean other classes elsewhere: folders of fewer than the run has."""
    names = found.guessed
    if names and len(names) < classes:
        where, some = found.train.where, ", ".join(names)
        raise BadData(
            f"{where} has folders of {len(names)} classes ({some}), this run has {classes}: put a "
            f"{images.CLASS_FILE} with the names of all into it, one per line, or name the folders by number"
        )


def _check_shape(where: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if shape != wanted and _plain(shape) != _plain(wanted):
        raise BadData(f"{where}samples have the shape {words(shape)}, this run needs {words(wanted)}")


def _check_bytes(highest: int, scaling: Scaling) -> None:
    if highest > scaling.over:
        raise BadData(
            f"bytes go up to {highest}, those of this run's data set to {scaling.over:g}: give floats"
        )


def _read(source: Path, client_id: str, reading: Reading, before: OwnPart | None) -> OwnPart:
    where = str(source)
    if is_reference(where) and not source.exists():
        made = factory.call(where, client_id)
        datasets = factory.datasets(made)
        if before is not None and factory.same(datasets, before.made):
            return before
        return OwnPart(*factory.stored(where, made), made=datasets)
    stamp = _stamp(source)
    if before is not None and before.stamp == stamp:
        return before
    return replace(_read_files(source, reading), stamp=stamp)


def _stamp(source: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Return what changes when one of the files does; of what is not there nothing."""
    files = sorted(source.rglob("*")) if source.is_dir() else [source]
    told = ((str(path), path.stat()) for path in files if path.is_file())
    return tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in told)


def _read_files(source: Path, reading: Reading) -> OwnPart:
    where = str(source)
    if source.is_dir():
        return _folder(source, reading)
    if table.is_table(source):
        return OwnPart(_table(source, [source], reading), None)
    _no_columns(source, reading)
    if source.suffix == ".npy":
        return OwnPart(*factory.named(where, {"x": npz.single(source)}))
    try:
        return OwnPart(*factory.named(where, npz.read(source)))
    except BadData as error:
        if source.suffix == ".npz":
            raise
        raise BadData(f"{error}, {_KINDS}") from None


def _folder(path: Path, reading: Reading) -> OwnPart:
    found = {name: path / f"{name}.npy" for name in _ARRAYS if (path / f"{name}.npy").is_file()}
    if found:
        return OwnPart(*factory.named(str(path), {name: npz.single(file) for name, file in found.items()}))
    if tables := table.listing(path):
        return OwnPart(_table(path, tables, reading), None)
    if table.halves(path):
        train, test = (_table(path / half, table.listing(path / half), reading) for half in ("train", "test"))
        return OwnPart(train, test)
    _no_columns(path, reading)
    return _pictures(path, reading.size)


def _no_columns(source: Path, reading: Reading) -> None:
    if reading.label or reading.columns:
        flag = "--label" if reading.label else "--columns"
        raise UsageError(f"{flag} is for tables, .csv and .parquet, or a folder of them: {source} is none")


def _table(where: Path, files: list[Path], reading: Reading) -> Arrays:
    x, y = table.read(files, Columns(reading.label, reading.columns, reading.growing))
    return factory.arrays(str(where), x, y if reading.label else None)


def _pictures(path: Path, size: int | None) -> OwnPart:
    split = (path / "train").is_dir() and (path / "test").is_dir()
    names, certain = images.class_names(path / "train" if split else path, beside=path)
    folders = [path / "train", path / "test"] if split else [path]
    parts = [_decoded(images.Pictures(folder, names, size)) for folder in folders]
    return OwnPart(parts[0], parts[1] if split else None, () if certain else tuple(names))


def _decoded(pictures: images.Pictures) -> Stored:
    """Return few pictures decoded, of many each when it is needed."""
    where = str(pictures.folder)
    if pictures.bytes > DECODED_BYTES:
        return Items(where, pictures, fixed=True)
    return Arrays(where, *pictures.all())


def _look_through(part: Arrays) -> None:
    """Raise BadData if any number is not finite; bytes and whole numbers are not looked at."""
    if part.kind.kind == "f":
        for start, x, _ in blocks(part):
            check_finite(f"{part.where}: x", x, start)
    start = 0
    for y in part.labels():
        check_finite(f"{part.where}: y", y, start)
        start += len(y)


def _plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
