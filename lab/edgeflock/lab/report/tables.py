"""The tables of a report as rows of text. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from edgeflock.common.flags import to_arguments
from edgeflock.common.options import public
from edgeflock.lab.history import History, Point
from edgeflock.lab.report.names import elided
from edgeflock.lab.report.units import UNKNOWN, amount, decimal
from edgeflock.server.config import ServerConfig

_LEVEL = 0.05  # step between the accuracies that a report asks for
_LEVELS = 4
_HERE = ("run_dir", "listen", "control", "log_level", "log_format", "cohort_script")  # of this one run
_DEVICE = (
    ("machine", "machine", ""),
    ("system", "system", ""),
    ("cores", "cores", "count"),
    ("memory", "memory_bytes", "bytes"),
    ("trains on", "compute", ""),
    ("edgeflock", "software", ""),
    ("python", "python", ""),
    ("torch", "torch", ""),
)
_COSTS = (
    ("steps", "steps", "count"),
    ("fetch", "fetch_s", "seconds"),
    ("train", "train_s", "seconds"),
    ("deliver", "deliver_s", "seconds"),
    ("wait", "wait_s", "seconds"),
    ("CPU", "cpu_s", "seconds"),
    ("most memory", "peak_rss_bytes", "bytes"),
    ("down", "bytes_down", "bytes"),
    ("up", "bytes_up", "bytes"),
    ("sent twice", "resent_bytes", "bytes"),
    ("operations", "flops", "flops"),
    ("energy", "energy_j", "energy"),
)


@dataclass(frozen=True)
class Table:
    """Heads and rows; the first column names a row, the others are numbers if `numbers` says so."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset({0})  # columns that are words


def total(history: History, name: str) -> float | None:
    """Return what the run has spent up to its last round, None if nobody told."""
    return history.rounds[-1].spent.get(name) if history.rounds else None


def figures(history: History) -> list[tuple[str, str, str]]:
    """Return the numbers that stand first: what, how much, a word more."""
    points = measured(history)
    best = max(points, key=lambda point: point.evaluation.accuracy, default=None)
    trained = max((round.number for round in history.training), default=0)
    found = [
        ("final accuracy", decimal(points[-1].evaluation.accuracy) if points else UNKNOWN, _model(history)),
        (
            "best accuracy",
            decimal(best.evaluation.accuracy) if best else UNKNOWN,
            f"round {best.round}" if best else "",
        ),
        ("rounds", f"{trained:,}", f"of {history.config.rounds:,} asked for"),
        ("bytes", amount("bytes", total(history, "bytes")), _ways(history)),
        ("time", amount("seconds", total(history, "seconds")), "of the rounds"),
        ("CPU time", amount("seconds", total(history, "cpu_s")), "of all clients"),
    ]
    for name, quantity, what in (("energy_j", "energy", "energy"), ("flops", "flops", "operations")):
        if total(history, name):
            found.append((what, amount(quantity, total(history, name)), "of the whole run"))
    return found


def measured(history: History) -> list[Point]:
    """Return the curve of the model that stands for the run."""
    models = history.models()
    return history.curve(models[0]) if models else []


def _model(history: History) -> str:
    models = history.models()
    return "not tested" if not models else "" if models[0] == "global" else models[0].replace("_", " ")


def _ways(history: History) -> str:
    down, up = (amount("bytes", total(history, name)) for name in ("bytes_down", "bytes_up"))
    return f"{down} down, {up} up"


def runs(
    histories: Sequence[History], names: Sequence[str], states: Sequence[str], what: Sequence[str]
) -> Table:
    """Return one row for each run: what it is, how it ended, what it reached and cost."""
    heads = ["run", "differs in", "ended", "rounds", "final accuracy", "best", "bytes", "time"]
    energetic = any(total(history, "energy_j") for history in histories)
    rows = []
    for history, name, state, differs in zip(histories, names, states, what, strict=True):
        told = {title: value for title, value, _ in figures(history)}
        row = [
            name,
            differs or "nothing",
            state,
            told["rounds"],
            told["final accuracy"],
            told["best accuracy"],
        ]
        row += [told["bytes"], told["time"], *([told.get("energy", UNKNOWN)] if energetic else [])]
        rows.append(tuple(row))
    return Table((*heads, *(["energy"] if energetic else [])), tuple(rows), frozenset({0, 1, 2}))


