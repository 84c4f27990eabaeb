"""The tables of a run as rows: its tests, rounds, costs, clients and events, and a curve."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from edgeflock.common.errors import UnknownName
from edgeflock.common.scores import LOSS, Summary
from edgeflock.lab.history import Client, History, RoundHistory
from edgeflock.lab.notebook.frames import Row
from edgeflock.lab.plots.curves import EVERY, Against

_OF_A_GROUP = ("samples", "members", "deviation", "worst_tenth")  # beside its metrics


def figures(summary: Summary, figure: str) -> dict[str, float]:
    """Return what a test has found, by name; `figure` is that of what the run is judged by."""
    return {
        figure: summary.value,
        **{name: value for name, value in summary.others.items() if name != figure},
        **({LOSS.name: summary.loss} if figure != LOSS.name else {}),
        "samples": summary.samples,
        "members": summary.members,
        "deviation": summary.deviation,
        "worst_tenth": summary.worst_tenth,
    }


def metrics(history: History) -> list[str]:
    """Return the names of what the run's tests have found, the first one is what it is judged by."""
    tests = [one for round in history.rounds for one in round.evaluations.values()]
    found = [figures(test, history.figure.name) for test in tests]
    return [name for name in dict.fromkeys(name for row in found for name in row) if name not in _OF_A_GROUP]


def evaluations(history: History) -> Iterator[Row]:
    """Yield a row for every test of every model; where one name stands for several, how they spread, too."""
    tests = [(round, *found) for round in history.rounds for found in round.evaluations.items()]
    several = any(summary.members > 1 for _, _, summary in tests)
    for round, model, summary in tests:
        found = figures(summary, history.figure.name) if several else _own(summary, history.figure.name)
        yield {"round": round.number, "model": model, **found, "samples": summary.samples}


def rounds(history: History) -> Iterator[Row]:
    """Yield a row for every committed round: who took part, what came of it, what was measured."""
    for round in history.rounds:
        yield {
            "round": round.number,
            "last": bool(round.last),
            "members": len(round.cohort),
            **round.verdicts,
            "seconds": round.seconds,
            "bytes": round.bytes,
            **round.metrics,
        }


def costs(history: History) -> Iterator[Row]:
    """Yield a row for every round that was paid for, those that were given up too.

    What the clients say is summed over them, of peaks and temperatures the highest; the server's own columns
    begin with `server_`.
    """
    every = sorted((*history.rounds, *history.others), key=lambda round: (round.epoch, round.number))
    standing = {(round.epoch, round.number) for round in history.rounds}
    for round in every:
        yield {
            "epoch": round.epoch,
            "round": round.number,
            "stands": (round.epoch, round.number) in standing,
            "seconds": round.seconds,
            "bytes": round.bytes,
            **round.costs,
            **_of_the_server(round),
        }


def _of_the_server(round: RoundHistory) -> dict[str, float]:
    """Return the costs that the server states of a round as a whole."""
    said = {name: value for name, value in round.values.items() if name not in round.metrics}
    return {
        name if name.startswith("server_") else f"server_{name}": value
        for name, value in said.items()
        if " " not in name  # what the method was told, in words
    }


def clients(history: History) -> Iterator[Row]:
    """Yield a row for every client, over the whole run."""
    for client in history.clients:
        yield {
            "seat": client.seat,
            "client": client.name,
            **client.verdicts,
            **client.costs,
            "samples": client.samples,  # no sum over the rounds
            **_scores(client, history.figure.name),
        }


def _scores(client: Client, figure: str) -> dict[str, float]:
    return {
        f"{model}_{name}": value
        for model, summary in client.scores.items()
        for name, value in _own(summary, figure).items()
    }


def _own(summary: Summary, figure: str) -> dict[str, float]:
    """Return the figures of one test: how a group of models spreads says nothing there."""
    return {name: value for name, value in figures(summary, figure).items() if name not in _OF_A_GROUP}


def events(history: History) -> Iterator[Row]:
    """Yield a row for every event: when, what, and its fields."""
    for event in history.events:
        fields = dict(event.fields)
        yield {
            "at": datetime.fromtimestamp(event.at, UTC),
            "name": event.name,
            "round": fields.pop("round", None),
            "client": fields.pop("client", None),
            "fields": fields,
        }


def curve(history: History, what: str | None, over: str, model: str | None) -> Iterator[Row]:
    """Yield what a model's tests have found beside what the run had cost by then.

    Raises UnknownName with the nearest of those that there are.
    """
    axis, name = against(over), model or next(iter(history.models()), None)
    if model is not None and model not in history.models():
        raise UnknownName("model", model, history.models())
    metric = what or next(iter(metrics(history)), None)
    if what is not None and what not in metrics(history):
        raise UnknownName("metric", what, metrics(history))
    if name is None or metric is None:
        return
    for point in history.curve(name):
        cost = {} if axis.cost == "rounds" else {over: axis.of(point)}
        yield {"round": point.round, **cost, metric: point.evaluation.of(metric, history.figure.name)}


def against(over: str) -> Against:
    """Return the x axis of that name. Raises UnknownName with the nearest one."""
    axes = {axis.cost: axis for axis in EVERY}
    if over not in axes:
        raise UnknownName("cost", over, axes)
    return axes[over]


_PAID = ("seconds", "simulated_s", "bytes", "bytes_up", "bytes_down", "cpu_s", "flops", "energy_j")


def summary(history: History) -> dict[str, Any]:
    """Return what the run was and came to, in one dictionary."""
    ending, config = history.ending, history.config
    return {
        "run": str(history.run_dir),
        "method": config.method,
        "dataset": config.dataset,
        "model": config.model,
        "clients": config.clients,
        "state": "going on" if ending is None else ending.kind,
        "reason": "" if ending is None else ending.reason,
        "rounds": max((round.number for round in history.training), default=0),
        **_last(history),
        **_best(history),
        **{name: history.total[name] for name in _PAID if name in history.total},
    }


def _last(history: History) -> dict[str, float]:
    """Return what the last test of the first model has found."""
    points = history.curve(history.models()[0]) if history.models() else []
    return _own(points[-1].evaluation, history.figure.name) if points else {}


def _best(history: History) -> dict[str, float]:
    """Return the best of what the run is judged by, and the round that had it."""
    found = history.best(history.models()[0]) if history.models() else None
    name = history.figure.name
    return {} if found is None else {f"best_{name}": found.evaluation.value, "best_round": found.round}
