"""What a testbed is asked: a grid's file with tables for devices, medium, cable, checks and the sweep."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgeflock.common.command.kinds import FLAG, INTEGER, NUMBER, SECONDS, TEXT, ValueKind
from edgeflock.common.command.options import from_table, option, options
from edgeflock.common.command.ranges import above, at_least, between, one_of, unit
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.lab.grid.grid import Grid, make_grid
from edgeflock.lab.grid.options import SEED, section
from edgeflock.lab.testbed.medium import LinkTerms

ETHERNET = "ethernet"
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg])bit", re.IGNORECASE)
_FACTORS = {"k": 1e3, "m": 1e6, "g": 1e9}
_MOST = 250  # devices
_GROUP = "Testbed"


def rate_of(value: Any) -> float:
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if not match or not float(match[1]):
        raise ValueError(value)
    return float(match[1]) * _FACTORS[match[2].lower()]


def _rates(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(value)
    for entry in value:
        if entry != ETHERNET:
            rate_of(entry)
    return tuple(value)


def _factors(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(value)
    for entry in value:
        if not isinstance(entry, int | float) or isinstance(entry, bool) or entry <= 0:
            raise ValueError(value)
    return tuple(map(float, value))


RATE = ValueKind("a rate such as 40mbit", "RATE", rate_of, rate_of)
RATES = ValueKind("a list of rates such as 5mbit, or ethernet", "RATES", _rates, _rates)
FACTORS = ValueKind("a list of numbers > 0", "X,X", _factors, _factors)


@dataclass(frozen=True, kw_only=True)
class DeviceTerms:
    """The devices: how fast each computes, and what it draws."""

    external: bool = option(
        False, FLAG, "real devices come by themselves: only servers are started", group=_GROUP
    )
    cpu: str = option(
        "auto",
        TEXT,
        "how a device is held to its share: a control group's quota, stopping it, or not at all",
        group=_GROUP,
        allowed=one_of("auto", "quota", "pace", "free"),
    )
    quota: float = option(
        0.001, SECONDS, "of every period", group=_GROUP, allowed=between(0.001, 10, "a time")
    )
    period: float = option(0.013, SECONDS, "of the quota", group=_GROUP, allowed=between(0.001, 1, "a time"))
    watts: float = option(5.0, NUMBER, "that a device draws, a model", group=_GROUP, allowed=above(0))

    @property
    def share(self) -> float:
        """The share of one core that a device has."""
        return self.quota / self.period


@dataclass(frozen=True, kw_only=True)
class MediumTerms:
    """What is between devices and the server's cable."""

    kind: str = option(
        "wifi",
        TEXT,
        "one air for all and both ways, or a cable for each device",
        group=_GROUP,
        allowed=one_of("wifi", ETHERNET),
    )
    rate: float = option(40e6, RATE, "of the air, or of each cable", group=_GROUP)
    delay: float = option(0.003, SECONDS, "one way", group=_GROUP, allowed=at_least(0, "a time"))
    jitter: float = option(0.004, SECONDS, "more, evenly", group=_GROUP, allowed=at_least(0, "a time"))
    loss: float = option(0.001, NUMBER, "share of the packets", group=_GROUP, allowed=unit(high=False))
    queue: int = option(
        262_144,
        INTEGER,
        "bytes that may wait for one receiver",
        group=_GROUP,
        allowed=at_least(3000, "an integer"),
    )

    @property
    def shared(self) -> bool:
        return self.kind != ETHERNET

    @property
    def link(self) -> LinkTerms:
        return LinkTerms(self.rate, self.delay, self.jitter, self.loss, self.queue)


@dataclass(frozen=True, kw_only=True)
class CableTerms:
    """The server's cable."""

    rate: float = option(1e9, RATE, "each way", group=_GROUP)
    delay: float = option(0.0002, SECONDS, "one way", group=_GROUP, allowed=at_least(0, "a time"))

    @property
    def link(self) -> LinkTerms:
        return LinkTerms(self.rate, self.delay, queue=8_388_608)


@dataclass(frozen=True, kw_only=True)
class SweepTerms:
    """Over which links and devices the order of the methods is reckoned."""

    rates: tuple[str, ...] = option(
        ("5mbit", "10mbit", "40mbit", ETHERNET), RATES, "of the medium", group=_GROUP
    )
    held: int = option(
        0,
        INTEGER,
        "rounds that every method is held for on each, too",
        group=_GROUP,
        allowed=at_least(0, "an integer"),
    )
    speeds: tuple[float, ...] = option(
        (0.5, 1.0, 2.0, 4.0), FACTORS, "of a device, times its own", group=_GROUP
    )


@dataclass(frozen=True, kw_only=True)
class CheckTerms:
    """What is tried beside the experiment itself."""

    repeat: int = option(
        1, INTEGER, "cells that are held twice", group=_GROUP, allowed=at_least(0, "an integer")
    )


