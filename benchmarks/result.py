"""Results: one row of the table per benchmark, how medians and ratios are formed, how rows are shown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """One figure beside its baseline and its target."""

    name: str
    unit: str
    measured: float
    target: str
    held: bool
    baseline: float | None = None
    against: str = ""  # what the baseline is
    ratio: float | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """What can be asked for by name: yields its rows, given the number of repeats."""

    title: str
    measure: Callable[[int], Iterable[Row]]
    quick: bool = False  # a short variant: only when it is named


def against(
    name: str, unit: str, pairs: Sequence[tuple[float, float]], limit: float, what: str, **details: Any
) -> Row:
    """Return the row of (baseline, measured) pairs that were taken one after the other.

    The ratio is the median of the pairs' ratios, so that a slow minute of the machine falls on both sides.
    """
    ratios = [measured / base for base, measured in pairs]
    ratio = statistics.median(ratios)
    return Row(
        name=name,
        unit=unit,
        baseline=statistics.median(base for base, _ in pairs),
        measured=statistics.median(measured for _, measured in pairs),
        ratio=ratio,
        target=f"<= {limit:g}x",
        held=ratio <= limit,
        against=what,
        details={"ratios": ratios, **details},
    )


def at_most(name: str, unit: str, values: Sequence[float], limit: float, **details: Any) -> Row:
    """Return the row of a figure that has an absolute limit."""
    measured = statistics.median(values)
    return Row(
        name=name,
        unit=unit,
        measured=measured,
        target=f"<= {limit:g} {unit}",
        held=measured <= limit,
        details={"values": list(values), **details},
    )


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the least-squares slope through (x, y) points; 0 for fewer than two."""
    return statistics.linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else 0.0


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, one line each."""
    width = max([len(row.name) for row in rows], default=0)
    head = f"{'benchmark':{width}} {'baseline':>12} {'measured':>12} {'ratio':>7}  {'target':16} held"
    return "\n".join([head, *(_line(row, width) for row in rows)])


def _line(row: Row, width: int) -> str:
    base = "-" if row.baseline is None else _figure(row.baseline, row.unit)
    ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
    held = "yes" if row.held else "NO"
    return (
        f"{row.name:{width}} {base:>12} {_figure(row.measured, row.unit):>12} {ratio:>7}  "
        f"{row.target:16} {held}"
    )


def _figure(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}"
