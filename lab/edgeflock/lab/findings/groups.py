"""Outcomes of a grid put together: groups of seeds, their differences, and records for files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edgeflock.lab.findings.bounded import Middle, middle, ratios
from edgeflock.lab.findings.figures import by_seed, figure
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
    targets: tuple[float, ...] = ()  # that its runs were to reach
    middles: Mapping[Figure, Middle] = field(default_factory=dict)  # of what it took to these
    ratios: Mapping[Figure, Middle] = field(default_factory=dict)  # the same over that of the baseline

    @property
    def name(self) -> str:
        return shown_name(self.labels.get(METHOD, ""), self.labels).strip() or "all"


def groups(results: Sequence[CellResult], grid: Grid) -> list[Group]:
    """Return the groups of a grid in the order of its axes, each with its difference to the baseline."""
    together: dict[tuple[tuple[str, str], ...], list[CellResult]] = {}
    for result in results:
        together.setdefault(tuple(result.cell.group.items()), []).append(result)
    values = {key: _by_figure(found, extras(grid)) for key, found in together.items()}
    order = sorted(together, key=lambda key: _place(dict(key), grid))
    made = [_group(key, len(together[key]), values, grid.baseline) for key in order]
    bases = [base_of(group.labels, grid.baseline, [other.labels for other in made]) for group in made]
    return [_with_ways(group, base, results, grid) for group, base in zip(made, bases, strict=True)]


def extras(grid: Grid) -> list[str]:
    """Return the names of the figures that a grid asks for beside the final and the best one."""
    last = [f"last_{grid.last}_{grid.figure.name}"] if grid.last else []
    return [*last, *(f"{grid.figure.name}_at_{round}" for round in grid.at)]


def ends(grid: Grid) -> tuple[str, str]:
    """Return the names of the final figure and of the best one."""
    return f"final_{grid.figure.name}", f"best_{grid.figure.name}"


def _with_ways(
    group: Group, base: Mapping[str, str] | None, results: Sequence[CellResult], grid: Grid
) -> Group:
    """Add what it took to the group's targets, where a run that missed one counts as more than it had."""
    mine = [result.cell for result in results if result.cell.group == group.labels]
    targets = tuple(sorted({target for cell in mine for target in grid.targets_of(cell)}))
    middles, over = dict[Figure, Middle](), dict[Figure, Middle]()
    for target, name in ((target, name) for target in targets for name in COSTS):
        found = by_seed(results, group.labels, name, target)
        if (median := middle(list(found.values()))) is not None:
            middles[target, name] = median
        if base is not None and base != group.labels:
            other = by_seed(results, base, name, target)
            if (ratio := ratios(found, other)) is not None:
                over[target, name] = ratio
    return replace(group, targets=targets, middles=middles, ratios=over)


def _place(labels: Mapping[str, str], grid: Grid) -> list[int]:
    """Return what groups are sorted by: those that differ in their method alone stand together."""
    axes = sorted(grid.axes, key=lambda axis: 2 if is_own(axis) else int(axis == METHOD))
    return [grid.axes[axis].index(labels[axis]) for axis in axes if axis in labels]


def _by_figure(results: Sequence[CellResult], more: Sequence[str]) -> dict[Figure, dict[str, float]]:
    found: dict[Figure, dict[str, float]] = {}
    for result in results:
        beside = ((None, name, known.value if (known := figure(result, name)) else None) for name in more)
        for target, name, value in (*result.outcome.figures(), *beside) if result.outcome else ():
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


def cell_records(results: Sequence[CellResult], grid: Grid) -> list[Record]:
    """Return a record per cell: its labels, how it ended, and every figure."""
    return [_cell(result, grid) for result in results]


def _cell(result: CellResult, grid: Grid) -> Record:
    known = {(target, name): v for target, name, v in result.outcome.figures()} if result.outcome else {}
    beside = {name: found.value for name in extras(grid) if (found := figure(result, name)) is not None}
    ways = result.outcome.reached if result.outcome else {}
    return {
        METHOD: result.cell.method,
        **_labels(result.cell.labels, grid),
        "failure": result.failure,
        "measure": result.measure,
        "final_members": result.outcome.members if result.outcome else None,
        **{name: known.get((None, name)) for name in ends(grid)},
        **{f"total_{name}": known.get((None, name)) for name in COSTS},
        **{name: beside.get(name) for name in extras(grid)},
        **{
            column: value
            for target in grid.targets
            for column, value in {
                f"reached_{target:g}": int(ways[target] is not None) if target in ways else None,
                **{f"{name}_to_{target:g}": known.get((target, name)) for name in COSTS},
            }.items()
        },
        "run_dir": result.run_dir,
        "node": result.host.get("node"),
        "cpu": result.host.get("cpu"),
    }


def summary_records(found: Sequence[Group], grid: Grid) -> list[Record]:
    """Return a record per group and figure: mean, deviation, difference to the baseline, median, ratio."""
    figures: list[Figure] = [(None, name) for name in (*ends(grid), *COSTS, *extras(grid))]
    figures += [(target, name) for target in grid.targets for name in COSTS]
    return [
        {**axes, **_summary(group, figure, grid)}
        for group in found
        for axes in [{axis: label for axis, label in _labels(group.labels, grid).items() if axis != SEED}]
        for figure in figures
    ]


def _labels(labels: Mapping[str, str], grid: Grid) -> Record:
    """Return the columns of the axes, empty for those that are not for that method."""
    return {axis: labels.get(axis) for axis in grid.axes}


def _summary(group: Group, figure: Figure, grid: Grid) -> Record:
    mean, apart = group.spreads.get(figure), group.differences.get(figure)
    return {
        f"to_{grid.figure.name}": figure[0],
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
        **_ends("median", group.middles.get(figure)),
        **_ends("ratio", group.ratios.get(figure)),
    }


def _ends(name: str, found: Middle | None) -> dict[str, float | int | None]:
    """Return a median that may only be known to lie between two ends, and its interval; `inf` is no end."""
    names = (f"{name}_from", f"{name}_to", f"{name}_low", f"{name}_high", f"{name}_level", f"{name}_missed")
    if found is None:
        return dict.fromkeys(names)
    ends = (found.value.low, found.value.high, found.low, found.high, found.level, found.missed)
    return dict(zip(names, ends, strict=True))


def curve_records(results: Sequence[CellResult], grid: Grid) -> list[Record]:
    """Return a record per cell and evaluation: the figure, loss, and the costs up to there."""
    return [
        {
            METHOD: result.cell.method,
            **_labels(result.cell.labels, grid),
            "round": point.round,
            grid.figure.name: point.evaluation.of(grid.figure.name, result.measures[0].name),
            "loss": point.evaluation.loss,
            **{name: point.spent.get(name) for name in COSTS[1:]},
        }
        for result in results
        if result.outcome
        for point in result.outcome.curve
    ]
