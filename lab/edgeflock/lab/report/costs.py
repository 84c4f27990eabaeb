"""Where bytes and seconds go: stacked by round, by client, and by run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgeflock.lab.history import TIME_LINE, History, Numbers
from edgeflock.lab.report.curves import SIZE
from edgeflock.lab.report.names import elided
from edgeflock.lab.report.theme import HUES, NEUTRAL, figure
from edgeflock.lab.report.units import means, scale, spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BARS = 60  # more rounds are drawn as means of several
_NAMED = 40  # more clients are drawn without their names
_NAME_WIDTH = 34  # characters
_BLUE, _ORANGE, _GREEN, _PURPLE, _RED, _TEAL = (light for light, _ in HUES[:6])


@dataclass(frozen=True)
class Part:
    """One part of a stack."""

    label: str
    colour: str
    of: Callable[[Numbers], float]  # from the costs of a round or of a client


@dataclass(frozen=True)
class Stack:
    """A quantity and the parts it is made of."""

    name: str  # of the file
    title: str
    quantity: str
    parts: tuple[Part, ...]


def _named(name: str) -> Callable[[Numbers], float]:
    return lambda costs: costs.get(name, 0.0) or 0.0


_SERVER_WORDS = {
    "select_s": ("select the cohort", _PURPLE),
    "open_s": ("open: clients at work", _BLUE),
    "fold_s": ("fold", _ORANGE),
    "commit_s": ("commit", _GREEN),
    "evaluate_s": ("evaluate", _TEAL),
    "paused_s": ("paused", NEUTRAL),
}
SERVER = Stack(
    "server-seconds",
    "Time of the server",
    "seconds",
    tuple(
        Part(*_SERVER_WORDS.get(name, (name.removesuffix("_s"), _RED)), _named(name)) for name in TIME_LINE
    ),
)
CLIENTS = Stack(
    "client-seconds",
    "Time of the clients",
    "seconds",
    (
        Part("fetch", _BLUE, _named("fetch_s")),
        Part("train", _ORANGE, _named("train_s")),
        Part("deliver", _GREEN, _named("deliver_s")),
        Part("wait", NEUTRAL, _named("wait_s")),
    ),
)


def _overhead(costs: Numbers) -> float:
    ways = [("message_bytes_down", "bytes_down"), ("message_bytes_up", "bytes_up")]
    return sum(max(0.0, costs.get(message, 0) - costs.get(way, 0)) for message, way in ways)


BYTES = Stack(
    "bytes",
    "Bytes",
    "bytes",
    (
        Part("down", _BLUE, _named("bytes_down")),
        Part("up", _ORANGE, lambda costs: costs.get("bytes_up", 0) - costs.get("resent_bytes", 0)),
        Part("up once more, after a cut", _RED, _named("resent_bytes")),
        Part("messages around them", NEUTRAL, _overhead),
    ),
)


def per_round(history: History, stack: Stack) -> Figure | None:
    """Return a stack of bars by round: of clients' seconds the mean over the cohort."""
    rounds = history.rounds
    if stack is SERVER:
        rows: list[Numbers] = [round.time_line for round in rounds]
    elif stack is CLIENTS:
        rows = [_shared(round.costs, max(1, sum(round.verdicts.values()))) for round in rounds]
    else:
        rows = [round.costs for round in rounds]
    parts = _present(stack, rows)
    if not parts:
        return None
    cuts = spans(len(rounds), _BARS)
    values = {part: means([part.of(row) for row in rows], cuts) for part in parts}
    unit = scale(stack.quantity, [sum(column) for column in zip(*values.values(), strict=True)])
    made, axes = _empty(SIZE[1], len(parts))
    edges = [rounds[low].number - 0.5 for low, _ in cuts] + [rounds[-1].number + 0.5]
    _pile(
        axes, {part: unit.of(heights) for part, heights in values.items()}, edges, grouped=len(rounds) > _BARS
    )
    axes.set_ylabel(unit.label("per round and client" if stack is CLIENTS else "per round"))
    axes.set_xlabel(f"round (means of {cuts[0][1]})" if cuts[0][1] > 1 else "round")
    axes.grid(axis="x", visible=False)
    axes.margins(x=0.01)
    _whole(axes, len(rounds))
    made.legend(loc="outside lower left", ncols=2)
    return made