_TABLES: Mapping[str, Any] = {
    "devices": DeviceTerms,
    "medium": MediumTerms,
    "cable": CableTerms,
    "sweep": SweepTerms,
    "check": CheckTerms,
}
_OURS = {
    "listen": "the testbed gives it: only [devices] external = true has an address of its own",
    "insecure": "nobody else is in the testbed's network",
    "processes": "every device is a process",
}


@dataclass(frozen=True)
class TestbedPlan:
    """All that a testbed's file says."""

    __test__ = False  # pytest: no test of its own

    devices: DeviceTerms
    medium: MediumTerms
    cable: CableTerms
    sweep: SweepTerms
    check: CheckTerms
    grid: Grid
    asked: Mapping[str, Any]  # the grid's own table

    def with_data(self, root: Path | None) -> TestbedPlan:
        """Return the plan with its data sets elsewhere, if that is said."""
        if root is None:
            return self
        cells = tuple(cell.with_data(root) for cell in self.grid.cells)
        asked = {**self.asked, "run": {**self.asked.get("run", {}), "data_root": str(root.absolute())}}
        return replace(self, grid=replace(self.grid, cells=cells), asked=asked)

    def briefly(self, rounds: int) -> TestbedPlan:
        """Return the plan for so many rounds of the first seed, without target, and nothing held twice."""
        run = {key: value for key, value in self.asked.get("run", {}).items() if key != "target"}
        asked = {**self.asked, "run": {**run, "rounds": rounds}}
        grid = make_grid(asked, "the sweep")
        first = grid.cells[0].labels.get(SEED)
        cells = tuple(cell for cell in grid.cells if cell.labels.get(SEED) == first)
        sweep, check = replace(self.sweep, held=0), CheckTerms(repeat=0)
        return replace(self, grid=replace(grid, cells=cells), asked=asked, sweep=sweep, check=check)

    @property
    def clients(self) -> int:
        return self.grid.cells[0].config.clients


def make_plan(table: Mapping[str, Any], where: str) -> TestbedPlan:
    """Return the plan of parsed TOML. Raises UsageError with a sentence that names the key."""
    said = {
        name: _terms(kind, section(table, name, where), f"[{name}] of {where}")
        for name, kind in _TABLES.items()
    }
    asked = {key: value for key, value in table.items() if key not in _TABLES}
    plan = TestbedPlan(**said, grid=make_grid(asked, where), asked=asked)
    _check(plan, where)
    return plan


def _terms(kind: Any, table: Mapping[str, Any], where: str) -> Any:
    return kind(**from_table(list(options(kind)), table, where))


def _check(plan: TestbedPlan, where: str) -> None:
    """Refuse what one house of devices cannot hold."""
    if plan.devices.quota > plan.devices.period:
        raise BadValue(f"quota in [devices] of {where}", plan.devices.quota, "at most the period: one core")
    if len(counts := {cell.config.clients for cell in plan.grid.cells}) > 1:
        raise BadValue(f"clients in {where}", sorted(counts), "one number: the devices stay as they are")
    if not plan.devices.external and plan.clients > _MOST:
        raise BadValue(f"clients in {where}", plan.clients, f"at most {_MOST} emulated devices")
    for cell in plan.grid.cells:
        given = {**cell.given, **cell.lab}
        if plan.devices.external:
            _check_external(given, where)
        elif name := next((name for name in _OURS if name in given), None):
            raise UsageError(f"{name} in {where}: {_OURS[name]}")


def _check_external(given: Mapping[str, Any], where: str) -> None:
    if str(given.get("listen", ":0")).endswith(":0"):
        raise UsageError(
            f"[devices] external in {where}: [run] listen must name the address that devices dial, such as "
            'listen = ":9300" with insecure = true or a certificate'
        )


def describe(plan: TestbedPlan) -> str:
    """Return what devices and network are, in a sentence."""
    if plan.devices.external:
        return f"{plan.clients} devices that come by themselves"
    medium = plan.medium
    kind = "one half-duplex air" if medium.shared else "a cable for each device"
    return (
        f"{plan.clients} emulated devices with {plan.devices.share:.1%} of a core each, {kind} of "
        f"{medium.rate / 1e6:g} Mbit/s, delay {1e3 * medium.delay:g} ms, jitter {1e3 * medium.jitter:g} ms, "
        f"loss {medium.loss:.2%}; a device draws {plan.devices.watts:g} W at work (a model)"
    )


def settings(plan: TestbedPlan) -> dict[str, str]:
    """Return what a figure of time depends on beside its cell, as text."""
    parts = {"devices": plan.devices, "medium": plan.medium, "cable": plan.cable}
    return {name: repr(terms) for name, terms in parts.items()}
