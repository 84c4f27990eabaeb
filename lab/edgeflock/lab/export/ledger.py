"""The ledger of a run as two tables: a row for every client and round, and a row for every round."""

from __future__ import annotations

import contextlib
import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from edgeflock.common.command import extras
from edgeflock.common.errors import UsageError
from edgeflock.lab.history import cells
from edgeflock.server.costs import catalogue
from edgeflock.server.journal.reader import Reader, snapshot

ENDINGS = (".csv", ".parquet")
_ROOM = "report"  # the folder in a run directory that is not the run's own
_GROUP = 10_000  # rows of a Parquet file that are in memory at a time
_TYPES: dict[type[Any], str] = {int: "int64", float: "float64", str: "string", bool: "bool"}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class LedgerTable:
    """Rows that come one by one, and the type and unit of every column."""

    columns: Mapping[str, tuple[type[Any], str]]
    rows: Iterator[Row]


def by_client(reader: Reader) -> LedgerTable:
    """Return a row for every client and round: the verdict on its update, and what it cost."""
    keys = {"epoch": int, "round": int, "seat": int, "client": str, "verdict": str}
    return LedgerTable(_columns(keys, catalogue.BY_CLIENT), cells(reader))


def by_round(reader: Reader) -> LedgerTable:
    """Return a row for every round: whether the run stands on it, and what it took as a whole."""
    keys = {"epoch": int, "round": int, "stands": bool, "last": str}
    return LedgerTable(_columns(keys, catalogue.BY_ROUND), _rounds(reader))


def _columns(
    keys: Mapping[str, type[Any]], columns: Iterable[catalogue.Column]
) -> dict[str, tuple[type[Any], str]]:
    named = {name: (kind, "") for name, kind in keys.items()}
    return named | {column.name: (column.kind, column.unit) for column in columns}


def _rounds(reader: Reader) -> Iterator[Row]:
    known, every = {(row.epoch, row.number): row for row in reader.rounds()}, reader.round_costs()
    for key in reader.every_round():
        row, said = known.get(key), every.get(key, {})
        costs = {one.name: one.kind(said[one.name]) for one in catalogue.BY_ROUND if one.name in said}
        if costs or row is None or row.cohort:  # the initial model, and where an epoch begins, are no rounds
            stands, last = (row.stands, row.last) if row else (False, "")
            yield {"epoch": key[0], "round": key[1], "stands": stands, "last": last, **costs}


# ---------------------------------------------------------------------------------------------- files


def show(run_dir: Path) -> None:
    """Write the rows by client to standard output, as CSV; raises what `snapshot` does."""
    with snapshot(run_dir) as reader:
        _write_csv(by_client(reader), sys.stdout)


def write(run_dir: Path, path: Path) -> dict[Path, int]:
    """Write both tables, the second one beside the first; return how many rows each file has.

    Raises UsageError with a sentence, or what `snapshot` does; files that were there are then as they were.
    """
    _refuse(run_dir, path)
    beside = path.with_name(f"{path.stem}.rounds{path.suffix}")
    try:
        with snapshot(run_dir) as reader, _replaced(path) as clients, _replaced(beside) as rounds:
            return {path: _write(by_client(reader), clients), beside: _write(by_round(reader), rounds)}
    except OSError as error:
        raise UsageError(f"--ledger {str(path)!r} cannot be written: {error.strerror or error}") from None


def _refuse(run_dir: Path, path: Path) -> None:
    if path.suffix not in ENDINGS:
        wanted = f"{' or '.join(ENDINGS)}, or - for standard output"
        raise UsageError(f"--ledger {str(path)!r} has no ending that says a format, allowed is {wanted}")
    if path.suffix == ".parquet":
        extras.require("--ledger FILE.parquet", "pyarrow")
    run, folder = run_dir.resolve(), path.resolve().parent
    if run in folder.parents and (run / _ROOM) not in (folder, *folder.parents):
        raise UsageError(
            f"--ledger {str(path)!r} is among the run's own files, "
            f"allowed is another folder, such as {run_dir / _ROOM}"
        )


@contextlib.contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """Give a file that takes the place of another one when it is written whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write(table: LedgerTable, path: Path) -> int:
    if path.suffix == ".parquet":
        return _write_parquet(table, path)
    with path.open("w", encoding="utf-8", newline="") as file:
        return _write_csv(table, file)


def _write_csv(table: LedgerTable, file: IO[str]) -> int:
    """Write a header and the rows; what is not known is empty. Return how many rows there were."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.columns)
    count = 0
    for row in table.rows:
        writer.writerow([row.get(name) for name in table.columns])
        count += 1
    return count


def _write_parquet(table: LedgerTable, path: Path) -> int:
    """Write the rows with the unit of every column as its metadata; return how many there were."""
    import pyarrow
    import pyarrow.parquet

    fields = [
        pyarrow.field(name, pyarrow.type_for_alias(_TYPES[kind]), metadata={"unit": unit} if unit else None)
        for name, (kind, unit) in table.columns.items()
    ]
    count, schema = 0, pyarrow.schema(fields)
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while group := list(islice(table.rows, _GROUP)):
            writer.write_table(pyarrow.Table.from_pylist(group, schema))
            count += len(group)
    return count
