"""What costs are made of: the parts of a stack, and a run's numbers for it, by round, client and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from edgeflock.lab.history import SERVER_J, TIME_LINE, History
from edgeflock.lab.plots.theme import HUES, NEUTRAL
from edgeflock.server.costs.catalogue import MODEL_J, SENSOR_J, together
from edgeflock.server.journal.reader import Held, Numbers

_BLUE, _ORANGE, _GREEN, _PURPLE, _RED, _TEAL, _PINK, _BROWN = (light for light, _ in HUES)
_DOWN, _UP = (_BLUE, _TEAL, _PURPLE, _GREEN), (_ORANGE, _PINK, _BROWN, _RED)
_EXCLUSIVE = "Parts exclude each other: together they are the time of the run."
_COUNTED = "Of all clients together, as the server counted them."


@dataclass(frozen=True)
class StackPart:
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
    parts: tuple[StackPart, ...]
    caption: str
    of: str = "per round"  # what one bar of a round is

    def present(self, rows: Sequence[Numbers]) -> list[StackPart]:
        """Return the parts that are somewhere more than nothing."""
        return [part for part in self.parts if any(part.of(row) > 0 for row in rows)]


Row = tuple[str, Numbers]  # a name and its costs


def _named(name: str) -> Callable[[Numbers], float]:
    return lambda costs: costs.get(name, 0.0) or 0.0


_LINE = {
    "select_s": ("select the cohort", _PURPLE),
    "open_s": ("open: clients at work", _BLUE),
    "fold_s": ("fold", _ORANGE),
    "commit_s": ("commit", _GREEN),
    "evaluate_s": ("evaluate", _TEAL),
    "paused_s": ("paused", NEUTRAL),
}
SERVER_TIME = Stack(
    "server-seconds",
    "Time of the server",
    "seconds",
    tuple(StackPart(*_LINE.get(name, (name.removesuffix("_s"), _RED)), _named(name)) for name in TIME_LINE),
    _EXCLUSIVE,
)
CLIENT_TIME = Stack(
    "client-seconds",
    "Time of the clients",
    "seconds",
    (
        StackPart("fetch", _BLUE, _named("fetch_s")),
        StackPart("train", _ORANGE, _named("train_s")),
        StackPart("deliver", _GREEN, _named("deliver_s")),
        StackPart("wait", NEUTRAL, _named("wait_s")),
    ),
    "Parts exclude each other: together they are the client's time.",
    "per round and client",
)


def _more(inner: str, outer: str) -> Callable[[Numbers], float]:
    """Return what the outer count has more than the inner one, both ways."""

    def more(costs: Numbers) -> float:
        ways = ((costs.get(f"{inner}_{way}"), costs.get(f"{outer}_{way}")) for way in ("down", "up"))
        return sum(
            max(0.0, large - small) for small, large in ways if small is not None and large is not None
        )

    return more


BYTES = Stack(
    "bytes",
    "Bytes",
    "bytes",
    (
        StackPart("down", _BLUE, _named("bytes_down")),
        StackPart("up", _ORANGE, lambda costs: costs.get("bytes_up", 0) - costs.get("resent_bytes", 0)),
        StackPart("up once more, after a cut", _RED, _named("resent_bytes")),
        StackPart("messages around them", _TEAL, _more("bytes", "message_bytes")),
        StackPart("frames on the wire, estimated", NEUTRAL, _more("message_bytes", "wire_bytes")),
    ),
    _COUNTED,
)
ENERGY = Stack(
    "energy",
    "Energy",
    "energy",
    (
        StackPart("clients, by their sensors", _GREEN, _named(SENSOR_J.name)),
        StackPart("clients, a model: watts as stated", _ORANGE, _named(MODEL_J.name)),
        StackPart("server, by its sensor", _PURPLE, _named(SERVER_J)),
    ),
    "A sensor has measured it, or it is what --watts of the client says times the seconds.",
)


def by_bundle(held: Sequence[Held]) -> Stack:
    """Return bytes by what they held; down and up have hues of their own."""
    ways = {way: [what for what in held if what[0] == way] for way in ("down", "up")}
    parts = [
        StackPart(bundle_name(what), colours[number % len(colours)], _named(_key(what)))
        for way, colours in (("down", _DOWN), ("up", _UP))
        for number, what in enumerate(ways[way])
    ]
    return Stack("bundles", "Bytes by what they hold", "bytes", tuple(parts), "Resent ones too.")


def bundle_name(what: Held) -> str:
    """Return what bytes held, for people."""
    way, kind, codec = what
    return f"{kind.replace('_', ' ')} {way}" + ("" if codec == "identity" else f", {codec}")


def _key(what: Held) -> str:
    return " ".join(what)


# --------------------------------------------------------------------------------------- of a run


def of_rounds(history: History) -> list[tuple[Stack, list[Numbers]]]:
    """Return every stack with the costs of every round; of clients' seconds the mean over the cohort."""
    rounds = history.rounds
    found: list[tuple[Stack, list[Numbers]]] = [
        (SERVER_TIME, [round.time_line for round in rounds]),
        (CLIENT_TIME, [_shared(round.costs, max(1, sum(round.verdicts.values()))) for round in rounds]),
        (BYTES, [round.costs for round in rounds]),
    ]
    if len(held := list(history.bundles)) > 2:  # else they are what up and down are
        rows = [{_key(what): float(size) for what, size in round.bundles.items()} for round in rounds]
        found.append((by_bundle(held), list[Numbers](rows)))
    return [*found, (ENERGY, [round.joules for round in rounds])]


def of_clients(history: History) -> list[tuple[Stack, list[Row]]]:
    """Return the stacks that clients have, with the costs of each."""
    costs: list[Row] = [(client.name, client.costs) for client in history.clients]
    return [(CLIENT_TIME, costs), (BYTES, costs), (ENERGY, costs)]


def of_runs(runs: Sequence[tuple[str, History]]) -> list[tuple[Stack, list[Row]]]:
    """Return the stacks of whole runs: everything they have cost, rounds that were given up included."""
    found: dict[str, tuple[Stack, list[Row]]] = {}
    for name, history in runs:
        rounds = (*history.rounds, *history.others)
        costs = together(round.costs for round in rounds)
        for stack, total in (
            (SERVER_TIME, together(round.time_line for round in rounds)),
            (BYTES, costs),
            (replace(CLIENT_TIME, caption="Of all clients together."), costs),
            (ENERGY, together(round.joules for round in rounds)),
        ):
            found.setdefault(stack.name, (stack, []))[1].append((name, total))
    return list(found.values())


def _shared(costs: Numbers, members: int) -> dict[str, float]:
    return {name: value / members for name, value in costs.items()}
