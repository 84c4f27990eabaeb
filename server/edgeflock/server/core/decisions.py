"""Decisions of the machine, as records: nothing that reveals one goes out before they are durable."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edgeflock.common.scores import GLOBAL, Summary
from edgeflock.common.verdict import Verdict


class EndingKind(StrEnum):
    """How a run ends."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one cohort member in one round."""

    seat: int
    digest: bytes  # of the update; empty if none was received
    verdict: Verdict
    moved: bool | None = None  # whether the client's own state moved with it; None: the client did not say


@dataclass(frozen=True)
class Seated:
    """Clients got their places; in roster mode all at once, in natural order."""

    seats: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Samples:
    """A client has its data, so many samples: its n_i in every round that is opened from now on."""

    seat: int
    samples: int


@dataclass(frozen=True)
class RoundOpened:
    """A round begins with this cohort.

    `last`: training is over for this reason, and all are asked once more; no round follows.
    """

    round: int
    cohort: tuple[int, ...]
    last: str = ""


@dataclass(frozen=True)
class RoundExtended:
    """A short round got more time, and these members."""

    round: int
    added: tuple[int, ...]


@dataclass(frozen=True)
class RoundClosed:
    """The counted set is decided.

    `limit`: the round was cut short by it, and this is why none follows.
    """

    round: int
    counted: tuple[int, ...]
    limit: str = ""


@dataclass(frozen=True)
class Ended:
    """The run is over; an open round is discarded with these outcomes."""

    kind: EndingKind
    reason: str
    round: int
    discarded: tuple[Outcome, ...] = ()


@dataclass(frozen=True)
class Conduct:
    """What a client's updates were like."""

    seat: int
    refused: int  # bad updates in all
    row: int  # of these since the last one that counted, or since its quarantine
    until: int  # in quarantine to the end of that round; 0: it was not put there
    reason: str  # of the last bad one


@dataclass(frozen=True)
class Released:
    """An operator ends a client's quarantine."""

    seat: int


@dataclass(frozen=True)
class Dropped:
    """An operator takes a client out: its seat is vacant."""

    seat: int
    client_id: str
    round: int  # at hand, or else the next
    kept: bool = False  # its update of that round was here, and counts


@dataclass(frozen=True)
class Placed:
    """An operator gives a client a seat, with what is asked of that; whoever had it has none any more."""

    seat: int
    client_id: str
    round: int  # at hand, or else the next
    before: str = ""  # who had the seat last, it may be the same; empty: nobody did


@dataclass(frozen=True)
class Scored:
    """Models of a committed round were tested."""

    round: int
    scores: tuple[tuple[str, Summary], ...]  # each with the name of its model
    models: tuple[str, ...] = (GLOBAL,)  # which were to be: of one there may be nothing


@dataclass(frozen=True)
class Paused:
    """An operator has the run pause after the round at hand, or lets it go on."""

    on: bool
    round: int


@dataclass(frozen=True)
class Stopping:
    """An operator ends the run; what is on its way to a commit comes first."""

    reason: str


Record = (
    Seated | Samples | RoundOpened | RoundExtended | RoundClosed | Ended | Conduct | Released | Dropped
    | Placed | Scored | Paused | Stopping
)  # fmt: skip
