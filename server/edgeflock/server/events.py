"""The round machine's vocabulary: events that go in, effects that come out, records that become durable.

Events are past participles and carry the time they happened at (seconds, monotonic) where it matters.
Effects are imperatives that the shell executes. Records are decisions: nothing that reveals one
leaves the server before it is in the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """Where the run is."""

    IDLE = "idle"
    GATHERING = "gathering"  # waiting for the roster
    OPENING = "opening"  # the round is decided; broadcast and spool are being made
    OPEN = "open"  # updates come in
    FOLDING = "folding"  # closed; the counted set is decided
    COMMITTING = "committing"
    COMMITTED = "committed"  # between two rounds: paused or draining
    ENDING = "ending"  # the end is decided and on its way to the journal
    ENDED = "ended"


class EndingKind(StrEnum):
    """How a run ends."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


class Verdict(StrEnum):
    """Why an update counts or not; the names of the wire's reasons."""

    COUNTED = "counted"
    LATE = "late"
    NON_FINITE = "non_finite"
    MALFORMED = "malformed"
    DISCARDED = "discarded"
    REFUSED_BY_CLIENT = "refused_by_client"
    QUARANTINED = "quarantined"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one cohort member in one round."""

    index: int
    digest: bytes  # of the update; empty if none was received
    verdict: Verdict


# ---------------------------------------------------------------------------------------- records


@dataclass(frozen=True)
class Seated:
    """Clients got their places; in roster mode all at once, in natural order."""

    seats: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class RoundOpened:
    """A round begins with this cohort.

    `closing`: it is the one after the last that counts, and this is why none follows.
    """

    round: int
    cohort: tuple[int, ...]
    closing: str = ""


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

    index: int
    refused: int  # bad updates in all
    row: int  # of these since the last one that counted, or since its quarantine
    until: int  # in quarantine to the end of that round; 0: it was not put there
    reason: str  # of the last bad one


@dataclass(frozen=True)
class Released:
    """An operator ends a client's quarantine."""

    index: int


Record = Seated | RoundOpened | RoundExtended | RoundClosed | Ended | Conduct | Released

# ----------------------------------------------------------------------------------------- events


@dataclass(frozen=True)
class OpenRound:
    """A round as the journal knows it when a run is resumed."""

    round: int
    cohort: tuple[int, ...]
    added: tuple[int, ...] | None = None  # by an extension; None: there was none
    closed: tuple[int, ...] | None = None
    closing: str = ""


@dataclass(frozen=True)
class Started:
    """The daemon is up; what the run directory holds."""

    now: float
    seats: tuple[tuple[int, str], ...] = ()
    committed: int = 0
    open: OpenRound | None = None
    closed: str = ""  # the last one committed is the closing round: why the run is over
    limit: str = ""  # a budget is used up: a round that is decided is committed, and none follows
    reached: str = ""  # the last one committed has reached the target: what is open is discarded
    ended: Ended | None = None  # the run is over, but not every client may have heard
    conduct: tuple[Conduct, ...] = ()  # of clients with bad updates


@dataclass(frozen=True)
class Ready:
    index: int
    now: float


@dataclass(frozen=True)
class Online:
    client_id: str
    now: float


@dataclass(frozen=True)
class Offline:
    client_id: str
    now: float


@dataclass(frozen=True)
class UpdateReceived:
    """Complete and checked, in the spool."""

    round: int
    index: int
    digest: bytes
    now: float


@dataclass(frozen=True)
class TaskRefused:
    round: int
    index: int
    now: float


@dataclass(frozen=True)
class Offended:
    """A client has sent an update that no sound client sends."""

    index: int
    reason: str
    now: float


@dataclass(frozen=True)
class ReleaseAsked:
    """An operator trusts a client again."""

    index: int
    now: float


@dataclass(frozen=True)
class Ticked:
    now: float


@dataclass(frozen=True)
class Persisted:
    """The record is in the journal."""

    record: Record
    now: float


@dataclass(frozen=True)
class RoundPrepared:
    """Broadcast and spool of the round are there; after a crash the spool may hold updates."""

    round: int
    received: tuple[tuple[int, bytes], ...]
    now: float


@dataclass(frozen=True)
class Folded:
    """The counted set is summed up; these of it are left out, and why."""

    round: int
    rejected: Mapping[int, Verdict]
    now: float


@dataclass(frozen=True)
class Committed:
    """The round is durable. `stop` is the method's or a budget's reason to end here, `reached` a target's."""

    round: int
    now: float
    stop: str = ""
    reached: str = ""


@dataclass(frozen=True)
class LimitReached:
    """A budget is used up in the midst of a round."""

    reason: str
    now: float


@dataclass(frozen=True)
class TargetReached:
    """The model of that round has reached the target; the journal holds its evaluation."""

    round: int
    reason: str
    now: float


@dataclass(frozen=True)
class SpaceMissing:
    """An effect found the disk full; it is tried again."""

    effect: Effect
    reason: str
    now: float


@dataclass(frozen=True)
class Done:
    """The method or a budget wants no further round, or no closing task: the one being opened is not."""

    reason: str
    now: float


@dataclass(frozen=True)
class Diverged:
    """The aggregate of the round is not finite."""

    round: int
    reason: str
    now: float


@dataclass(frozen=True)
class Broken:
    """An effect failed for good: this process cannot go on, a next one may."""

    reason: str
    now: float


@dataclass(frozen=True)
class PauseAsked:
    now: float


@dataclass(frozen=True)
class ResumeAsked:
    now: float


@dataclass(frozen=True)
class StopAsked:
    reason: str
    now: float


@dataclass(frozen=True)
class DrainAsked:
    now: float


FromClient = Online | Offline | Ready | UpdateReceived | TaskRefused | Offended
FromOperator = PauseAsked | ResumeAsked | StopAsked | DrainAsked | ReleaseAsked
Event = (
    Started | FromClient | Ticked | Persisted | RoundPrepared | Folded | Committed | LimitReached
    | TargetReached | SpaceMissing | Done | Diverged | Broken | FromOperator
)  # fmt: skip

# ---------------------------------------------------------------------------------------- effects


@dataclass(frozen=True)
class Persist:
    """Make the records durable, together; answer each with Persisted."""

    records: tuple[Record, ...]


@dataclass(frozen=True)
class PrepareRound:
    """Encode the broadcast, reserve the spool; answer RoundPrepared or SpaceMissing."""

    round: int
    cohort: tuple[int, ...]  # with whom it was opened
    closing: bool = False
    added: tuple[int, ...] = ()  # by an extension before a restart


@dataclass(frozen=True)
class FoldRound:
    """Fold the counted set in ascending order; answer Folded."""

    round: int
    counted: tuple[int, ...]


@dataclass(frozen=True)
class CommitRound:
    """Make the round durable, and the opening of the next one with it; answer Committed or SpaceMissing."""

    round: int
    outcomes: tuple[Outcome, ...]
    next: RoundOpened | None = None
    conduct: tuple[Conduct, ...] = ()  # becomes durable with it
    words: tuple[Announce, ...] = ()  # so does what is said of that


@dataclass(frozen=True)
class Publish:
    """Push every client its current view."""


@dataclass(frozen=True)
class Announce:
    """Something the journal's readers want to know."""

    name: str
    fields: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Exit:
    """Leave the process: the run is over, parked, or cannot go on in this process (failed)."""

    ending: Ended | None


Effect = Persist | PrepareRound | FoldRound | CommitRound | Publish | Announce | Exit
