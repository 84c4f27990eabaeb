"""What a grid has found as tables for people: every run, means and medians over seeds, differences. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeflock.common.scores import headed
from edgeflock.lab.findings.figures import by_seed, figure
from edgeflock.lab.findings.groups import Figure, Group, ends, extras
from edgeflock.lab.findings.outcome import COSTS
from edgeflock.lab.findings.paired import LEVEL, spread
from edgeflock.lab.findings.quantity import DASH, METRIC, RATIO, bounded, interval, middle, quantity
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.grid.grid import Grid
from edgeflock.lab.grid.options import METHOD

Headed = tuple[str, Figure]

_HEADS = {"energy_j": "energy", "flops": "FLOPs", "all_flops": "with server's", "simulated_s": "simulated"}
HEADINGS = {name: _HEADS.get(name, name) for name in COSTS}
_PAIRS = "over pairs of the same seed"


@dataclass(frozen=True)
class Block:
    """A table for people: the first column is text, the others are figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def every_run(results: Sequence[CellResult], found: Sequence[Group], grid: Grid) -> list[Block]:
    """Return the tables with a row per run: how good its model is, and the way to each target."""
    ways = {_to(target, grid): _costs(target, known_costs(found)) for target in met(found, grid)}
    return [
        _every(results, title, figures) for title, figures in {_title(grid): tested(grid), **ways}.items()
    ]


def over_seeds(found: Sequence[Group], grid: Grid) -> list[Block]:
    """Return how good models are, the way to each target and the whole run over seeds, held against the
    baseline."""
    shown, whole = tested(grid), _costs(None, known_costs(found))
    tables = [_spreads(_title(grid), shown, found)]
    if any(figure in group.differences for group in found for _, figure in shown):
        tables.append(_differences(_title(grid), shown, found, grid.baseline))
    for target in met(found, grid):
        ways = _costs(target, known_costs(found))
        tables.append(_medians(_to(target, grid), target, ways, found))
        if any(figure in group.ratios for group in found for _, figure in ways):
            tables.append(_ratios(_to(target, grid), target, ways, found, grid.baseline))
    return [*tables, _spreads("The whole run", whole, found)]


def said(results: Sequence[CellResult], found: Sequence[Group]) -> list[Block]:
    """Return what the methods say of their rounds, as means over these: tau, mu_bar, B_k ...

    Nothing where none says more than its training loss.
    """
    histories = [result.history for result in results if result.history is not None]
    told = dict.fromkeys(name for one in histories for round in one.training for name in round.metrics)
    names = [name for name in told if name != "loss"]
    rows = []
    for group in found:
        known = [by_seed(results, group.labels, f"mean_{name}") for name in names]
        each = [spread([one.value for one in mine.values() if one.value is not None]) for mine in known]
        if any(each):
            cells = [quantity(METRIC, one) for one in each]
            rows.append((group.name, *cells, f"{max(map(len, known))}/{group.cells}"))
    title = "What the methods say, mean over the rounds"
    return [Block(title, ("", *names, "runs"), tuple(rows))] if rows else []


def met(found: Sequence[Group], grid: Grid) -> list[float]:
    """Return the targets that some run has reached: of the others there is nothing to tell."""
    return [target for target in grid.targets if any(g.values.get((target, "rounds")) for g in found)]


def tested(grid: Grid) -> list[Headed]:
    """Return the tests that stand in tables: those of the end, and what the grid asks for."""
    last = f"last_{grid.last}_{grid.figure.name}"
    heads = {name: f"mean of last {grid.last}" if name == last else _at(name) for name in extras(grid)}
    final, best = ends(grid)
    shown = {final: "final", best: "best", **heads}
    return [(head, (None, name)) for name, head in shown.items()]


def _at(name: str) -> str:
    return f"at round {name.rpartition('_at_')[2]}"


def _title(grid: Grid) -> str:
    return headed(grid.figure.name.replace("_", " "))


def _to(target: float, grid: Grid) -> str:
    return f"To {grid.figure.name} {target:g}"


def known_costs(found: Sequence[Group]) -> frozenset[str]:
    """Return the costs that there are numbers for, and that say something: an empty column does not, nor do
    local steps where every round has as many, or operations of a server that only adds up."""
    known = {name for group in found for (_, name), values in group.values.items() if values}
    return frozenset(known - {name for name, by in _BESIDE.items() if _are_alike(found, name, by)})


