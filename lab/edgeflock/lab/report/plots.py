"""Which plots a report has: those of all runs together, and those of each run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from edgeflock.common.scores import ACCURACY, LOSS, Metric, headed
from edgeflock.lab.history import History
from edgeflock.lab.plots import costs, curves, matrices, stacks
from edgeflock.lab.plots.album import Album, Plot
from edgeflock.lab.plots.names import without_beginning
from edgeflock.lab.report.subject import Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BAND = "Around a mean of several models: one standard deviation over them."


def overlaid(album: Album, subjects: Sequence[Subject]) -> list[Plot]:
    """Return every metric of the runs' tasks and the loss against everything that there are numbers for."""
    histories, names = _of(subjects)
    plots = []
    for what in tested(histories):
        for axis in curves.axes_of(histories):
            lines = curves.evaluations(histories, names, what, axis)
            frame = curves.loss_frame(lines) if what == "loss" else curves.Frame()
            measured = _measured(subjects, what)
            draw = partial(curves.draw, lines, axis.title, measured, axis.quantity, frame=frame)
            title = f"{headed(what).replace('_', ' ')} against {axis.name}"
            band = [BAND] if any(line.spread for line in lines) else []
            caption = " ".join([*band, *curves.remarks(lines, frame)])
            plots.append(of_lines(album, f"{what}-{axis.name}", title, caption, draw, lines, len(subjects)))
    return drawn(plots)


def tested(histories: Sequence[History]) -> list[str]:
    """Return by what the runs' models are judged, and the loss last; other metrics only of one run's task."""
    measures = [history.measures for history in histories]
    if len(histories) == 1 and measures[0][0] != ACCURACY:
        return [one.name for one in measures[0]]
    return [*dict.fromkeys(mine[0].name for mine in measures if mine[0] != LOSS), LOSS.name]


def judged(figures: Iterable[Metric]) -> str:
    """Return what stands above the plots of how good models are."""
    names = dict.fromkeys(figure.name.replace("_", " ") for figure in figures)
    return f"{headed(', '.join(names))} and loss" if [*names] != [LOSS.name] else "Loss"


def of_lines(
    album: Album,
    stem: str,
    title: str,
    caption: str,
    draw: Callable[..., Figure],
    lines: Sequence[curves.Curve],
    runs: int,
) -> Plot | None:
    """Add a plot of lines; on the page the legend of several runs stands above all plots."""
    if not lines:
        return None
    on_page = partial(draw, legend=False) if runs > 1 else None
    legend = runs > 1 or len(lines) > 1
    return album.add(stem, title, caption, partial(draw, legend=legend), on_page)


def _measured(subjects: Sequence[Subject], what: str) -> str:
    groups = any(subject.history.models()[:1] not in ([], ["global"]) for subject in subjects)
    return f"test {what}, mean of models" if groups else f"test {what}"


def of_methods(album: Album, subjects: Sequence[Subject]) -> list[Plot]:
    """Return what the methods say of their rounds: training loss, FedADM's tau, pFedMo's scores ..."""
    histories, names = _of(subjects)
    plots = []
    for metric in curves.metrics(histories):
        lines = curves.metric(histories, names, metric)
        title, meaning = curves.METRICS.get(metric, (metric.replace("_", " "), ""))
        frame = curves.loss_frame(lines) if metric in curves.LOSSES else curves.Frame()
        draw = partial(curves.draw, lines, "round", title, "", frame=frame)
        caption = " ".join([meaning, *curves.remarks(lines, frame)]).strip()
        plots.append(of_lines(album, f"method-{metric}", headed(title), caption, draw, lines, len(subjects)))
    return drawn(plots)


def totals(album: Album, subjects: Sequence[Subject]) -> list[Plot]:
    """Return what several runs have cost, side by side."""
    if len(subjects) < 2:
        return []
    _, names = _of(subjects)
    runs = [(name, one.history) for name, one in zip(names, subjects, strict=True)]
    return drawn(
        album.add(
            f"runs-{stack.name}",
            f"{stack.title}, by run",
            stack.caption,
            partial(costs.lying, stack, rows, "run"),
        )
        for stack, rows in stacks.of_runs(runs)
    )


def by_round(album: Album, subject: Subject) -> list[Plot]:
    """Return the costs of a run's rounds and of its clients."""
    found = []
    for stack, numbers in stacks.of_rounds(subject.history):
        draw = partial(costs.per_round, subject.history.rounds, stack, numbers)
        title = f"{stack.title}, by round"
        found.append(album.add(_stem(subject, f"rounds-{stack.name}"), title, stack.caption, draw))
    for stack, rows in stacks.of_clients(subject.history):
        draw = partial(costs.lying, stack, rows, "client")
        found.append(
            album.add(_stem(subject, f"clients-{stack.name}"), f"{stack.title}, by client", "", draw)
        )
    return drawn(found)


def of_data(album: Album, subject: Subject) -> list[Plot]:
    """Return who holds which labels, what the model mistakes for what, and how each client does."""
    found = []
    names = [client.name for client in subject.history.clients]
    if (table := subject.labels.value) is not None:
        named = names if len(names) == len(table) else [str(number) for number in range(len(table))]
        draw = partial(matrices.labels, table, named)
        why = "Area of a dot: samples of that class."
        if not matrices.are_bubbles(table):
            why = "Depth of a shade: samples of that class, by their square root."
        found.append(album.add(_stem(subject, "labels"), "Labels of every client", why, draw))
    if (exam := subject.exam.value) is not None:
        whose = "the final model" if exam.final else f"the model of round {exam.round}"
        why = f"Of {whose}, on the server's test samples; shades are shares of a row."
        found.append(
            album.add(
                _stem(subject, "confusion"), "Confusion matrix", why, partial(matrices.confusion, exam.table)
            )
        )
    return drawn([*found, *_of_clients(album, subject)])


def _of_clients(album: Album, subject: Subject) -> list[Plot | None]:
    found = []
    models = sorted({model for client in subject.history.clients for model in client.scores})
    for model in models:
        scored = [
            (client.name, client.scores[model].value)
            for client in subject.history.clients
            if model in client.scores
        ]
        words = curves.MODELS.get(model, model.replace("_", " "))
        name = subject.history.figure.name
        draw = partial(matrices.bars, scored, name)
        title = f"{headed(name)} by client: {words}"
        found.append(album.add(_stem(subject, f"clients-{model}"), title, "In the last test.", draw))
    if subject.scores:
        why = "Scores of the last round: the larger, the more a client is pulled to the server's model."
        draw = partial(matrices.bars, subject.scores, "score")
        found.append(album.add(_stem(subject, "scores"), "Scores of the clients", why, draw))
    return found


def _of(subjects: Sequence[Subject]) -> tuple[list[History], list[str]]:
    numbered = len(subjects) > 1
    shown = without_beginning([subject.name for subject in subjects])
    names = [f"{number}  {name}" if numbered else name for number, name in enumerate(shown, 1)]
    return [subject.history for subject in subjects], names


def _stem(subject: Subject, what: str) -> str:
    return f"run-{subject.number + 1:02d}-{what}"


def drawn(plots: Iterable[Plot | None]) -> list[Plot]:
    return [plot for plot in plots if plot is not None]
