"""What a grid has found as tables for people: every run, means over seeds, differences. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeflock.lab.findings.groups import Figure, Group
from edgeflock.lab.findings.outcome import COSTS
from edgeflock.lab.findings.paired import LEVEL, Spread
from edgeflock.lab.findings.quantity import DASH, interval, quantity
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.grid.grid import Grid
from edgeflock.lab.grid.options import METHOD

Headed = tuple[str, Figure]

HEADINGS = {name: {"energy_j": "energy", "flops": "FLOPs"}.get(name, name) for name in COSTS}
_ACCURACY: tuple[Headed, ...] = (("final", (None, "final_accuracy")), ("best", (None, "best_accuracy")))


@dataclass(frozen=True)
class Block:
    """A table for people: the first column is text, the others are figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def every_run(results: Sequence[CellResult], found: Sequence[Group], grid: Grid) -> list[Block]:
    """Return the tables with a row per run: accuracy, and the way to each target."""
    return [_every(results, title, figures) for title, figures in _parts(found, grid).items()]


def over_seeds(found: Sequence[Group], grid: Grid) -> list[Block]:
    """Return accuracy, the way to each target and the whole run over seeds, each with its differences."""
    tables: list[Block] = []
    for title, figures in _parts(found, grid).items():
        asked = [group for group in found if any(figure in group.values for _, figure in figures)]
        tables.append(_spreads(title, figures, asked or found))
        if any(figure in group.differences for group in asked for _, figure in figures):
            tables.append(_differences(title, figures, asked, grid.baseline))
    return [*tables, _spreads("The whole run", _costs(None, known_costs(found)), found)]


def _parts(found: Sequence[Group], grid: Grid) -> dict[str, list[Headed]]:
    """Return the figures of each table by its title; a target that no run has reached has none."""
    known = known_costs(found)
    reached = [
        target for target in grid.targets if any(group.values.get((target, "rounds")) for group in found)
    ]
    ways = {f"To accuracy {target:g}": _costs(target, known) for target in reached}
    return {"Accuracy": list(_ACCURACY), **ways}


def known_costs(found: Sequence[Group]) -> frozenset[str]:
    """Return the costs that there are numbers for: a column that is empty for all says nothing."""
    return frozenset(name for group in found for (_, name), values in group.values.items() if values)


def _costs(target: float | None, known: frozenset[str]) -> list[Headed]:
    return [(HEADINGS[name], (target, name)) for name in COSTS if name in known]


def _every(results: Sequence[CellResult], title: str, figures: Sequence[Headed]) -> Block:
    """Return a table with a row per run."""
    rows = []
    for result in results:
        mine = {(target, name): v for target, name, v in result.outcome.figures()} if result.outcome else {}
        rows.append((result.cell.name, *(_single(figure, mine.get(figure)) for _, figure in figures)))
    return Block(f"Every run: {title[:1].lower()}{title[1:]}", ("", *dict(figures)), tuple(rows))


def _single(figure: Figure, value: float | None) -> str:
    return quantity(figure[1], None if value is None else Spread(value, None, 1))


def _spreads(title: str, figures: Sequence[Headed], found: Sequence[Group]) -> Block:
    rows = []
    for group in found:
        cells = [quantity(figure[1], group.spreads.get(figure)) for _, figure in figures]
        count = max((len(group.values.get(figure, {})) for _, figure in figures), default=0)
        rows.append((group.name, *cells, f"{count}/{group.cells}"))
    return Block(title, ("", *(heading for heading, _ in figures), "runs"), tuple(rows))


def _differences(
    title: str, figures: Sequence[Headed], found: Sequence[Group], baseline: Mapping[str, str]
) -> Block:
    rows = []
    for group in (group for group in found if not baseline.items() <= group.labels.items()):
        pairs = max(
            (paired.count for f, paired in group.differences.items() if f in dict(figures).values()),
            default=0,
        )
        cells = [interval(figure[1], group.differences.get(figure)) for _, figure in figures]
        rows.append((group.name, *cells, str(pairs) if pairs else DASH))
    name = " ".join(label if axis == METHOD else f"{axis}={label}" for axis, label in baseline.items())
    heading = f"{title}, minus {name}: mean [{LEVEL:.0%} t interval] over pairs of the same seed"
    return Block(heading, ("", *(heading for heading, _ in figures), "pairs"), tuple(rows))
