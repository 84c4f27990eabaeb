"""Faults as data: what goes wrong, where, and when; a script of them replays a failure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What can go wrong on a connection; `amount` is said beside each."""

    DELAY = "delay"  # from then on every piece arrives later; seconds
    JITTER = "jitter"  # ... by up to so many seconds, drawn anew for every piece
    RATE = "rate"  # from then on no faster; bytes per second
    CUT = "cut"  # reset of both ends
    REPLY_LOST = (
        "reply lost"  # from then on what the other end answers vanishes, then a reset; seconds between
    )
    HALF_CLOSE = "half close"  # this direction ends, the other one goes on
    FREEZE = "freeze"  # nothing passes any more, nothing is closed; seconds, 0: for ever
    BLACKHOLE = "blackhole"  # everything vanishes, nothing is closed; seconds, 0: for ever
    DUPLICATE = "duplicate"  # a second connection sends the same bytes again


@dataclass(frozen=True)
class Fault:
    """`kind` happens in direction `target` (up, down) of a connection once `when` bytes have passed there."""

    kind: Kind
    target: str
    when: int
    amount: float = 0.0


Script = tuple[
    tuple[Fault, ...], ...
]  # faults of the first connection, of the second, ...; later ones are clean


def each(kind: Kind, target: str, when: int, connections: int, amount: float = 0.0) -> Script:
    """The same fault on so many connections, one after the other."""
    return ((Fault(kind, target, when, amount),),) * connections
