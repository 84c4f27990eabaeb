"""Lines against rounds, bytes, seconds and energy: metrics, loss, and what a method says of itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from edgeflock.common.command.units import Scale, scale
from edgeflock.lab.history import GLOBAL, History, Point
from edgeflock.lab.plots.names import elided
from edgeflock.lab.plots.theme import FAINT, NEUTRAL, Stroke, figure, stroke

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
_HIDDEN = 0.003  # of the axis: lines no further apart look like one
_MARKS = 8  # on a line with a shape of its own
_BELOW = 0.1  # at least so much accuracy is shown below the lowest target
_APART = 0.04  # of the x axis, between two arrows
_LEAST_ROOM = 0.005  # above and below the accuracies of a plot
SHARE, UNBOUNDED = (0.0, 1.0), (-math.inf, math.inf)
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
    "H_k": ("H: dissimilarity that is left", "0 by definition, as the paper's equations stand."),
    "H_before": (
        "H, with B of the round before",
        "What of the losses the B of the round before does not explain.",
    ),
    "B_g": ("B of gradients", "1 where all clients' gradients are the same."),
    "H_g": ("H of gradients", "What of them the B of the round before does not explain."),
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
class Curve:
    """One line of a plot."""

    label: str
    stroke: Stroke
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()  # half the width of the band around it
    within: tuple[float, float] = (-math.inf, math.inf)  # where the band can be


@dataclass(frozen=True)
class Frame:
    """What of the y axis a plot shows, where it does not show all; and the targets that it marks."""

    low: float | None = None
    high: float | None = None
    targets: Sequence[float] = ()


@dataclass(frozen=True)
class Against:
    """What a plot's x axis counts."""

    name: str  # of the file
    title: str
    quantity: str  # its units; empty for rounds
    cost: str  # what of the run's costs

    def of(self, point: Point) -> float | None:
        """Return where an evaluation stands; None: nobody told."""
        return float(point.round) if self.cost == _ROUNDS else point.spent.get(self.cost)


_ROUNDS = "rounds"
EVERY = (
    Against("rounds", "round", "", _ROUNDS),
    Against("iterations", "local steps", "count", "iterations"),
    Against("simulated", "simulated time", "seconds", "simulated_s"),
    Against("bytes", "bytes up and down", "bytes", "bytes"),
    Against("seconds", "time of the server", "seconds", "seconds"),
    Against("flops", "operations of the clients", "flops", "flops"),
    Against("all-flops", "operations, the server's too", "flops", "all_flops"),
    Against("energy", "energy", "energy", "energy_j"),
)
_ASKED = ("iterations", "flops", "all_flops")  # drawn where that is asked for
AXES = tuple(axis for axis in EVERY if axis.cost not in _ASKED)
_UNMEASURED = ("energy_j", "simulated_s")  # in some runs


def axes_of(histories: Sequence[History]) -> list[Against]:
    """Return the axes that there are numbers for: energy and a simulated clock only where runs have them."""
    told = {name for history in histories for round in history.rounds for name in round.spent}
    return [axis for axis in AXES if axis.cost not in _UNMEASURED or axis.cost in told]


def evaluations(histories: Sequence[History], names: Sequence[str], what: str, axis: Against) -> list[Curve]:
    """Return a metric: of one run all its models, of several the one that a curve means."""
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


def _line(history: History, model: str, label: str, what: str, axis: Against, look: Stroke) -> Curve:
    figure = history.figure.name
    known = [(axis.of(point), point.evaluation) for point in history.curve(model)]
    points = [(x, found) for x, found in known if x is not None and math.isfinite(found.of(what, figure))]
    spread = [found.deviation for _, found in points] if what == figure else []
    shown = label if label != model else MODELS.get(model, model.replace("_", " "))
    return Curve(
        shown,
        look,
        [x for x, _ in points],
        [found.of(what, figure) for _, found in points],
        spread if any(spread) and label == model else (),
        SHARE if any(one.name == what and one.share for one in history.measures) else UNBOUNDED,
    )


