"""Outcomes of a grid put together: groups of seeds, their differences, and records for files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgeflock.lab.findings.outcome import COSTS
from edgeflock.lab.findings.paired import Difference, Spread, difference, spread
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.grid.grid import Grid, shown_name
from edgeflock.lab.grid.options import METHOD, SEED
from edgeflock.lab.grid.rows import is_own

Record = Mapping[str, str | float | int | None]
Figure = tuple[float | None, str]  # target (None: of the whole run), name


@dataclass(frozen=True)
class Group:
    """Cells that differ in their seed alone."""

    labels: Mapping[str, str]
    cells: int
    values: Mapping[Figure, Mapping[str, float]]  # of every figure that is known: by seed
    spreads: Mapping[Figure, Spread]
    differences: Mapping[Figure, Difference]  # to the baseline; empty for the baseline itself

    @property
    def name(self) -> str:
        return shown_name(self.labels.get(METHOD, ""), self.labels).strip() or "all"


def groups(results: Sequence[CellResult], grid: Grid) -> list[Group]:
    """Return the groups of a grid in the order of its axes, each with its difference to the baseline."""
    together: dict[tuple[tuple[str, str], ...], list[CellResult]] = {}
    for result in results:
        together.setdefault(tuple(result.cell.group.items()), []).append(result)
    values = {key: _by_figure(found) for key, found in together.items()}
    order = sorted(together, key=lambda key: _place(dict(key), grid))
    return [_group(key, len(together[key]), values, grid.baseline) for key in order]


def _place(labels: Mapping[str, str], grid: Grid) -> list[int]:
    """Return what groups are sorted by: those that differ in their method alone stand together."""
    axes = sorted(grid.axes, key=lambda axis: 2 if is_own(axis) else int(axis == METHOD))
    return [grid.axes[axis].index(labels[axis]) for axis in axes if axis in labels]


def _by_figure(results: Sequence[CellResult]) -> dict[Figure, dict[str, float]]:
    found: dict[Figure, dict[str, float]] = {}
    for result in results:
        for target, name, value in result.outcome.figures() if result.outcome else ():
            mine = found.setdefault((target, name), {})
            if value is not None:
                mine[result.cell.labels.get(SEED, "")] = value
    return found


def _group(
    key: tuple[tuple[str, str], ...],
    cells: int,
    values: Mapping[tuple[tuple[str, str], ...], Mapping[Figure, Mapping[str, float]]],
    baseline: Mapping[str, str],
) -> Group:
    mine, other = values[key], base_of(dict(key), baseline, map(dict, values))
    against = values.get(tuple(other.items()), {}) if other and other != dict(key) else {}
    spreads = {figure: spread(list(by_seed.values())) for figure, by_seed in mine.items()}
    apart = {figure: difference(by_seed, against.get(figure, {})) for figure, by_seed in mine.items()}
    known = {figure: found for figure, found in spreads.items() if found is not None}
    paired = {figure: found for figure, found in apart.items() if found is not None}
    return Group(dict(key), cells, mine, known, paired)


def base_of(
    labels: Mapping[str, str], baseline: Mapping[str, str], known: Iterable[Mapping[str, str]]
) -> Mapping[str, str] | None:
    """Return the labels of what a group is held against: the baseline's, and its own where both have them."""
    wanted = {**labels, **baseline}.items()
    fitting = (other for other in known if baseline.items() <= other.items() <= wanted)
    return next(fitting, None) if baseline else None


# --------------------------------------------------------------------------------------- records for files


def cell_records(results: Sequence[CellResult], targets: Sequence[float]) -> list[Record]:
    """Return a record per cell: its labels, how it ended, and every figure."""
    names = [_column(target, name) for target, name in _figures(targets)]
    records: list[Record] = []
    for result in results:
        figures = (
            {_column(target, name): v for target, name, v in result.outcome.figures()}
            if result.outcome
            else {}
        )
        records.append(
            {
                METHOD: result.cell.method,
                **result.cell.labels,
                "failure": result.failure,
                "final_members": result.outcome.members if result.outcome else None,
                **{name: figures.get(name) for name in names},
                "run_dir": result.run_dir,
            }
        )
    return records


def summary_records(found: Sequence[Group], targets: Sequence[float]) -> list[Record]:
    """Return a record per group and figure: mean, deviation, difference to the baseline."""
    return [_summary(group, figure) for group in found for figure in _figures(targets)]


def _summary(group: Group, figure: Figure) -> Record:
    mean, apart = group.spreads.get(figure), group.differences.get(figure)
    return {
        **group.labels,
        "to_accuracy": figure[0],
        "figure": figure[1],
        "mean": mean.mean if mean else None,
        "deviation": mean.deviation if mean else None,
        "seeds": mean.count if mean else 0,
        "of": group.cells,
        "difference": apart.mean if apart else None,
        "difference_error": apart.error if apart else None,
        "difference_low": apart.low if apart else None,
        "difference_high": apart.high if apart else None,
        "pairs": apart.count if apart else 0,
    }


def curve_records(results: Sequence[CellResult]) -> list[Record]:
    """Return a record per cell and evaluation: accuracy, loss, and the costs up to there."""
    return [
        {
            METHOD: result.cell.method,
            **result.cell.labels,
            "round": point.round,
            "accuracy": point.evaluation.accuracy,
            "loss": point.evaluation.loss,
            **{name: point.spent.get(name) for name in COSTS[1:]},
        }
        for result in results
        if result.outcome
        for point in result.outcome.curve
    ]


def _figures(targets: Sequence[float]) -> Iterator[Figure]:
    yield from ((None, name) for name in ("final_accuracy", "best_accuracy", *COSTS))
    yield from ((target, name) for target in targets for name in COSTS)


def _column(target: float | None, name: str) -> str:
    """Return a name that no axis of a grid has."""
    if target is None:
        return name if name.endswith("accuracy") else f"total_{name}"
    return f"{name}_to_{target:g}"
