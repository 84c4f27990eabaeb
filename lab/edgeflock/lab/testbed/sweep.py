"""How long rounds last on other links and devices, reckoned, and where the order of methods turns. Pure.

The bits of a model are the same on every link, so the rounds to a target are, too: only their length changes.
A round is a device's CPU seconds by its share, all bytes one after the other through the medium, and the
server's own seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from edgeflock.lab.testbed.breakdown import SERVER, Breakdown, SeedGroup
from edgeflock.lab.testbed.plan import ETHERNET, MediumTerms, SweepTerms, TestbedPlan, rate_of

_TRIPS = (
    4  # there and back in a round: news, header and credit, and what the windows of two transfers grow in
)
_SAME = 0.01  # relative: times that are no further apart have no order


@dataclass(frozen=True)
class MeanRound:
    """What a mean round of a method is made of, wherever it is held."""

    rounds: float
    cpu_s: float  # of one device
    down: float  # bytes of all devices together
    up: float
    server_s: float  # on the critical path
    prepare_s: float  # beside the devices; the fold waits for it


def work(cells: Sequence[Breakdown]) -> MeanRound:
    """Return the work of a method's cells, the mean over seeds."""

    def mean(values: Sequence[float]) -> float:
        return statistics.fmean(values)

    rounds = [max(1, cell.rounds) for cell in cells]
    pairs = list(zip(cells, rounds, strict=True))
    return MeanRound(
        rounds=mean(rounds),
        cpu_s=mean([cell.cpu_s / cell.devices / count for cell, count in pairs]),
        down=mean([cell.down / count for cell, count in pairs]),
        up=mean([cell.up / count for cell, count in pairs]),
        server_s=mean([sum(cell.parts[name] for name in SERVER) / count for cell, count in pairs]),
        prepare_s=mean([cell.prepare_s / count for cell, count in pairs]),
    )


def round_s(one: MeanRound, plan: TestbedPlan, speed: float = 1.0) -> float:
    """Return how long a round is expected to last on devices so many times as fast."""
    medium, share = plan.medium, plan.devices.share
    there_and_back = 2 * (medium.delay + medium.jitter / 2 + plan.cable.delay)
    at_work = one.cpu_s / share / speed + _TRIPS * there_and_back + passing_s(one, medium, plan.clients)
    return max(at_work, one.prepare_s) + one.server_s


def passing_s(one: MeanRound, medium: MediumTerms, devices: int) -> float:
    """Return how long the bytes of a round pass: by one air one after the other, by cables at a time."""
    return 8 * (one.down + one.up) / medium.rate / (1 if medium.shared else devices)


@dataclass(frozen=True)
class Spot:
    """A link and a speed of devices, with the minutes of every method."""

    link: str
    speed: float
    minutes: Mapping[str, float]

    @property
    def order(self) -> list[str]:
        """The methods, the fastest first."""
        return sorted(self.minutes, key=lambda method: self.minutes[method])


def spots(rows: Sequence[SeedGroup], plan: TestbedPlan) -> list[Spot]:
    """Return every link and speed that is asked for, of the methods that reached the target."""
    works = {row.method: work(row.reached) for row in rows if row.reached}
    return [
        Spot(
            link,
            speed,
            {name: one.rounds * round_s(one, over(plan, link), speed) / 60 for name, one in works.items()},
        )
        for link in plan.sweep.rates
        for speed in plan.sweep.speeds
    ]


def over(plan: TestbedPlan, link: str) -> TestbedPlan:
    """Return the plan with another medium: that rate of air, or a cable for each device."""
    if link == ETHERNET:
        cable = MediumTerms(kind=ETHERNET, rate=plan.cable.rate, delay=plan.cable.delay, jitter=0.0, loss=0.0)
        return replace(plan, medium=cable)
    return replace(plan, medium=replace(plan.medium, kind="wifi", rate=rate_of(link)))


def turns(found: Sequence[Spot], asked: SweepTerms) -> list[str]:
    """Return in sentences between which links, and between which speeds, two methods change places."""
    at = {(spot.link, spot.speed): spot for spot in found}
    own = 1.0 if 1.0 in asked.speeds else asked.speeds[0]
    link = asked.rates[-2:][0]
    by_link = [(f"{rate}", at[rate, own]) for rate in asked.rates]
    by_speed = [(f"devices {speed:g} times as fast", at[link, speed]) for speed in asked.speeds]
    return [*_along(by_link), *(f"{line} (at {link})" for line in _along(by_speed))]


def _along(line: Sequence[tuple[str, Spot]]) -> list[str]:
    if not line or len(line[0][1].minutes) < 2:
        return []
    said = []
    for one, other in combinations(line[0][1].minutes, 2):
        sides = [(name, _side(spot, one, other)) for name, spot in line]
        known = [(name, side) for name, side in sides if side]
        for (before, left), (after, right) in pairwise(known):
            if left != right:
                first, second = (one, other) if left < 0 else (other, one)
                said.append(f"{first} is before {second} at {before}, behind it at {after}")
    return said


def _side(spot: Spot, one: str, other: str) -> int:
    """Return -1 if the one is faster, 1 if the other is, 0 where nobody can say."""
    mine, theirs = spot.minutes[one], spot.minutes[other]
    return 0 if abs(mine - theirs) <= _SAME * max(mine, theirs) else -1 if mine < theirs else 1
