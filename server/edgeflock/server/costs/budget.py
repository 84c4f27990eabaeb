"""Budgets: limits on what a run may use, what it has used, and whether another round is within them. Pure.

Time is that in which a round was being opened, open or being committed, not that between rounds.
Bytes are payload, both ways. CPU seconds are those of the clients and of the server.
Energy is what the clients state, in joules. All are summed over the lives of the process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from edgeflock.common.command.kinds import seconds
from edgeflock.common.errors import BadValue, UnknownName

RESOURCES = ("time", "bytes", "cpu", "energy")
STEERED = ("time", "cpu", "energy")  # what a method may see to itself
STATED = (("cpu", "cpu_s"), ("energy", "energy_j"))  # what clients state, and can hold themselves to
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(|[KMGT]i?)B?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_ENERGY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([kK]?)(J|Wh|wh|)")
_JOULES = {"J": 1.0, "": 1.0, "wh": 3600.0}
_WORDS = {
    "time": "a time > 0 such as 60s, 10m or 2h",
    "bytes": "a size > 0 such as 800KB, 500MB or 2GiB",
    "cpu": "CPU time > 0 such as 60s, 10m or 2h",
    "energy": "an energy > 0 such as 800J, 50kJ, 20Wh or 1.5kWh",
}


def parse(texts: Mapping[str, str]) -> dict[str, float]:
    """Return limits in seconds and bytes. Raises UnknownName or BadValue with a sentence."""
    return {name: _limit(name, text) for name, text in texts.items()}


def _limit(name: str, text: str) -> float:
    if name not in RESOURCES:
        raise UnknownName("budget", name, RESOURCES)
    try:
        limit: float = _READ[name](text)
    except ValueError:
        limit = 0.0
    if not 0 < limit < math.inf:
        raise BadValue(f"--budget {name}", text, _WORDS[name])
    return limit


def size(text: str) -> float:
    """Read a number of bytes: 1500, 800KB, 1.5MB (powers of 1000), 2GiB (powers of 1024)."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(text)
    unit = match[2].lower()
    base = 1024.0 if unit.endswith("i") else 1000.0
    return float(match[1]) * float(base ** _POWERS[unit[:1]])


def joules(text: str) -> float:
    """Read an energy: 800, 800J, 50kJ, 20Wh, 1.5kWh."""
    match = _ENERGY.fullmatch(text.strip())
    if not match or (match[2] and not match[3]):
        raise ValueError(text)
    unit = match[3] if match[3] == "J" else match[3].lower()
    return float(match[1]) * (1000.0 if match[2] else 1.0) * _JOULES[unit]


_READ = {"time": seconds, "bytes": size, "cpu": seconds, "energy": joules}


def shown(name: str, amount: float) -> str:
    """Return an amount of a resource for people."""
    return f"{amount:.0f} B" if name == "bytes" else f"{amount:.6g} {'J' if name == 'energy' else 's'}"


def credible(stated: float | None) -> float:
    """Return seconds that a client states, 0 if they cannot be."""
    return stated if stated is not None and math.isfinite(stated) and stated > 0 else 0.0


