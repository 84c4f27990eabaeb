"""Events that go into the machine: past participles, with their time (seconds, monotonic)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgeflock.common.scores import GLOBAL, Summary
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Conduct, Dropped, Ended, Record, Scored
from edgeflock.server.core.effects import Effect, TestModel


@dataclass(frozen=True)
class ResumedRound:
    """A round as the journal knows it when a run is resumed."""

    round: int
    cohort: tuple[int, ...]
    added: tuple[int, ...] | None = None  # by an extension; None: there was none
    counted: tuple[int, ...] | None = None
    last: str = ""


@dataclass(frozen=True)
class Started:
    """The daemon is up; what the run directory holds."""

    now: float
    seats: tuple[tuple[int, str], ...] = ()
    committed: int = 0
    open: ResumedRound | None = None
    over: str = ""  # the last round is committed, too: why training was over
    limit: str = ""  # a budget is used up: a round that is decided is committed, and none follows
    ended: Ended | None = None  # the run is over, but not every client may have heard
    conduct: tuple[Conduct, ...] = ()  # of clients with bad updates
    samples: Mapping[int, int] = field(default_factory=dict)  # n_i by seat
    scored: Mapping[str, int] = field(default_factory=dict)  # of each model the newest round that has a score
    score: Summary | None = None  # of the last one committed
    best: tuple[float, int] | None = None  # the best value of the run's figure, and its round
    paused: bool = False  # by an operator
    stop: str = ""  # an operator's reason to end the run
    untested: tuple[TestModel, ...] = ()  # of earlier rounds: tests that were cut off
    since: int = 0  # tests since the best one
    dismissed: tuple[Dropped, ...] = ()  # who was dropped or replaced, and is not back


@dataclass(frozen=True)
class Ready:
    """A client has its data, so many samples, and waits for tasks."""

    seat: int
    samples: int
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
    seat: int
    digest: bytes
    now: float


@dataclass(frozen=True)
class TaskRefused:
    round: int
    seat: int
    now: float


@dataclass(frozen=True)
class Offended:
    """A client has sent an update that no sound client sends."""

    seat: int
    reason: str
    now: float


@dataclass(frozen=True)
class ReleaseAsked:
    """An operator trusts a client again."""

    seat: int
    now: float


@dataclass(frozen=True)
class AddAsked:
    """An operator wants a client to have a seat."""

    client_id: str
    now: float


@dataclass(frozen=True)
class DropAsked:
    """An operator wants a client to take no part any more."""

    client_id: str
    now: float


@dataclass(frozen=True)
class ReplaceAsked:
    """An operator wants another client in a client's seat."""

    client_id: str
    by: str
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
    """The round is durable. `stop` is the method's or a budget's reason to end here."""

    round: int
    now: float
    stop: str = ""
    scored: Scored | None = None  # what the devices say of the model of the round before, where they decide


@dataclass(frozen=True)
class LimitReached:
    """A budget is used up in the midst of a round."""

    reason: str
    now: float


@dataclass(frozen=True)
class Tested:
    """Models of that round have these scores, each with a name."""

    __test__ = False  # not a pytest class

    round: int
    scores: tuple[tuple[str, Summary], ...]
    now: float
    models: tuple[str, ...] = (GLOBAL,)  # which were to be tested


@dataclass(frozen=True)
class TestFailed:
    """Models of that round cannot be tested."""

    __test__ = False  # not a pytest class

    round: int
    reason: str
    now: float
    models: tuple[str, ...] = (GLOBAL,)


@dataclass(frozen=True)
class SpaceMissing:
    """An effect found the disk full, or the journal locked by another program; it is tried again."""

    effect: Effect
    reason: str
    now: float


@dataclass(frozen=True)
class Done:
    """The method or a budget wants no further round, or no last one: the one being opened is not."""

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
ForRoster = AddAsked | DropAsked | ReplaceAsked
FromOperator = PauseAsked | ResumeAsked | StopAsked | DrainAsked | ReleaseAsked | ForRoster
Event = (
    Started | FromClient | Ticked | Persisted | RoundPrepared | Folded | Committed | LimitReached
    | Tested | TestFailed | SpaceMissing | Done | Diverged | Broken | FromOperator
)  # fmt: skip