def levels(histories: Sequence[History]) -> list[float]:
    """Return accuracies worth asking for: the highest that was reached, and the highest that all reached."""
    best = [
        max(p.evaluation.accuracy for p in points) for history in histories if (points := measured(history))
    ]
    if not best:
        return []
    steps = [round(number * _LEVEL, 2) for number in range(1, int(max(best) / _LEVEL + 1e-9) + 1)]
    shared = [step for step in steps if step <= min(best)][-1:]
    return sorted({*shared, *steps[-_LEVELS:]})


def reached(histories: Sequence[History], names: Sequence[str]) -> Table | None:
    """Return what every run took to its accuracies: rounds, bytes, seconds."""
    asked = levels(histories)
    if not asked:
        return None
    rows = []
    for history, name in zip(histories, names, strict=True):
        model = (history.models() or ["global"])[0]
        rows.append((name, *(_taken(history.reached(level, model)) for level in asked)))
    return Table(("run", *(f"accuracy {level:.2f}" for level in asked)), tuple(rows))


def _taken(point: Point | None) -> str:
    if point is None:
        return "not reached"
    told = [f"{point.round} round{'s' if point.round > 1 else ''}"]
    told += [amount(quantity, point.spent.get(quantity)) for quantity in ("bytes", "seconds")]
    if "energy_j" in point.spent:
        told.append(amount("energy", point.spent["energy_j"]))
    return "\n".join(told)


def devices(history: History) -> Table | None:
    """Return one row for each kind of device, with who they are; the server stands first."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, facts in [("server", history.server), *((c.name, c.device) for c in history.clients)]:
        row = tuple(_fact(facts.get(key), quantity) for _, key, quantity in _DEVICE)
        if name != "server" or facts.get("machine"):
            groups.setdefault((name, *row) if name == "server" else ("", *row), []).append(name)
    if not groups:
        return None
    rows = [(_listed(members), *row[1:]) for row, members in groups.items()]
    return Table(
        ("who", *(title for title, _, _ in _DEVICE)), tuple(rows), frozenset(range(len(_DEVICE) + 1))
    )


def _listed(members: Sequence[str]) -> str:
    if len(members) == 1:
        return members[0]
    shown = ", ".join(elided(members[:6], 24))
    return f"{len(members)} clients: {shown}{', …' if len(members) > 6 else ''}"


def _fact(value: object, quantity: str) -> str:
    if value is None or value == "":
        return UNKNOWN
    return amount(quantity, float(value)) if quantity and isinstance(value, (int, float)) else str(value)


def clients(history: History) -> Table | None:
    """Return one row for each client: its data, its costs, its verdicts, its score."""
    if not history.clients:
        return None
    costs = [cost for cost in _COSTS if any(client.costs.get(cost[1]) for client in history.clients)]
    models = sorted({model for client in history.clients for model in client.scores})
    heads = ("client", "samples", "counted", "not counted", *(title for title, _, _ in costs))
    rows = []
    for client in history.clients:
        others = {name: times for name, times in client.verdicts.items() if name != "counted"}
        row = [client.name, amount("count", client.samples), f"{client.verdicts.get('counted', 0)}"]
        row.append(", ".join(f"{times} {name.replace('_', ' ')}" for name, times in others.items()) or "0")
        row += [amount(quantity, client.costs.get(name)) for _, name, quantity in costs]
        row += [decimal(client.scores[m].accuracy) if m in client.scores else UNKNOWN for m in models]
        rows.append(tuple(row))
    titles = tuple(f"accuracy, {model.replace('_', ' ')}" for model in models)
    return Table((*heads, *titles), tuple(rows))


def command(history: History) -> str:
    """Return the command that holds the run again, with every value that is not a default."""
    config = history.config
    given = {
        entry.name: value
        for entry in public(ServerConfig)
        if (value := getattr(config, entry.name)) != entry.default and entry.name not in _HERE
    }
    by_lab = (history.run_dir / "clients").is_dir()
    return shlex.join(["fl-lab", "run"] if by_lab else ["fl-server"]) + "".join(
        f" \\\n  {shlex.quote(word)}" for word in to_arguments(ServerConfig, given)
    )