def raised(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    """Whether a limit is higher than it was, or gone."""
    return any(now.get(name, float("inf")) > limit for name, limit in before.items())


@dataclass(frozen=True)
class Spent:
    """What a run has used of its budgets at an instant, over all its lives."""

    used: Mapping[str, float]
    own: Mapping[str, float]  # what the method itself counts, in place of ours
    limits: Mapping[str, float]

    @property
    def counted(self) -> dict[str, float]:
        """What counts for the limits."""
        return {**self.used, **self.own}

    @property
    def shares(self) -> dict[str, list[float]]:
        """Used and limit of every budget that is set."""
        return {name: [round(self.counted[name], 6), limit] for name, limit in self.limits.items()}

    def fields(self) -> dict[str, object]:
        """Return what the line of a round says of the budgets."""
        return {"budget": self.shares} if self.limits else {}


@dataclass
class Budget:
    """The limits of a run and what it has used of them."""

    limits: Mapping[str, float] = field(default_factory=dict)
    time_s: float = 0.0  # up to the last moment without a round
    bytes: float = 0.0  # of committed rounds
    cpu_s: float = 0.0  # of earlier lives, and of clients in committed rounds
    energy_j: float = 0.0  # of clients in committed rounds
    _since: float | None = None  # when the round at hand began
    _stated: dict[int, tuple[int, dict[str, float]]] = field(default_factory=dict)  # by client: last round

    @property
    def at_hand(self) -> bool:
        """Whether there is a round, whose time counts."""
        return self._since is not None

    def begin(self, now: float) -> None:
        """A round is being opened."""
        self._since = now if self._since is None else self._since

    def rest(self, now: float) -> None:
        """No round is at hand."""
        self.time_s += now - self._since if self._since is not None else 0.0
        self._since = None

    def settle(self, round: int, rows: Mapping[int, Mapping[str, float | int | None]]) -> None:
        """Take the costs of a committed round, by client."""
        for seat, row in rows.items():
            self.bytes += (row.get("bytes_down") or 0) + (row.get("bytes_up") or 0)
            if self._stated.get(seat, (0, {}))[0] != round:
                self._stated[seat] = (round, {})
            self.correct(round, seat, row)

    def correct(self, round: int, seat: int, row: Mapping[str, float | int | None]) -> None:
        """A client has said what its whole round took, of which only its training was known."""
        known, before = self._stated.get(seat, (0, {}))
        if known != round:
            return
        for _, column in STATED:
            more = max(0.0, credible(row.get(column)) - before.get(column, 0.0))
            setattr(self, column, getattr(self, column) + more)
            before[column] = before.get(column, 0.0) + more

    def uncharged(self, round: int, rows: Mapping[int, Mapping[str, float | int | None]]) -> dict[str, float]:
        """Return what clients have stated of a round beyond what is charged to the run, by resource."""
        more = {name: 0.0 for name, _ in STATED}
        for seat, row in rows.items():
            known, before = self._stated.get(seat, (0, {}))
            charged = before if known == round else {}
            for name, column in STATED:
                more[name] += max(0.0, credible(row.get(column)) - charged.get(column, 0.0))
        return more

    def used(self, now: float, *, moved: float = 0.0, server_cpu_s: float = 0.0) -> dict[str, float]:
        """Return what is used so far; `moved` bytes since the last commit, `server_cpu_s` in this life."""
        at_hand = now - self._since if self._since is not None else 0.0
        return {
            "time": self.time_s + at_hand,
            "bytes": self.bytes + moved,
            "cpu": self.cpu_s + server_cpu_s,
            "energy": self.energy_j,
        }

    def allowances(self, used: Mapping[str, float], members: int) -> dict[str, float]:
        """Return what each of so many clients may use in a round: equal shares of what is left.

        One share of the CPU time is the server's.
        """
        return {
            name: max(0.0, self.limits[name] - used[name]) / max(1, members + (name == "cpu"))
            for name, _ in STATED
            if name in self.limits
        }

    def reached(self, used: Mapping[str, float], but: Collection[str] = ()) -> str:
        """Return why the round at hand ends now; empty if all is within the limits, `but` those."""
        for name, limit in self.limits.items():
            if name in but:
                continue
            beyond = used[name] > limit if name == "bytes" else used[name] >= limit
            if beyond:
                return self._used_up(name, used[name])
        return ""

    def _used_up(self, name: str, used: float) -> str:
        return f"the budget of {name} is used up: {shown(name, used)} of {shown(name, self.limits[name])}"

    def short(self, used: Mapping[str, float], name: str) -> str:
        """Return why no round follows one in which a client's allowance was too small."""
        if used[name] >= self.limits[name]:
            return self._used_up(name, used[name])
        return (
            f"the budget of {name} leaves too little for a client's round: "
            f"{shown(name, used[name])} of {shown(name, self.limits[name])} are used"
        )

    def beyond(self, used: Mapping[str, float], expected: float, *, steered: bool = False) -> str:
        """Return why no further round is opened; empty if one is within the limits.

        `expected` is what it takes in bytes. All else of a method that steers by the budgets is its own care.
        """
        for name, limit in self.limits.items():
            if name == "bytes" and used[name] + expected > limit:
                return (
                    f"the budget of bytes leaves no room for another round: "
                    f"{used[name]:.0f} of {shown(name, limit)} are used, "
                    f"a round may take {shown(name, expected)}"
                )
            own = steered and name in STEERED
            if name != "bytes" and not own and used[name] >= limit:
                return self._used_up(name, used[name])
        return ""
