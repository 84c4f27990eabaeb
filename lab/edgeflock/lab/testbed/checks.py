"""The checks that a testbed makes of itself: what was wanted, what was found, in a sentence each. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeflock.lab.history import History
from edgeflock.lab.testbed.breakdown import Breakdown, totals
from edgeflock.lab.testbed.gauges import Measures
from edgeflock.lab.testbed.plan import TestbedPlan
from edgeflock.lab.testbed.sweep import round_s, work

LEAST_USED, MOST_USED = 0.95, 1.0
_HALF = 0.005  # what two digits round away
_SEEN = 0.02  # more may seem used: the part of a round is looked at in which it was the most
BOOKS, PREDICTED = 0.01, 0.15
_LATE_S = 0.002  # of a packet, in the mean


@dataclass(frozen=True)
class HeldCell:
    """A cell with all that is known of it."""

    name: str
    history: History
    breakdown: Breakdown
    lives: Sequence[Measures]
    digest: str
    measure: str  # whose accuracy counts


@dataclass(frozen=True)
class CheckResult:
    """One check: whether it is passed (None: it could not be made), and the words for it."""

    name: str
    passed: bool | None
    words: str

    def __str__(self) -> str:
        verdict = {True: "passed", False: "FAILED", None: "not made"}[self.passed]
        return f"{self.name}: {verdict}: {self.words}"


def checks(cells: Sequence[HeldCell], again: Mapping[str, str], plan: TestbedPlan) -> list[CheckResult]:
    """Return the five checks over all cells; `again` are digests of cells that were held twice, by name."""
    return [
        used_cpu(cells, plan),
        interfaces(cells),
        medium(cells),
        predicted(cells, plan),
        same_bits(cells, again),
    ]


def used_cpu(cells: Sequence[HeldCell], plan: TestbedPlan) -> CheckResult:
    """Whether devices had their share of CPU, and no more, while they trained."""
    name = "CPU against the quota"
    modes = sorted({life.mode for cell in cells for life in cell.lives})
    if modes == ["free"]:
        return CheckResult(name, None, "no device is held to a share")
    if (had := share_had(cells, plan)) is None:
        return CheckResult(name, None, "no training lasted long enough to be watched")
    seconds = sum(life.training_s for cell in cells for life in cell.lives)
    wanted = f"{LEAST_USED:.2f} to {MOST_USED:.2f} wanted while training"
    watched = f"{seconds:.0f} s of it watched, held by {', '.join(modes)}"
    slow = (
        f"; the host was too slow: devices had {had:.0%} of what was due to them" if _too_little(had) else ""
    )
    return CheckResult(
        name, not _too_little(had) and had <= MOST_USED + _SEEN, f"{had:.2f}, {wanted}; {watched}{slow}"
    )


def share_had(cells: Sequence[HeldCell], plan: TestbedPlan) -> float | None:
    """Return how much of their share of CPU devices had while they trained; None if nobody watched."""
    seconds = sum(life.training_s for cell in cells for life in cell.lives)
    used = sum(life.training_cpu_s for cell in cells for life in cell.lives)
    return used / seconds / plan.devices.share if seconds else None


def _too_little(had: float) -> bool:
    return had < LEAST_USED - _HALF


def interfaces(cells: Sequence[HeldCell]) -> CheckResult:
    """Whether the books have the bytes that the interfaces have counted."""
    name = "Interfaces against the books"
    whole = [cell for cell in cells if undisturbed(cell)]
    if not whole:
        return CheckResult(name, None, "no cell was watched from its beginning to its end")
    errors: dict[str, float] = {}
    for way in ("down", "up"):
        books = sum(totals(cell.history).get(f"wire_bytes_{way}", 0.0) for cell in whole)
        there = sum(getattr(life, way).new for cell in whole for life in cell.lives)
        errors[way] = books / there - 1 if there else 1.0
    again = sum(life.down.again + life.up.again for cell in whole for life in cell.lives)
    said = ", ".join(f"{way} {error:+.2%}" for way, error in errors.items())
    beside = f"without bare acknowledgements and {again / 1e6:.2f} MB sent again"
    words = f"books {said}, within {BOOKS:.0%} wanted; {beside}"
    return CheckResult(name, all(abs(error) <= BOOKS for error in errors.values()), words)


def undisturbed(cell: HeldCell) -> bool:
    """Whether all lives of the cell's server were watched to their ends."""
    begun = sum(event.name == "run_started" for event in cell.history.events)
    return bool(cell.lives) and begun == len(cell.lives)


