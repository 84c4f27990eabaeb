"""Lines against rounds, bytes, seconds and energy: accuracy, loss, and what a method says of itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from edgeflock.common.units import scale
from edgeflock.lab.history import GLOBAL, History, Point
from edgeflock.lab.report.names import elided
from edgeflock.lab.report.theme import Stroke, figure, stroke

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (4.1, 2.7)  # inches of a plot without its legend
_LEGEND_WIDTH = 52  # characters of a row of it
_LEGEND_ROW = 0.17  # inches
STEPS = (1, 2, 2.5, 5, 10)  # between ticks, times a power of ten
_DOTS = 40  # up to so many points are marked
_DIVERGED = 10.0  # a loss so many times the largest first one has diverged
_FAR = 4.0  # a run that cost so many times the middle one gets a logarithmic axis
_EQUAL = 1e-9  # relative; smaller differences are rounding
_DECADES = 1.5  # a positive quantity that spans more is drawn on a logarithmic axis

LOSSES = ("loss", "F")
# name of a metric: how it is called, and what it means
METRICS = {
    "loss": ("training loss", "Mean over the clients' samples, while they train."),
    "tau": (
        "τ: local steps",
        "Steps that every client does in a round, chosen by the bound and the budgets.",
    ),
    "mu_bar": ("μ: pull to the anchor", "Mean over the clients."),
    "B_k": ("B: dissimilarity", "1 where all clients' losses are the same."),
    "H_k": ("H: dissimilarity that is left", "0 where B explains all of it."),
    "F": ("F: loss on the clients' data", "At the model that was sent out."),
    "F_best": ("F of the best model", "The smallest F so far."),
    "G": ("G: bound that τ minimises", "At the τ that was chosen."),
    "rho": ("ρ: Lipschitz constant", "As the clients estimate it."),  # noqa: RUF001 - FedADM's symbol
    "beta": ("β: smoothness", "As the clients estimate it."),
    "delta": ("δ: divergence of gradients", "Of the clients from their mean."),
    "score": (
        "score",
        "Mean over the clients: how far each is from its largest loss against the server's model.",
    ),
    "score_max": ("largest score", "Of all clients."),
    "pull": ("pull to the representation model", "Weighted mean over the clients."),
    "norm_ratio": ("norm ratio d", "Mean length of the updates over the length of their mean."),
    "manifold_share": ("share of the manifold term", "Length of its gradient over that of the loss."),
    "push_limited": ("clients whose push was limited", "By FedTrip's push_limit, of those who counted."),
    "drift_norm": ("length of the drift correction", "Mean over the clients."),
    "centroids": ("classes with a centroid", "Of which some client has told by now."),
    "eta_g": ("step of the server", "As FedExP extrapolates it."),
    "eta": ("step of the server", "By which the mean of the updates is multiplied."),
    "momentum_norm": ("length of the momentum", "Of the server's direction."),
}


@dataclass(frozen=True)
class Line:
    """One line of a plot."""

    label: str
    stroke: Stroke
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()  # half the width of the band around it


@dataclass(frozen=True)
class Against:
    """What a plot's x axis counts."""

    name: str  # of the file
    title: str
    quantity: str  # its units; empty for rounds
    of: Callable[[Point], float | None]  # None: nobody told


AXES = (
    Against("rounds", "round", "", lambda point: point.round),
    Against("bytes", "bytes up and down", "bytes", lambda point: point.spent.get("bytes", 0.0)),
    Against("seconds", "time of the server", "seconds", lambda point: point.spent.get("seconds", 0.0)),
    Against("energy", "energy", "energy", lambda point: point.spent.get("energy_j")),
)


def axes_of(histories: Sequence[History]) -> list[Against]:
    """Return the axes that there are numbers for; energy only where a run has a ledger of it."""
    told = any("energy_j" in round.spent for history in histories for round in history.rounds)
    return [axis for axis in AXES if axis.name != "energy" or told]


def evaluations(histories: Sequence[History], names: Sequence[str], what: str, axis: Against) -> list[Line]:
    """Return accuracy or loss: of one run all its models, of several the one that a curve means."""
    if len(histories) == 1:
        (history,) = histories
        models = history.models()
        return [
            _line(history, model, model, what, axis, stroke(number, dash=min(1, number)))
            for number, model in enumerate(models)
        ]
    found = []
    for number, (history, name) in enumerate(zip(histories, names, strict=True)):
        if models := history.models():
            found.append(_line(history, models[0], name, what, axis, stroke(number)))
    return found


