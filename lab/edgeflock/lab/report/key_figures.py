"""The numbers of a run that stand first in its report. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgeflock.common.command.units import UNKNOWN, amount, counted, decimal
from edgeflock.lab.history import GLOBAL, SERVER_J, History, Point
from edgeflock.server.costs.catalogue import MODEL_J, SENSOR_J, together


def figures(history: History) -> list[tuple[str, str, str]]:
    """Return the numbers that stand first: what, how much, a word more."""
    points = measured(history)
    best, name = history.best((history.models() or [GLOBAL])[0]), history.figure.name
    trained = max((round.number for round in history.training), default=0)
    found = [
        (
            f"final {name}" if history.ending else f"{name} so far",
            decimal(points[-1].evaluation.value) if points else UNKNOWN,
            " ".join(filter(None, [_model(history), last_test(history, points)])),
        ),
        (
            f"best {name}",
            decimal(best.evaluation.value) if best else UNKNOWN,
            f"after {round_name(history, best.round)}" if best else "",
        ),
        *_others(history, points),
        ("rounds", f"{trained:,}", f"of {history.config.rounds:,} asked for"),
        ("bytes", amount("bytes", history.total.get("bytes")), _ways(history)),
        ("time", amount("seconds", history.total.get("seconds")), _gathering(history)),
        ("CPU time", amount("seconds", history.total.get("cpu_s")), _server_cpu(history)),
    ]
    if history.total.get("flops") or _uncounted(history):
        found.append(("operations", amount("flops", history.total.get("flops")), _own_operations(history)))
    if (held := _classes_held(history)) is not None:
        found.append(("classes held", f"{held['held']} of {held['classes']}", _missing(held)))
    if history.total.get("exam_s"):
        tests = amount("seconds", history.total.get("exam_s"))
        found.append(("clients' own tests", tests, "in none of the other figures"))
    if history.total.get("energy_j"):
        found.append(("energy", amount("energy", history.total.get("energy_j")), _sources(history)))
    return found


def _others(history: History, points: Sequence[Point]) -> list[tuple[str, str, str]]:
    """Return the task's other metrics of the last test, in one figure."""
    if not points or not points[-1].evaluation.others:
        return []
    others = points[-1].evaluation.others
    first, *more = (f"{name} {decimal(value)}" for name, value in others.items())
    return [("with it", first, ", ".join(more))]


def _classes_held(history: History) -> Mapping[str, Any] | None:
    """Return what the server said of the classes that somebody holds, if it did."""
    said = [event.fields for event in history.events if event.name == "classes_held"]
    return said[-1] if said else None


def _missing(held: Mapping[str, Any]) -> str:
    return str(held["reason"]).partition(", ")[2] or "drawn at random: some might have been left out"


def _gathering(history: History) -> str:
    waited, paused = _of_values(history, "gather_s"), _of_values(history, "paused_s")
    rested = f", {amount('seconds', paused)} of it paused" if paused else ""
    return f"of the rounds{rested}" + (f"; {amount('seconds', waited)} before them" if waited else "")


def _server_cpu(history: History) -> str:
    used = _of_values(history, "server_cpu_s")
    return f"of all clients; server {amount('seconds', used)}" if used else "of all clients"


def _of_values(history: History, name: str) -> float:
    return sum(round.values.get(name, 0.0) for round in (*history.rounds, *history.others))


def _own_operations(history: History) -> str:
    own = history.total.get("method_flops")
    share = f"; {amount('flops', own)} the method's own" if own else ""
    return "; ".join(filter(None, [f"of all clients{share}", _uncounted(history)]))


def _uncounted(history: History) -> str:
    """Return what the server said of operations that it does not count, if it did."""
    said = [event.fields["reason"] for event in history.events if event.name == "operations_not_counted"]
    return str(said[-1]) if said else ""


_SOURCES = (
    (SENSOR_J.name, "clients' sensors"),
    (MODEL_J.name, "a model: watts as stated"),
    (SERVER_J, "server's sensor"),
)


def _sources(history: History) -> str:
    """Return where the joules come from, with how many each if there are several."""
    sums = together(round.joules for round in (*history.rounds, *history.others))
    told = [(words, joules) for name, words in _SOURCES if (joules := sums.get(name))]
    if len(told) == 1:
        return f"from {told[0][0]}"
    return "; ".join(f"{amount('energy', joules)} from {words}" for words, joules in told)


def measured(history: History) -> list[Point]:
    """Return the curve of the model that stands for the run."""
    models = history.models()
    return history.curve(models[0]) if models else []


def last_test(history: History, points: Sequence[Point]) -> str:
    """Return whose figures the last ones are, where the run ended before its last model was tested."""
    trained = max((round.number for round in history.training), default=0)
    learned = history.ending is not None and not history.config.tests_only
    late = learned and points and points[-1].round < trained
    return f"in round {points[-1].round}, the last that was tested" if late else ""


def round_name(history: History, number: int) -> str:
    """Return how many rounds those up to this one are, for people: the closing one is none of training."""
    trained = sum(round.number <= number for round in history.training if round.number)
    words = counted(trained, "round")
    return words if trained == number else f"{words} and the closing task"


def _model(history: History) -> str:
    models = history.models()
    return "not tested" if not models else "" if models[0] == "global" else models[0].replace("_", " ")


def _ways(history: History) -> str:
    down, up = (amount("bytes", history.total.get(name)) for name in ("bytes_down", "bytes_up"))
    least = "; or more: a server was killed in mid-round" if history.total.get("at_least") else ""
    return f"{down} down, {up} up{least}"