MODELS = {
    GLOBAL: "global model",
    "global-train": "global model, training data",
    "devices": "global model, on the devices",
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


def metric(histories: Sequence[History], names: Sequence[str], what: str) -> list[Curve]:
    lines = []
    for number, (history, name) in enumerate(zip(histories, names, strict=True)):
        told = [(round.number, round.metrics[what]) for round in history.training if what in round.metrics]
        told = [(x, y) for x, y in told if math.isfinite(y)]
        if told:
            lines.append(Curve(name, stroke(number), [x for x, _ in told], [y for _, y in told]))
    return lines


def draw(
    lines: Sequence[Curve], x: str, y: str, quantity: str, *, legend: bool, frame: Frame = Frame()
) -> Figure:
    """Return the plot of a frame; call it inside `styled`."""
    labels = elided([line.label for line in lines], _LEGEND_WIDTH)
    made = figure(SIZE[0], SIZE[1] + (_LEGEND_ROW * len(lines) + 0.1 if legend else 0.0))
    axes = made.subplots()
    panel(axes, lines, labels, x, quantity, frame)
    axes.set_ylabel(y)
    if legend:
        made.legend(loc="outside lower left", ncols=1, handlelength=3)
    return made


def panel(
    axes: Axes, lines: Sequence[Curve], labels: Sequence[str], x: str, quantity: str, frame: Frame
) -> None:
    """Draw lines, what leaves the frame, and the targets."""
    from matplotlib.ticker import MaxNLocator

    unit = scale(quantity, [value for line in lines for value in line.x]) if quantity else Scale()
    over = twins(lines)
    for number, (line, label) in enumerate(zip(lines, labels, strict=True)):
        named = f"{label} (on {labels[over[number]]})" if number in over else label
        _draw_line(axes, line, unit.of(line.x), named, over=number in over)
    axes.set_xlabel(unit.label(x))
    if quantity and _far_apart([line.x for line in lines if line.x]):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=STEPS, integer=not quantity))
    if frame.low is None and frame.high is None:
        _choose_scale(axes, [value for line in lines for value in line.y])
    else:
        axes.set_ylim(frame.low, frame.high)
        _point_out(axes, lines, unit)
    _mark(axes, frame.targets)


def _point_out(axes: Axes, lines: Sequence[Curve], unit: Scale) -> None:
    """Put an arrow where a line leaves the frame."""
    low, high = axes.get_ylim()
    apart = _APART * (axes.get_xlim()[1] - axes.get_xlim()[0])
    taken: list[tuple[float, str]] = []
    for line in lines:
        x = unit.of(line.x)
        for place, side in leaves(line.y, low, high):
            before = int(place)
            step = (x[before + 1] - x[before]) * (place - before) if place > before else 0.0
            there = x[before] + step
            while any(side == other and abs(there - its_x) < apart for its_x, other in taken):
                there -= apart
            taken.append((there, side))
            axes.plot(
                [there], [high if side == TOP else low], color=line.stroke.colour,
                marker="^" if side == TOP else "v", markersize=8, clip_on=False, zorder=6,
            )  # fmt: skip


def _mark(axes: Axes, targets: Sequence[float]) -> None:
    for target in targets:
        axes.axhline(target, color=NEUTRAL, linestyle=(0, (2, 2)), linewidth=1, zorder=1)
        axes.text(
            1.01, target, f"{target:g}",
            transform=axes.get_yaxis_transform(), va="center", fontsize=7, color=FAINT,
        )  # fmt: skip


def _far_apart(costs: Sequence[Sequence[float]]) -> bool:
    """Whether one line is so much longer than the others that these would be crowded at the left."""
    ends = sorted(x[-1] for x in costs)
    return len(ends) > 1 and min(map(min, costs)) > 0 and ends[-1] > _FAR * median(ends)


def _draw_line(axes: Axes, line: Curve, x: Sequence[float], label: str, *, over: bool) -> None:
    """Draw a line and its band; one that lies over another is dashed, so that both are seen."""
    look = line.stroke
    dash = (0, (5, 5)) if over else look.dash
    axes.plot(x, line.y, color=look.colour, linestyle=dash, label=label, **_marks(look, len(x), over=over))
    if line.spread:
        least, most = line.within
        low = [max(least, y - spread) for y, spread in zip(line.y, line.spread, strict=True)]
        high = [min(most, y + spread) for y, spread in zip(line.y, line.spread, strict=True)]
        axes.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)


