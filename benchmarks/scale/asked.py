"""What a benchmark of scale is asked, and what it yields: rows of a table, and figures beside a target."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MIB, KIB = 1 << 20, 1 << 10


@dataclass(frozen=True)
class Asked:
    """Sizes and bounds, as the command was given them."""

    clients: tuple[int, ...] = (100, 300, 1000, 3000, 10_000)
    quick: bool = False
    limit_s: float = 900.0  # of one run; a run that takes longer is a failure, not a row
    repeats: int = 3  # of what takes turns
    before: str = ""  # a folder with the commands of an earlier version, to be taken in turns
    python: Mapping[str, str] = field(default_factory=dict[str, str])  # interpreters that have the others

    def upto(self, most: int) -> tuple[int, ...]:
        return tuple(clients for clients in self.clients if clients <= most)


@dataclass(frozen=True)
class Row:
    """One line of a table: a cell for each of its columns."""

    cells: tuple[str | float, ...]


@dataclass(frozen=True)
class Held:
    """One figure beside what it was to be."""

    name: str
    measured: float
    target: str
    held: bool


@dataclass(frozen=True)
class Skipped:
    """Why there is no row: a sentence."""

    sentence: str


Found = Row | Held | Skipped


@dataclass(frozen=True)
class Family:
    """One table."""

    title: str
    columns: tuple[str, ...]
    measure: Callable[[Asked, Path], Iterator[Found]]  # in a folder of its own
    about: str = ""  # what the columns are, for the page

    def checked(self, row: Row) -> Row:
        """Return the row; raises ValueError if it does not have a cell for each column."""
        if len(row.cells) != len(self.columns):
            raise ValueError(f"{len(row.cells)} cells for {len(self.columns)} columns: {row.cells}")
        return row


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Return p of the y = c x^p that fits best: 1 is proportional."""
    if len(points) < 2:
        return math.nan
    logs = [(math.log(x), math.log(y)) for x, y in points]
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def at_most(name: str, measured: float, limit: float) -> Held:
    return Held(name, measured, f"<= {limit:g}", measured <= limit)
