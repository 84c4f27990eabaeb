"""Clients as viewers get them where they are many: counted, summed, spread, and a page of those asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from edgeflock.common.command.crowd import EVERYBODY, by_number, is_crowd, quantiles
from edgeflock.common.errors import BadValue

Shown = Mapping[str, Any]  # a client, as in `members`

AWAY = ("away", "left", "unknown")
_GONE = "gone"
_LAST = 1e9  # the seat of who has none
_WORKING = ("training", "uploading", "delivered", "overdue", "refused")  # states, and views of the same names


def _does(state: str) -> Callable[[Shown], bool]:
    return lambda client: client["state"] == state


VIEWS: Mapping[str, Callable[[Shown], bool]] = {
    "all": lambda client: True,
    "online": lambda client: client["state"] not in AWAY,
    **{state: _does(state) for state in (*_WORKING, "away", "left")},
    "late": lambda client: client.get("verdict") == "late",
    "quarantined": lambda client: bool(client.get("until")),
}
_ADDED = ("up", "down", "cpu", "energy")
_SPREAD = ("up", "down", "cpu", "rss", "temperature", "energy")
_VERSIONS = ("software", "torch", "machine")


def _most(name: str) -> Callable[[Shown], float]:
    return lambda client: -(client.get(name) or 0.0)


def _far(client: Shown) -> float:
    return -(client.get("done", 0) / client["total"] if client.get("total") else 0.0)


def _lost(client: Shown) -> float:
    return -float(client.get("late", 0) + client.get("missed", 0))


ORDERS: Mapping[str, Callable[[Shown], Any]] = {  # by the headings of the table; the most comes first
    "client": lambda client: client.get("seat", _LAST),
    "doing": lambda client: client["state"],
    "progress": _far,
    "last update": _lost,
    "seen": _most("seen"),
    "up": _most("up"),
    "down": _most("down"),
    "cpu": _most("cpu"),
    "memory": _most("rss"),
    "heat": _most("temperature"),
    "device": lambda client: str(client.get("device", "")),
}


@dataclass(frozen=True)
class Wanted:
    """Which clients a viewer wants to see."""

    show: str = "all"
    find: str = ""  # what the id holds
    by: str = "client"
    down: bool = False
    skip: int = 0

    def __post_init__(self) -> None:
        if self.show not in VIEWS:
            raise BadValue("show", self.show, f"one of {', '.join(VIEWS)}")
        if self.by not in ORDERS:
            raise BadValue("by", self.by, f"one of {', '.join(ORDERS)}")


def selected(clients: Collection[Shown], wanted: Wanted) -> dict[str, Any]:
    """Return a page of those that are wanted, and how many there are."""
    holds, find = VIEWS[wanted.show], wanted.find.lower()
    found = [one for one in clients if one["state"] != _GONE and holds(one) and find in one["id"].lower()]
    found.sort(key=lambda one: (one.get("seat", _LAST), one["id"]))
    found.sort(key=ORDERS[wanted.by], reverse=wanted.down)
    skip = min(wanted.skip, max(0, len(found) - 1) // EVERYBODY * EVERYBODY)
    return {"found": len(found), "skip": skip, "clients": found[skip : skip + EVERYBODY]}


def gathered(clients: Collection[Shown]) -> dict[str, Any]:
    """Return what is told of all together: how many are what, sums, versions, and how they spread."""
    there = [client for client in clients if client["state"] != _GONE]
    seated = [client for client in there if "seat" in client]
    devices = [client["device"] for client in there if "device" in client]
    told: dict[str, Any] = {
        "views": {name: sum(map(holds, there)) for name, holds in VIEWS.items()},
        "seated": len(seated),
        "seated_here": sum(client["state"] not in AWAY for client in seated),
        "sources": sorted({client["energy_source"] for client in seated if client.get("energy_source")}),
        "versions": {
            name: by_number(str(device[name]) for device in devices if device.get(name)) for name in _VERSIONS
        },
        "throttled": sum(bool(client.get("throttled")) for client in there),
    }
    told |= {name: sum(client.get(name) or 0 for client in seated) for name in _ADDED}
    if is_crowd(there):
        told |= {"page": EVERYBODY, "spread": _spread(seated)}
    return told


def _spread(clients: Collection[Shown]) -> dict[str, list[float]]:
    found = {name: quantiles(client.get(name) for client in clients) for name in _SPREAD}
    return {name: [*lies.places] for name, lies in found.items() if lies is not None and lies.most > 0}