def _marks(look: Stroke, count: int, *, over: bool) -> dict[str, Any]:
    """Return how points are marked: all of a short line, some of one with a shape of its own."""
    if not look.shape:
        return {"marker": "o" if count <= _DOTS else "", "markersize": 2.6}
    step = max(2 if over else 1, count // _MARKS)  # those of the line below are to be seen, too
    return {"marker": look.shape, "markersize": 5, "markevery": (step // 2 if over else 0, step)}


def _choose_scale(axes: Axes, values: Sequence[float]) -> None:
    """Draw decades on a logarithmic axis, and a constant as one: its rounding is no curve."""
    least, most = min(values, default=0.0), max(values, default=0.0)
    if least > 0 and math.log10(most / least) > _DECADES:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    elif most - least < _EQUAL * max(1.0, abs(most)):
        room = 0.05 * abs(most) if abs(most) > _EQUAL else 0.05
        axes.set_ylim(least - room, most + room)


def loss_frame(lines: Sequence[Curve]) -> Frame:
    """Return the frame of a plot of losses: it ends at the top where one has diverged."""
    top = max((line.y[0] for line in lines if line.y), default=0.0)
    values = [value for line in lines for value in line.y]
    if not (top > 0 and any(value > _DIVERGED * top for value in values)):
        return Frame()
    high, least = 1.3 * top, min(values)
    return Frame(min(0.95 * least, least - 0.05 * (high - least)), high)


def accuracy_frame(lines: Sequence[Curve], targets: Sequence[float]) -> Frame:
    """Return the frame of a plot of accuracies: the way up from nothing would leave no room for what targets
    tell, so it begins a little below the lowest."""
    values = [value for line in lines for value in line.y]
    if not targets or not values:
        return Frame(targets=targets)
    high = max(*values, *targets)
    low = max(min(values), targets[0] - max(_BELOW, 2 * (high - targets[0])))
    room = max(_LEAST_ROOM, 0.05 * (high - low))
    return Frame(low - room, high + room, targets)


TOP, BOTTOM = "top", "bottom"


def leaves(y: Sequence[float], low: float, high: float) -> list[tuple[float, str]]:
    """Return where a line leaves a frame and on which side, in points from its first; at its last one if it
    is never inside. One that comes into the frame does not leave it."""
    inside = [low <= value <= high for value in y]
    if y and not any(inside):
        return [(len(y) - 1.0, TOP if y[-1] > high else BOTTOM)]
    found = []
    for place, (before, after) in enumerate(pairwise(y)):
        if inside[place] and not inside[place + 1]:
            edge, side = (high, TOP) if after > high else (low, BOTTOM)
            found.append((place + (edge - before) / (after - before), side))
    return found


def twins(lines: Sequence[Curve]) -> dict[int, int]:
    """Return which lines lie on an earlier one, by their places: of both only one would be seen."""
    wide, tall = (
        (_span(values) for values in zip(*((line.x, line.y) for line in lines), strict=True))
        if lines
        else (0.0, 0.0)
    )
    found: dict[int, int] = {}
    for number, line in enumerate(lines):
        earlier = (place for place in range(number) if place not in found)
        on = next((place for place in earlier if _is_on(line, lines[place], wide, tall)), None)
        if on is not None:
            found[number] = on
    return found


def _span(values: Sequence[Sequence[float]]) -> float:
    known = [value for some in values for value in some]
    return max(known, default=0.0) - min(known, default=0.0)


def _is_on(line: Curve, other: Curve, wide: float, tall: float) -> bool:
    if not line.x or len(line.x) != len(other.x):
        return False
    return all(
        abs(x - its_x) <= _HIDDEN * wide and abs(y - its_y) <= _HIDDEN * tall
        for x, y, its_x, its_y in zip(line.x, line.y, other.x, other.y, strict=True)
    )


def remarks(lines: Sequence[Curve], frame: Frame) -> list[str]:
    """Return in sentences what a plot of these lines does not show by itself."""
    found = [f"{lines[n].label} lies on {lines[on].label}." for n, on in twins(lines).items()]
    if frame.low is None or frame.high is None:
        return found
    for side in (TOP, BOTTOM):
        names = [
            line.label
            for line in lines
            if any(mine == side for _, mine in leaves(line.y, frame.low, frame.high))
        ]
        if names:
            found.append(f"An arrow at the {side}: {', '.join(names)} leaves the frame there.")
    return found
