"""Numbers of a paper's runs by place: a case, a row and a quantity, of every seed; to a CSV file and back."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgeflock.common.errors import BadData
from edgeflock.lab.findings.bounded import Bounded
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.grid.cases import CASE
from edgeflock.lab.grid.grid import Cell, Grid, shown_name
from edgeflock.lab.grid.options import SEED
from edgeflock.lab.papers.judging.quantity_name import QuantityName

_COLUMNS = ("case", "row", "quantity", "seed", "low", "high")

BySeed = Mapping[str, Bounded]


@dataclass(frozen=True)
class NumberPlace:
    """Where numbers stand: one of every seed."""

    case: str  # empty: the file has no cases
    row: str  # a method, or a variant, with the values of its own axes
    quantity: str


@dataclass(frozen=True)
class Sheet:
    """All numbers of a paper's runs that its tables and claims ask for."""

    numbers: Mapping[NumberPlace, BySeed]

    def at(self, spot: NumberPlace) -> BySeed:
        return self.numbers.get(spot, {})


def row_of(cell: Cell) -> str:
    """Return what a cell's row is called: the method and the values of all axes but case and seed."""
    return shown_name(
        cell.method, {axis: label for axis, label in cell.labels.items() if axis not in (CASE, SEED)}
    )


def case_of(cell: Cell) -> str:
    return cell.labels.get(CASE, "")


def rows_of(grid: Grid) -> dict[str, list[str]]:
    """Return the rows of every case, both in the order of the file."""
    found: dict[str, list[str]] = {}
    for cell in grid.cells:
        rows = found.setdefault(case_of(cell), [])
        if row_of(cell) not in rows:
            rows.append(row_of(cell))
    return found


def sheet(results: Sequence[CellResult], grid: Grid, quantities: Sequence[QuantityName]) -> Sheet:
    """Return the numbers of the runs that there are."""
    found: dict[NumberPlace, dict[str, Bounded]] = {}
    for result in results:
        for quantity in quantities:
            if (number := quantity.of(result, grid)) is not None:
                spot = NumberPlace(case_of(result.cell), row_of(result.cell), quantity.text)
                found.setdefault(spot, {})[result.cell.labels.get(SEED, "")] = number
    return Sheet(found)


# ---------------------------------------------------------------------------------------------- as CSV


def to_csv(found: Sheet) -> str:
    """Return a line for every number; one that is only known to be more has nothing above it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(_lines(found))
    return text.getvalue()


def _lines(found: Sheet) -> Iterator[tuple[str, ...]]:
    for spot, numbers in found.numbers.items():
        for seed, number in numbers.items():
            high = "" if math.isinf(number.high) else f"{number.high:.7g}"
            yield spot.case, spot.row, spot.quantity, seed, f"{number.low:.7g}", high


def from_csv(text: str, where: str) -> Sheet:
    """Return the numbers of a file. Raises BadData with a sentence."""
    reader = csv.reader(io.StringIO(text))
    if tuple(next(reader, ())) != _COLUMNS:
        raise BadData(f"{where} is no result of fl-lab paper: its first line is not {','.join(_COLUMNS)}")
    found: dict[NumberPlace, dict[str, Bounded]] = {}
    for number, line in enumerate(reader, 2):
        try:
            case, row, quantity, seed, low, high = line
            value = Bounded(float(low), float(high) if high else math.inf)
        except ValueError:
            raise BadData(f"line {number} of {where} is no number of a run: {','.join(line)}") from None
        found.setdefault(NumberPlace(case, row, quantity), {})[seed] = value
    return Sheet(found)
