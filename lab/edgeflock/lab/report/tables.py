"""The tables of a report as rows of text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from edgeflock.common.command.crowd import by_number, is_crowd, quantiles, standing_out
from edgeflock.common.command.units import UNKNOWN, amount, decimal
from edgeflock.lab.history import Client, History, Point
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
    if is_crowd(groups):
        return _kinds(history)
    rows = [(_listed(members), *row[1:]) for row, members in groups.items()]
    return Table(("who", *(title for title, _, _ in shown)), tuple(rows), frozenset(range(len(shown) + 1)))


def _kinds(history: History) -> Table:
    """Return of so many different devices how many have what."""
    found = {
        title: by_number(_fact(client.device.get(key), quantity) for client in history.clients)
        for title, key, quantity in _DEVICE
    }
    rows = [(title, value, f"{times:,}") for title, kinds in found.items() for value, times in kinds]
    known = tuple(row for row in rows if len(found[row[0]]) > 1 or row[1] != UNKNOWN)
    return Table(("of the devices", "is", "clients"), known, frozenset({0, 1}))


def _listed(members: Sequence[str]) -> str:
    if len(members) == 1:
        return members[0]
    shown = ", ".join(elided(members[:6], 24))
    return f"{len(members)} clients: {shown}{', …' if len(members) > 6 else ''}"


def _fact(value: object, quantity: str) -> str:
    if value is None or value == "":
        return UNKNOWN
    return amount(quantity, float(value)) if quantity and isinstance(value, (int, float)) else str(value)


@dataclass(frozen=True)
class _Trait:
    """A column of the clients' table."""

    title: str
    of: Callable[[Client], float | None]
    told: Callable[[float | None], str]
    said: Callable[[Client], str] | None = None  # in place of the number
    first_in: str = ""  # what those are first in that stand out by it; empty: nobody does
    rank: Callable[[Client], float | None] | None = None  # who has most stands out; None: the number itself

    def words(self, client: Client) -> str:
        return self.said(client) if self.said is not None else self.told(self.of(client))


def clients(history: History) -> Table | None:
    """Return one row for each client: its data, its costs, its verdicts, its score; of a crowd one for each
    that is among the first in something."""
    if not (everyone := history.clients):
        return None
    traits = _traits(history)
    heads = [trait.title for trait in traits]
    if not is_crowd(everyone):
        rows = [(client.name, *(trait.words(client) for trait in traits)) for client in everyone]
        return Table(("client", *heads), tuple(rows))
    first_in = {trait.first_in: trait.rank or trait.of for trait in traits if trait.first_in}
    rows = [
        (client.name, ", ".join(why), *(trait.words(client) for trait in traits))
        for client, why in standing_out(everyone, first_in)
    ]
    return Table(("client", "among the first in", *heads), tuple(rows), frozenset({0, 1}))


def spreads(history: History) -> Table | None:
    """Return how what is known of a crowd's clients lies; None where each of them has a row of its own."""
    if not is_crowd(history.clients):
        return None
    rows = []
    for trait in _traits(history):
        if (found := quantiles(map(trait.of, history.clients))) is not None:
            rows.append((trait.title, *map(trait.told, (*found.places, found.mean)), f"{found.known:,}"))
    heads = ("least", "10 % up to", "median", "90 % up to", "most", "mean", "known of")
    return Table(("of each client", *heads), tuple(rows))


def _traits(history: History) -> list[_Trait]:
    """Return the columns of which there is something."""
    costs = [one for one in _COSTS if any(client.costs.get(one.name) for client in history.clients)]
    models = sorted({model for client in history.clients for model in client.scores})
    return [
        _Trait("samples", lambda client: client.samples, partial(amount, "count")),
        _Trait("counted", lambda client: client.verdicts.get("counted", 0), _number),
        _Trait(
            "not counted", lambda client: sum(_missed(client).values()), _number, _not_counted, "not counted"
        ),
        *(_cost(column) for column in costs),
        *(_score(history, model) for model in models),
    ]


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.10g}"


def _missed(client: Client) -> dict[str, int]:
    return {name: times for name, times in client.verdicts.items() if name != "counted"}


def _not_counted(client: Client) -> str:
    said = ", ".join(f"{times} {name.replace('_', ' ')}" for name, times in _missed(client).items())
    return said or "0"


def _cost(column: catalogue.Column) -> _Trait:
    def of(client: Client) -> float | None:
        return client.costs.get(column.name)

    return _Trait(column.heading, of, partial(amount, column.quantity), first_in=column.heading)


def _score(history: History, model: str) -> _Trait:
    """Return how a model of the clients' own does; those for whom it does worst stand out."""
    figure, title = history.figure, f"{history.figure.name}, {model.replace('_', ' ')}"
    worst_first = -1.0 if figure.higher else 1.0

    def of(client: Client) -> float | None:
        return client.scores[model].value if model in client.scores else None

    def badness(client: Client) -> float | None:
        return worst_first * client.scores[model].value if model in client.scores else None

    return _Trait(title, of, decimal, None, f"worst {title}", badness)
