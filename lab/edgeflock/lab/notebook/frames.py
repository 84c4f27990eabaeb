"""Data frames: rows as pandas or polars has them, whichever is installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from edgeflock.common.command import extras
from edgeflock.common.errors import BadValue

if TYPE_CHECKING:
    from pandas import DataFrame  # what most have; polars' own, where that is asked for or alone installed

Row = Mapping[str, Any]
Library = Literal["pandas", "polars"]
LIBRARIES: tuple[Library, ...] = ("pandas", "polars")


def library(asked: Library | None) -> Library:
    """Return the library that makes the frames: what was asked for, else pandas, else polars.

    Raises UsageError with what to install if it is not there.
    """
    if asked is not None and asked not in LIBRARIES:
        raise BadValue("frames", asked, " or ".join(LIBRARIES))
    wanted: tuple[Library, ...] = LIBRARIES if asked is None else (asked,)
    found: Library | None = next((name for name in wanted if extras.installed(name)), None)
    if found is None:
        extras.require("a data frame", wanted[0])
        raise AssertionError  # it is there by now
    return found


def frame(rows: Iterable[Row], asked: Library | None = None, columns: Iterable[str] = ()) -> DataFrame:
    """Return rows as a data frame, with these columns before those that the rows bring."""
    name, rows = library(asked), list(rows)
    order = dict.fromkeys([*columns, *(column for row in rows for column in row)])
    values = {column: [row.get(column) for row in rows] for column in order}
    if name == "pandas":
        import pandas

        made: DataFrame = pandas.DataFrame(values)
        return made
    import polars  # pyright: ignore[reportMissingImports]  # who wants its frames has it

    other: Any = polars.DataFrame(values, strict=False)
    return other