def _pile(axes: Axes, values: Mapping[Part, list[float]], edges: Sequence[float], *, grouped: bool) -> None:
    """Pile up the parts between the edges: a bar for each round, or one outline where there are many."""
    tops = [0.0] * (len(edges) - 1)
    for part, heights in values.items():
        look: Any = {"label": part.label, "color": part.colour, "linewidth": 0}
        bottoms, tops = tops, [top + height for top, height in zip(tops, heights, strict=True)]
        if grouped:
            axes.stairs(tops, edges, baseline=bottoms, fill=True, **look)
        else:
            axes.bar([edge + 0.5 for edge in edges[:-1]], heights, 0.84, bottoms, **look)


def _shared(costs: Numbers, members: int) -> dict[str, float]:
    return {name: value / members for name, value in costs.items()}


def per_client(history: History, stack: Stack) -> Figure | None:
    """Return lying bars, one for each client, with names if they fit."""
    return lying(stack, [(client.name, client.costs) for client in history.clients], "client")


def per_run(histories: Sequence[History], names: Sequence[str], stack: Stack) -> Figure | None:
    """Return lying bars, one for each run: everything it has cost."""
    rows = []
    for history, name in zip(histories, names, strict=True):
        every = [round.time_line if stack is SERVER else round.costs for round in history.rounds]
        rows.append((name, _summed(every)))
    return lying(stack, rows, "run")


def _summed(rows: Sequence[Numbers]) -> dict[str, float]:
    total: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            total[name] = total.get(name, 0.0) + value
    return total


def lying(stack: Stack, rows: Sequence[tuple[str, Numbers]], what: str) -> Figure | None:
    """Return one lying bar for each name, the first on top; many are drawn by size and without names."""
    parts = _present(stack, [costs for _, costs in rows])
    if not parts:
        return None
    if not (named := len(rows) <= _NAMED):
        rows = sorted(rows, key=lambda row: -sum(part.of(row[1]) for part in parts))
    made, axes = _empty(0.9 + 0.2 * len(rows) if named else SIZE[1], len(parts))
    unit = scale(stack.quantity, [sum(part.of(costs) for part in parts) for _, costs in rows])
    lefts = [0.0] * len(rows)
    for part in parts:
        look: Any = {"label": part.label, "color": part.colour, "linewidth": 0}
        lengths = unit.of(part.of(costs) for _, costs in rows)
        ends = [left + length for left, length in zip(lefts, lengths, strict=True)]
        if named:
            axes.barh(range(len(rows)), lengths, 0.75, lefts, **look)
        else:
            axes.stairs(ends, baseline=lefts, orientation="horizontal", fill=True, **look)
        lefts = ends
    name_rows(axes, [name for name, _ in rows] if named else (), f"{len(rows)} {what}s, most on top")
    axes.set_xlabel(unit.label("whole run"))
    made.legend(loc="outside lower left", ncols=2)
    return made


def name_rows(axes: Axes, names: Sequence[str], instead: str) -> None:
    """Name lying bars, the first on top; without names say what they are."""
    if names:
        axes.set_yticks(range(len(names)), elided(names, _NAME_WIDTH))
        axes.tick_params(axis="y", length=0, labelsize=8)
        axes.set_ylim(len(names) - 0.4, -0.6)
    else:
        axes.set(ylabel=instead, yticks=[])
        axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def _present(stack: Stack, rows: Sequence[Mapping[str, float]]) -> list[Part]:
    """Return the parts that are somewhere more than nothing."""
    return [part for part in stack.parts if any(part.of(row) > 0 for row in rows)]


def _empty(height: float, parts: int) -> tuple[Figure, Axes]:
    made = figure(SIZE[0], height + 0.18 * -(-parts // 2))
    return made, made.subplots()


def _whole(axes: Axes, rounds: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=12 if rounds <= 12 else 7, integer=True, min_n_ticks=1))