_BESIDE = {"iterations": "rounds", "all_flops": "flops"}
_ALIKE = 0.02  # shards are never quite as large as each other


def _are_alike(found: Sequence[Group], name: str, by: str) -> bool:
    """Whether a cost is as many times another one in every run."""
    each = [
        value / group.values[None, by][seed]
        for group in found
        for seed, value in group.values.get((None, name), {}).items()
        if group.values.get((None, by), {}).get(seed)
    ]
    return not each or math.isclose(min(each), max(each), rel_tol=_ALIKE)


def _costs(target: float | None, known: frozenset[str]) -> list[Headed]:
    return [(HEADINGS[name], (target, name)) for name in COSTS if name in known]


def _every(results: Sequence[CellResult], title: str, figures: Sequence[Headed]) -> Block:
    """Return a table with a row per run."""
    rows = [(result.cell.name, *(_single(result, what) for _, what in figures)) for result in results]
    return Block(f"Every run: {title[:1].lower()}{title[1:]}", ("", *dict(figures)), tuple(rows))


def _single(result: CellResult, what: Figure) -> str:
    target, name = what
    if result.outcome is None:
        asked = target is not None  # what has diverged tells of that alone
    else:
        asked = target is None or target in result.outcome.reached
    return bounded(name, figure(result, name, target)) if asked else DASH


def _spreads(title: str, figures: Sequence[Headed], found: Sequence[Group]) -> Block:
    rows = []
    for group in found:
        cells = [quantity(figure[1], group.spreads.get(figure)) for _, figure in figures]
        count = max((len(group.values.get(figure, {})) for _, figure in figures), default=0)
        rows.append((group.name, *cells, f"{count}/{group.cells}"))
    return Block(title, ("", *(heading for heading, _ in figures), "runs"), tuple(rows))


def _medians(way: str, target: float, figures: Sequence[Headed], found: Sequence[Group]) -> Block:
    """Return what it took the groups that have that target, and how many runs of each came there."""
    rows = []
    for group in (group for group in found if target in group.targets):
        cells = [middle(figure[1], group.middles.get(figure)) for _, figure in figures]
        reached = len(group.values.get((target, "rounds"), {}))
        rows.append((group.name, *cells, f"{reached}/{group.cells}"))
    title = f"{way}, median [interval]"
    return Block(title, ("", *(heading for heading, _ in figures), "reached"), tuple(rows))


def _against(baseline: Mapping[str, str]) -> str:
    return " ".join(label if axis == METHOD else f"{axis}={label}" for axis, label in baseline.items())


def _others(found: Sequence[Group], baseline: Mapping[str, str]) -> list[Group]:
    return [group for group in found if not baseline.items() <= group.labels.items()]


def _differences(
    title: str, figures: Sequence[Headed], found: Sequence[Group], baseline: Mapping[str, str]
) -> Block:
    rows = []
    for group in _others(found, baseline):
        pairs = max(
            (paired.count for f, paired in group.differences.items() if f in dict(figures).values()),
            default=0,
        )
        cells = [interval(figure[1], group.differences.get(figure)) for _, figure in figures]
        rows.append((group.name, *cells, str(pairs) if pairs else DASH))
    heading = f"{title}, minus {_against(baseline)}: mean [{LEVEL:.0%} t interval] {_PAIRS}"
    return Block(heading, ("", *(heading for heading, _ in figures), "pairs"), tuple(rows))


def _ratios(
    way: str, target: float, figures: Sequence[Headed], found: Sequence[Group], baseline: Mapping[str, str]
) -> Block:
    rows = []
    for group in (group for group in _others(found, baseline) if target in group.targets):
        over = [group.ratios.get(figure) for _, figure in figures]
        pairs = max((ratio.count for ratio in over if ratio is not None), default=0)
        rows.append((group.name, *(middle(RATIO, ratio) for ratio in over), str(pairs) if pairs else DASH))
    heading = f"{way}, over {_against(baseline)}: median ratio [interval] {_PAIRS}"
    return Block(heading, ("", *(heading for heading, _ in figures), "pairs"), tuple(rows))
