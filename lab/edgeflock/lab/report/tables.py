"""The tables of a report as rows of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeflock.common.command.units import UNKNOWN, amount, decimal
from edgeflock.lab.history import History, Point
from edgeflock.lab.plots.names import elided
from edgeflock.lab.report.key_figures import figures, measured, round_name
from edgeflock.lab.report.subject import Subject
from edgeflock.server.costs import catalogue

_LEVEL = 0.05  # step between the accuracies that a report asks for
_LEVELS = 4
_DEVICE = (
    ("machine", "machine", ""),
    ("system", "system", ""),
    ("cores", "cores", "count"),
    ("memory", "memory_bytes", "bytes"),
    ("trains on", "compute", ""),
    ("edgeflock", "software", ""),
    ("python", "python", ""),
    ("torch", "torch", ""),
    ("watts, as stated", "watts", "watts"),
)
_COSTS = tuple(column for column in (*catalogue.NUMBERS, *catalogue.JOULES) if column.heading)
_TOLD = (("flops", "flops"), ("energy_j", "energy"))  # costs that not every run has
_RUN_FIGURES = ("bytes", "time", "operations", "energy")  # beside rounds, and how good the model is


@dataclass(frozen=True)
class Table:
    """Heads and rows; the first column names a row, the others are numbers if `numbers` says so."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset({0})  # columns that are words


def bundles(history: History) -> Table | None:
    """Return what all bytes of the run held, and what crossed the wire around them."""
    if not (held := history.bundles):
        return None
    payload = sum(held.values())
    rows = [
        (way, kind.replace("_", " "), codec, amount("bytes", size), f"{size / payload:.1%}")
        for (way, kind, codec), size in held.items()
    ]
    rows += [
        ("both", words, "", amount("bytes", size), f"{size / payload:.1%}")
        for words, size in (
            ("all payload", payload),
            ("sent once more, within it", history.total.get("resent_bytes")),
            ("with the messages around it", _both_ways(history, "message_bytes")),
            ("on the wire, as estimated", _both_ways(history, "wire_bytes")),
        )
        if size
    ]
    return Table(("way", "what", "codec", "bytes", "of the payload"), tuple(rows), frozenset({0, 1, 2}))


def _both_ways(history: History, name: str) -> float:
    return sum(history.total.get(f"{name}_{way}") or 0.0 for way in ("down", "up"))


def runs(subjects: Sequence[Subject], differences: Sequence[str]) -> Table:
    """Return one row for each run: what it is, how it ended, what it reached and cost."""
    told = [{_common(run, title): value for title, value, _ in figures(run.history)} for run in subjects]
    judged = dict.fromkeys(title for mine in told for title in mine if title.startswith(("final ", "best ")))
    shown = ["rounds", *judged, *(name for name in _RUN_FIGURES if any(name in mine for mine in told))]
    rows = [
        (run.name, differs or "as most of them", run.ended, *(mine.get(title, UNKNOWN) for title in shown))
        for run, differs, mine in zip(subjects, differences, told, strict=True)
    ]
    heads = ["best" if title.startswith("best ") and len(judged) == 2 else title for title in shown]
    return Table(("run", "differs in", "ended", *heads), tuple(rows), frozenset({0, 1, 2}))


def _common(run: Subject, title: str) -> str:
    """Return what a figure is called in a table of runs, some of which go on."""
    name = title.removesuffix(" so far")
    return f"final {name}" if name != title else title


def levels(histories: Sequence[History]) -> list[float]:
    """Return values worth asking for: the highest that were reached and by all, and the runs' targets; of
    what is no share the targets alone."""
    best = [max(p.evaluation.value for p in points) for history in histories if (points := measured(history))]
    targets = [history.target.limit for history in histories if history.target.metric == history.figure]
    if not best:
        return []
    if not all(history.figure.share and history.figure.higher for history in histories):
        return sorted(set(filter(None, targets)))
    steps = [round(number * _LEVEL, 2) for number in range(1, int(max(best) / _LEVEL + 1e-9) + 1)]
    shared = [step for step in steps if step <= min(best)][-1:]
    return sorted({*shared, *steps[-_LEVELS:], *filter(None, targets)})


def reached(histories: Sequence[History], names: Sequence[str]) -> Table | None:
    """Return what every run took to its levels: rounds, bytes, seconds, operations, energy."""
    asked = levels(histories)
    names_of = {history.figure.name for history in histories}
    if not asked or len(names_of) > 1:  # the same level of different figures says nothing
        return None
    rows = []
    for history, name in zip(histories, names, strict=True):
        model = (history.models() or ["global"])[0]
        rows.append((name, *(_taken(history, history.reached(level, model)) for level in asked)))
    return Table(("run", *(f"{histories[0].figure.name} {_level(level)}" for level in asked)), tuple(rows))


def _level(level: float) -> str:
    return f"{level:.2f}" if level == round(level, 2) else f"{level:g}"


def _taken(history: History, point: Point | None) -> str:
    if point is None:
        return "not reached"
    told = [round_name(history, point.round)]
    told += [amount(quantity, point.spent.get(quantity)) for quantity in ("bytes", "seconds")]
    told += [amount(quantity, spent) for name, quantity in _TOLD if (spent := point.spent.get(name))]
    return "\n".join(told)


def devices(history: History) -> Table | None:
    """Return one row for each kind of device, with who they are; the server stands first."""
    everybody = [("server", history.server), *((client.name, client.device) for client in history.clients)]
    shown = [fact for fact in _DEVICE if any(facts.get(fact[1]) for _, facts in everybody)]
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, facts in everybody:
        row = tuple(_fact(facts.get(key), quantity) for _, key, quantity in shown)
        if name != "server" or facts.get("machine"):
            groups.setdefault((name, *row) if name == "server" else ("", *row), []).append(name)
    if not groups:
        return None
    rows = [(_listed(members), *row[1:]) for row, members in groups.items()]
    return Table(("who", *(title for title, _, _ in shown)), tuple(rows), frozenset(range(len(shown) + 1)))


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
    costs = [one for one in _COSTS if any(client.costs.get(one.name) for client in history.clients)]
    models = sorted({model for client in history.clients for model in client.scores})
    heads = ("client", "samples", "counted", "not counted", *(one.heading for one in costs))
    rows = []
    for client in history.clients:
        others = {name: times for name, times in client.verdicts.items() if name != "counted"}
        row = [client.name, amount("count", client.samples), f"{client.verdicts.get('counted', 0)}"]
        row.append(", ".join(f"{times} {name.replace('_', ' ')}" for name, times in others.items()) or "0")
        row += [amount(one.quantity, client.costs.get(one.name)) for one in costs]
        row += [decimal(client.scores[m].value) if m in client.scores else UNKNOWN for m in models]
        rows.append(tuple(row))
    titles = tuple(f"{history.figure.name}, {model.replace('_', ' ')}" for model in models)
    return Table((*heads, *titles), tuple(rows))