def medium(cells: Sequence[HeldCell]) -> CheckResult:
    """Whether the medium kept up; how busy it was and what it dropped."""
    name = "The medium"
    lives = [life for cell in cells for life in cell.lives if life.medium.get("packets")]
    if not lives:
        return CheckResult(name, None, "nothing has passed")
    seconds = sum(life.end - life.begin for life in lives)
    packets = sum(life.medium["packets"] for life in lives)
    busy = sum(life.medium["busy_s"] for life in lives) / seconds
    lost, dropped = (sum(life.medium[what] for life in lives) / packets for what in ("lost", "dropped"))
    late = sum(life.medium["late_s"] for life in lives) / max(
        1.0, sum(life.medium["late_packets"] for life in lives)
    )
    words = (
        f"busy {busy:.1%} of the time, {lost:.2%} of the packets lost by chance, "
        f"{dropped:.2%} dropped at full queues; "
        f"packets were late by {1e3 * late:.2f} ms in the mean, at most {1e3 * _LATE_S:g} wanted"
    )
    slow = "; the host was too slow" if late > _LATE_S else ""
    return CheckResult(name, late <= _LATE_S, words + slow)


def predicted(cells: Sequence[HeldCell], plan: TestbedPlan) -> CheckResult:
    """Whether rounds last as long as CPU, bytes and the server's seconds say."""
    name = "Predicted round time"
    known = [cell for cell in cells if cell.breakdown.rounds]
    if not known:
        return CheckResult(name, None, "no round was committed")
    errors = {cell.name: _error(cell, plan) for cell in known}
    worst = max(errors, key=lambda cell: abs(errors[cell]))
    words = (
        f"{statistics.median(errors.values()):+.0%} in the middle, {errors[worst]:+.0%} at worst ({worst}), "
        f"within {PREDICTED:.0%} wanted: a device's CPU seconds by its share, bytes by the rate, and the "
        f"server's own{_with_what_they_had(known, plan)}"
    )
    return CheckResult(name, abs(errors[worst]) <= PREDICTED, words)


def _error(cell: HeldCell, plan: TestbedPlan, had: float = 1.0) -> float:
    return round_s(work([cell.breakdown]), plan, had) / cell.breakdown.round_s - 1


def _with_what_they_had(cells: Sequence[HeldCell], plan: TestbedPlan) -> str:
    """Return how far it is off by the share that a host too slow has left to each cell's devices."""
    known = [(cell, had) for cell in cells if (had := share_had([cell], plan)) is not None]
    if not any(_too_little(had) for _, had in known):
        return ""
    middle = statistics.median(_error(cell, plan, had) for cell, had in known)
    return f"; by the share that the host has left to them {middle:+.0%} in the middle"


def same_bits(cells: Sequence[HeldCell], again: Mapping[str, str]) -> CheckResult:
    """Whether a cell that was held twice came to the same model."""
    name = "The same run twice"
    pairs = {cell.name: (cell.digest, again[cell.name]) for cell in cells if cell.name in again}
    if not pairs:
        return CheckResult(name, None, "no cell was held twice ([check] repeat)")
    other = [cell for cell, (one, two) in pairs.items() if one != two]
    if other:
        return CheckResult(name, False, f"another SHA-256: {', '.join(other)}")
    first = next(iter(pairs.values()))[0]
    return CheckResult(
        name, True, f"{len(pairs)} of {len(cells)} cells held twice, the same SHA-256 ({first[:12]}...)"
    )