def _line(history: History, model: str, label: str, what: str, axis: Against, look: Stroke) -> Line:
    known = [(axis.of(point), point.evaluation) for point in history.curve(model)]
    points = [(x, found) for x, found in known if x is not None and math.isfinite(getattr(found, what))]
    spread = [found.deviation for _, found in points] if what == "accuracy" else []
    shown = label if label != model else MODELS.get(model, model.replace("_", " "))
    return Line(
        shown,
        look,
        [x for x, _ in points],
        [getattr(found, what) for _, found in points],
        spread if any(spread) and label == model else (),
    )


MODELS = {
    GLOBAL: "global model",
    "client_local": "clients' own models, own test data",
    "client_pooled": "clients' own models, all test data",
    "personal": "personal models",
    "representation": "representation model",
}


def metrics(histories: Sequence[History]) -> list[str]:
    """Return what the methods say of their rounds, known names in the order of the table above."""
    found = {name for history in histories for round in history.training for name in round.metrics}
    known = [name for name in METRICS if name in found]
    return known + sorted(found - set(known))


def metric(histories: Sequence[History], names: Sequence[str], what: str) -> list[Line]:
    lines = []
    for number, (history, name) in enumerate(zip(histories, names, strict=True)):
        told = [(round.number, round.metrics[what]) for round in history.training if what in round.metrics]
        told = [(x, y) for x, y in told if math.isfinite(y)]
        if told:
            lines.append(Line(name, stroke(number), *map(list, zip(*told, strict=True))))
    return lines


def draw(
    lines: Sequence[Line], x: str, y: str, quantity: str, *, legend: bool, top: float | None = None
) -> Figure:
    """Return the plot, cut off at `top` if that is given; call it inside `styled`."""
    from matplotlib.ticker import MaxNLocator

    labels = elided([line.label for line in lines], _LEGEND_WIDTH)
    made = figure(SIZE[0], SIZE[1] + (_LEGEND_ROW * len(lines) + 0.1 if legend else 0.0))
    axes = made.subplots()
    unit = scale(quantity, [value for line in lines for value in line.x]) if quantity else None
    for line, label in zip(lines, labels, strict=True):
        _draw_line(axes, line, unit.of(line.x) if unit else list(line.x), label)
    axes.set(xlabel=unit.label(x) if unit else x, ylabel=y)
    if quantity and _far_apart([line.x for line in lines if line.x]):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=STEPS, integer=not quantity))
    if top is None:
        _choose_scale(axes, [value for line in lines for value in line.y])
    else:
        least = min(value for line in lines for value in line.y)
        axes.set_ylim(min(0.95 * least, least - 0.05 * (top - least)), top)
    if legend:
        made.legend(loc="outside lower left", ncols=1, handlelength=3)
    return made


def _far_apart(costs: Sequence[Sequence[float]]) -> bool:
    """Whether one line is so much longer than the others that these would be crowded at the left."""
    ends = sorted(x[-1] for x in costs)
    return len(ends) > 1 and min(map(min, costs)) > 0 and ends[-1] > _FAR * median(ends)


def _draw_line(axes: Axes, line: Line, x: Sequence[float], label: str) -> None:
    look = line.stroke
    marker = "o" if len(x) <= _DOTS else ""
    axes.plot(x, line.y, color=look.colour, linestyle=look.dash, label=label, marker=marker, markersize=2.6)
    if line.spread:
        low = [max(0.0, y - spread) for y, spread in zip(line.y, line.spread, strict=True)]
        high = [min(1.0, y + spread) for y, spread in zip(line.y, line.spread, strict=True)]
        axes.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)


def _choose_scale(axes: Axes, values: Sequence[float]) -> None:
    """Draw decades on a logarithmic axis, and a constant as one: its rounding is no curve."""
    least, most = min(values, default=0.0), max(values, default=0.0)
    if least > 0 and math.log10(most / least) > _DECADES:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    elif most - least < _EQUAL * max(1.0, abs(most)):
        room = 0.05 * abs(most) if abs(most) > _EQUAL else 0.05
        axes.set_ylim(least - room, most + room)


def highest(lines: Sequence[Line]) -> float | None:
    """Return where a plot of losses ends at the top because one has diverged; None if none has."""
    top = max((line.y[0] for line in lines if line.y), default=0.0)
    diverged = any(value > _DIVERGED * top for line in lines for value in line.y)
    return 1.3 * top if top > 0 and diverged else None
