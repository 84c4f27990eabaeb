"""Tables of numbers, CSV and Parquet: columns as samples and labels; every fault names line and column."""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.common.command import extras
from edgeflock.common.datasets.kit.base import Array
from edgeflock.common.datasets.kit.formats.images import CLASS_FILE
from edgeflock.common.errors import BadData, NothingYet, UnknownName

CSV, PARQUET = (".csv", ".tsv"), (".parquet", ".pq")
_LINES = 1 << 16  # read at once
_SEPARATORS = ",;\t"
Table = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are what."""

    label: tuple[str, ...] = ()  # (): there are no labels
    samples: tuple[str, ...] = ()  # (): all that are no label
    whole_lines: bool = False  # a last line without its end is still being written: it is left for later

    def of(self, path: Path, names: Sequence[str]) -> list[int]:
        """Return the places of samples, then of labels, in a table of these columns. Raises UnknownName."""
        for name in (*self.samples, *self.label):
            if name not in names:
                raise UnknownName(f"column of {path}", name, names)
        samples = self.samples or [name for name in names if name not in self.label]
        if not samples:
            raise BadData(
                f"{path} has no column beside the label {', '.join(self.label)}, needed is at least one"
            )
        return [names.index(name) for name in (*samples, *self.label)]


def is_table(path: Path) -> bool:
    return path.suffix.lower() in (*CSV, *PARQUET)


def listing(folder: Path) -> list[Path]:
    """Return the tables of a folder in the order of their names, numbers in them by their value."""
    found = (path for path in folder.iterdir() if is_table(path) and path.is_file())
    return sorted(
        found, key=lambda path: [(int(p) if p.isdigit() else 0, p) for p in re.split(r"(\d+)", path.name)]
    )


def halves(folder: Path) -> bool:
    """Whether a folder has tables in `train` and in `test`."""
    return all((folder / half).is_dir() and listing(folder / half) for half in ("train", "test"))


def read(paths: Sequence[Path], columns: Columns) -> tuple[Array, Array]:
    """Return samples and labels of tables with the same columns: float32, labels that are all whole as int64.

    Raises BadData, or UsageError where Parquet cannot be read.
    """
    chunks: list[Array] = []
    labels: list[Table] = []
    first: list[str] | None = None
    width = 0
    for path in paths:
        table = _parquet(path, columns) if path.suffix.lower() in PARQUET else _csv(path, columns)
        names = table.names
        if first is not None and names != first:
            raise BadData(
                f"{path} has the columns {_list(names)}, {paths[0]} has {_list(first)}: give --columns"
            )
        first, width = names, len(names) - len(columns.label)
        for rows in table.rows:
            chunks.append(rows[:, :width].astype(np.float32))
            labels.append(rows[:, width:])
    x = np.concatenate(chunks) if chunks else np.zeros((0, max(1, width)), np.float32)
    return x, _labels(labels, columns)


def _labels(found: list[Table], columns: Columns) -> Array:
    y = np.concatenate(found) if found else np.zeros((0, len(columns.label)))
    if len(columns.label) == 1:
        y = y[:, 0]
    whole = y.size and bool((y == np.rint(y)).all()) and float(np.abs(y).max()) < 2**53
    return y.astype(np.int64 if whole else np.float32)


@dataclass(frozen=True)
class _Opened:
    """A table: the columns that are wanted, samples first, and their rows in pieces."""

    names: list[str]
    rows: Iterator[Table]


# ------------------------------------------------------------------------------------------ CSV


def _csv(path: Path, columns: Columns) -> _Opened:
    lines = _lines(path, columns)
    number, head = next(lines, (1, ""))
    if not head:
        raise NothingYet(
            f"{path} is empty, needed is a table with the names of its columns in the first line"
        )
    separator = max(_SEPARATORS, key=head.count)
    names = [name.strip() for name in next(csv.reader([head], delimiter=separator))]
    if all(_is_number(name) for name in names):  # no names: columns are called by their number, from 0
        names, lines = [str(place) for place in range(len(names))], itertools.chain([(number, head)], lines)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadData(f"{path} has two columns called {twice!r}, needed is a name for each")
    places = columns.of(path, names)
    return _Opened(
        [names[place] for place in places], _Text(path, names, separator, places, columns).rows(lines)
    )


def _lines(path: Path, columns: Columns) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, with their numbers."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if columns.whole_lines and not line.endswith("\n"):
                    return
                if text := line.strip("\r\n"):
                    yield number, text
    except UnicodeDecodeError as error:
        raise BadData(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}") from None


class _Text:
    """How the lines of a CSV file become numbers."""

    def __init__(
        self, path: Path, names: list[str], separator: str, places: list[int], columns: Columns
    ) -> None:
        self.path, self.names, self.separator, self.places = path, names, separator, places
        self._labels = places[len(places) - len(columns.label) :]
        self._classes: dict[int, list[str]] = {}  # of labels that are words

    def rows(self, lines: Iterator[tuple[int, str]]) -> Iterator[Table]:
        while part := list(itertools.islice(lines, _LINES)):
            for number, line in part:
                if line.count(self.separator) != len(self.names) - 1:
                    self._check_length(number, self._split(line))
            if not self._classes:
                self._find_words(*part[0])
            yield self._numbers(part)

    def _numbers(self, part: list[tuple[int, str]]) -> Table:
        try:
            found = np.loadtxt(
                [line for _, line in part],
                np.float64,
                delimiter=self.separator,
                usecols=self.places,
                quotechar='"',
                comments=None,
                ndmin=2,
                converters={place: self._class_of(place) for place in self._classes} or None,
                encoding=None,
            )
        except (ValueError, IndexError):
            found = None
        if found is None or not _finite(found).all():
            self._refuse(part)
        assert found is not None
        return found

    def _refuse(self, part: list[tuple[int, str]]) -> None:
        """Raise BadData for the first value that is no number."""
        for number, line in part:
            values = self._split(line)
            self._check_length(number, values)
            for place in self.places:
                text = values[place].strip()
                if place in self._classes:
                    if text not in self._classes[place]:
                        raise UnknownName(
                            f"class in {self._where(number, place)}", text, self._classes[place]
                        )
                elif not _is_number(text) or not abs(float(text)) <= float(np.finfo(np.float32).max):
                    said = repr(text) if text else "empty"
                    raise BadData(
                        f"{self._where(number, place)} is {said}, needed is a finite number; "
                        "--columns names those that are to be read"
                    )
        raise BadData(f"{self.path} cannot be read as a table of numbers separated by {self.separator!r}")

    def _check_length(self, number: int, values: list[str]) -> None:
        if len(values) != len(self.names):
            wanted = f"there are {len(self.names)} columns"
            raise BadData(
                f"{self.path}, line {number}, has {len(values)} values, {wanted}: {_list(self.names)}"
            )

    def _find_words(self, number: int, line: str) -> None:
        """See which labels are words: their numbers are said by classes.txt, the same for every device."""
        values = self._split(line)
        for place in self._labels:
            if not values[place].strip() or _is_number(values[place]):
                continue
            file = self.path.parent / CLASS_FILE
            if not file.is_file():
                raise BadData(
                    f"{self._where(number, place)} is {values[place].strip()!r}: labels that are words need "
                    f"{file} with all of them, one per line, the same on every device"
                )
            self._classes[place] = [
                name.strip() for name in file.read_text("utf-8").splitlines() if name.strip()
            ]

    def _class_of(self, place: int) -> Any:
        numbers = {name: float(number) for number, name in enumerate(self._classes[place])}
        return lambda text: numbers.get(text.strip(), math.nan)

    def _split(self, line: str) -> list[str]:
        return next(csv.reader([line], delimiter=self.separator))

    def _where(self, number: int, place: int) -> str:
        return f"{self.path}, line {number}: column {self.names[place]!r}"


def _finite(found: Table) -> NDArray[np.bool_]:
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
        return np.isfinite(found.astype(np.float32))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


# ------------------------------------------------------------------------------------------ Parquet


def _parquet(path: Path, columns: Columns) -> _Opened:
    extras.require("a Parquet file", "pyarrow")
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise BadData(f"{path} is not a Parquet file: {_first(error)}") from None
    names = list(file.schema_arrow.names)
    wanted = [names[place] for place in columns.of(path, names)]

    def rows() -> Iterator[Table]:
        start = 0
        try:
            for batch in file.iter_batches(_LINES, columns=wanted):
                found = [_column(path, name, batch.column(name), start) for name in wanted]
                yield np.stack(found, axis=1)
                start += len(batch)
        except pyarrow.ArrowException as error:
            raise BadData(f"{path} cannot be read: {_first(error)}") from None

    return _Opened(wanted, rows())


def _column(path: Path, name: str, values: Any, start: int) -> Table:
    kind = str(values.type)
    where = f"{path}: column {name!r}"
    if not re.match(r"u?int|float|double|half|bool", kind):
        raise BadData(f"{where} holds {kind}, needed are numbers; --columns names those that are to be read")
    if values.null_count:
        row = start + next(place for place, value in enumerate(values) if not value.is_valid)
        raise BadData(f"{where} is empty in row {row}, needed is a number")
    found: Table = values.to_numpy(zero_copy_only=False).astype(np.float64)
    good = _finite(found)
    if not good.all():
        raise BadData(
            f"{where} is {found[~good][0]} in row {start + int(np.argmin(good))}, needed is a finite number"
        )
    return found


def _first(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
