"""Costs as values, on their way from the counters of the open round to the journal's rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgeflock.server.costs.budget import Spent
from edgeflock.server.costs.time_line import Seconds

Row = Mapping[str, float | int | None]  # columns of `costs`; the source of its joules as a number, from 1
Bundles = Mapping[tuple[str, str, str], int]  # bytes by direction, kind and codec


def raised(before: Row, now: Row) -> Row:
    """Return what is known after a further statement: it never lowers what was stated."""
    if not before:
        return dict(now)
    return {**before, **{name: _higher(before.get(name), value) for name, value in now.items()}}


def _higher(before: float | int | None, now: float | int | None) -> float | int | None:
    if before is None or now is None:
        return before if now is None else now
    return max(before, now)


@dataclass(frozen=True)
class RoundRows:
    """The rows of one round."""

    round: int
    rows: Mapping[int, Row]  # by seat
    bundles: Mapping[int, Bundles]
    fresh: Mapping[int, Row]  # the same with the bytes of this life alone


@dataclass(frozen=True)
class LateCosts:
    """What the next transaction writes of rounds that are decided already, and of the time line."""

    late: Mapping[tuple[int, int], Row] = field(default_factory=dict)  # by round and seat
    seconds: Seconds = field(default_factory=dict)


@dataclass(frozen=True)
class Costs:
    """What one transaction writes of costs."""

    pending: LateCosts
    rows: RoundRows | None  # of the round at hand
    spent: Spent
    whole: bool = False  # the life ends with them: nothing is missing
