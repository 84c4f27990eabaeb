"""Budgets: limits on what a run may use, what it has used, and whether another round is within them. Pure.

Time is that of the server's time line: in which a round was being opened, open or being committed; or that
of the simulated clock.
Bytes are payload, both ways. CPU seconds are those of the clients and of the server.
Energy is what the clients state, in joules. All are summed over the lives of the process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from edgeflock.common.command.kinds import seconds, size
from edgeflock.common.errors import BadValue, UnknownName

_ENERGY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([kK]?)(J|Wh|wh|)")
_JOULES = {"J": 1.0, "": 1.0, "wh": 3600.0}


def parse(texts: Mapping[str, str]) -> dict[str, float]:
    """Return limits in seconds and bytes. Raises UnknownName or BadValue with a sentence."""
    return {name: _limit(name, text) for name, text in texts.items()}


def _limit(name: str, text: str) -> float:
    if name not in RESOURCES:
        raise UnknownName("budget", name, list(RESOURCES))
    try:
        limit = RESOURCES[name].read(text)
    except ValueError:
        limit = 0.0
    if not 0 < limit < math.inf:
        raise BadValue(f"--budget {name}", text, RESOURCES[name].words)
    return limit


def joules(text: str) -> float:
    """Read an energy: 800, 800J, 50kJ, 20Wh, 1.5kWh."""
    match = _ENERGY.fullmatch(text.strip())
    if not match or (match[2] and not match[3]):
        raise ValueError(text)
    unit = match[3] if match[3] == "J" else match[3].lower()
    return float(match[1]) * (1000.0 if match[2] else 1.0) * _JOULES[unit]


@dataclass(frozen=True, kw_only=True)
class Resource:
    """Something of which a run may use so much."""

    name: str
    quantity: str  # as in `units.amount`
    read: Callable[[str], float]
    words: str  # what is allowed
    column: str = ""  # of the ledger, if clients state it; they can hold themselves to their share
    steered: bool = True  # a method may see to it itself
    silent: bool = False  # nobody may state it, and then nothing counts it
    whole: bool = False  # may be used to its last unit: what goes beyond is refused before


RESOURCES = {
    resource.name: resource
    for resource in (
        Resource(name="time", quantity="seconds", read=seconds, words="a time > 0 such as 60s, 10m or 2h"),
        Resource(
            name="bytes",
            quantity="bytes",
            read=size,
            words="a size > 0 such as 800KB, 500MB or 2GiB",
            steered=False,
            whole=True,
        ),
        Resource(
            name="cpu",
            quantity="seconds",
            read=seconds,
            words="CPU time > 0 such as 60s, 10m or 2h",
            column="cpu_s",
        ),
        Resource(
            name="energy",
            quantity="energy",
            read=joules,
            words="an energy > 0 such as 800J, 50kJ, 20Wh or 1.5kWh",
            column="energy_j",
            silent=True,
        ),
    )
}
STATED = {resource.name: resource.column for resource in RESOURCES.values() if resource.column}
_REPORTED = 2  # of a client's rounds in which it had a part, more may be stated
Stated = Mapping[str, float | int | None]  # columns of a row
_UNITS = {"bytes": "B", "energy": "J", "seconds": "s"}


def shown(name: str, amount: float) -> str:
    """Return an amount of a resource for people."""
    return f"{figure(name, amount)} {_UNITS[RESOURCES[name].quantity]}"


def figure(name: str, amount: float) -> str:
    """Return the number of it."""
    return f"{amount:.0f}" if RESOURCES[name].whole else f"{amount:.6g}"


def unmeasured(name: str, used: float) -> bool:
    """Whether nobody has said a word of it, though what trains takes some."""
    known = RESOURCES.get(name)
    return known is not None and known.silent and not used


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
    simulated: Mapping[str, float]  # time that is drawn, in place of what is measured
    limits: Mapping[str, float]

    @property
    def counted(self) -> dict[str, float]:
        """What counts for the limits."""
        return {**self.used, **self.simulated}

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
    before: Mapping[str, float] = field(default_factory=dict)  # by resource: what the lives before have used
    _charged: dict[str, float] = field(init=False)  # without what is counted elsewhere of this life
    # By client and round what it has stated, of the last rounds that it has had a part in.
    _stated: dict[int, dict[int, dict[str, float]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._charged = dict.fromkeys(RESOURCES, 0.0) | dict(self.before)

    def recall(self, round: int, rows: Mapping[int, Stated]) -> None:
        """Take note of what a life before has charged of a round, by client: more of it may be stated."""
        for seat, row in rows.items():
            known = {column: credible(row.get(column)) for column in STATED.values()}
            self._stated.setdefault(seat, {})[round] = known

    def settle(self, round: int, rows: Mapping[int, Stated], members: Collection[int]) -> None:
        """Take the costs of a committed round, by client; who is no member has only moved bytes."""
        for seat, row in rows.items():
            self._charged["bytes"] += (row.get("bytes_down") or 0) + (row.get("bytes_up") or 0)
            if seat in members:
                self._await(round, seat)
                self.correct(round, seat, row)

    def _await(self, round: int, seat: int) -> None:
        """From now on a client may state what a round took, and no more what its third last did."""
        rounds = self._stated.setdefault(seat, {})
        rounds.setdefault(round, {})
        while len(rounds) > _REPORTED:
            del rounds[min(rounds)]

    def correct(self, round: int, seat: int, row: Stated) -> bool:
        """A client has said what its whole round took, of which only its training was known.

        Return whether that counts: what is not charged here, the ledger does not take either.
        """
        before = self._stated.get(seat, {}).get(round)
        if before is None:
            return False
        for name, column in STATED.items():
            more = max(0.0, credible(row.get(column)) - before.get(column, 0.0))
            self._charged[name] += more
            before[column] = before.get(column, 0.0) + more
        return True

    def uncharged(self, round: int, rows: Mapping[int, Stated]) -> dict[str, float]:
        """Return what clients have stated of a round beyond what is charged to the run, by resource."""
        more = dict.fromkeys(STATED, 0.0)
        for seat, row in rows.items():
            charged = self._stated.get(seat, {}).get(round, {})
            for name, column in STATED.items():
                more[name] += max(0.0, credible(row.get(column)) - charged.get(column, 0.0))
        return more

    def used(
        self, *, seconds: float = 0.0, moved: float = 0.0, server_cpu_s: float = 0.0
    ) -> dict[str, float]:
        """Return what is used so far; `moved` bytes since the last commit, the others of this life."""
        more = {"time": seconds, "bytes": moved, "cpu": server_cpu_s}
        return {name: amount + more.get(name, 0.0) for name, amount in self._charged.items()}

    def unmeasured(self) -> list[str]:
        """Return the limited resources of which no client has said a word."""
        return [name for name in self.limits if unmeasured(name, self._charged[name])]

    def allowances(self, used: Mapping[str, float], members: int) -> dict[str, float]:
        """Return what each of so many clients may use in a round: equal shares of what is left.

        One share of the CPU time is the server's.
        """
        return {
            name: max(0.0, self.limits[name] - used[name]) / max(1, members + (name == "cpu"))
            for name in STATED
            if name in self.limits
        }

    def reached(self, used: Mapping[str, float], but: Collection[str] = ()) -> str:
        """Return why the round at hand ends now; empty if all is within the limits, `but` those."""
        for name, limit in self.limits.items():
            if name in but:
                continue
            if used[name] > limit or (used[name] == limit and not RESOURCES[name].whole):
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

    def beyond(
        self, used: Mapping[str, float], expected: Mapping[str, float], *, steered: bool = False
    ) -> str:
        """Return why no further round is opened; empty if one is within the limits.

        `expected` is what it takes, where that is foreseen: in bytes, and in simulated seconds. What else a
        method steers by is its own care.
        """
        for name, limit in self.limits.items():
            own = steered and RESOURCES[name].steered
            if not own and name in expected and used[name] + expected[name] > limit:
                return (
                    f"the budget of {name} leaves no room for another round: "
                    f"{figure(name, used[name])} of {shown(name, limit)} are used, "
                    f"a round may take {shown(name, expected[name])}"
                )
            if not RESOURCES[name].whole and not own and used[name] >= limit:
                return self._used_up(name, used[name])
        return ""
