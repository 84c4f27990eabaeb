"""Effects that come out of the machine: imperatives, which the shell executes."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgeflock.common.scores import GLOBAL
from edgeflock.server.core.decisions import Conduct, Ended, Outcome, Record, RoundOpened


@dataclass(frozen=True)
class Persist:
    """Make the records durable, together; answer each with Persisted."""

    records: tuple[Record, ...]


@dataclass(frozen=True)
class PrepareRound:
    """Encode the broadcast, reserve the spool; answer RoundPrepared or SpaceMissing."""

    round: int
    cohort: tuple[int, ...]  # with whom it was opened
    last: bool = False
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
    announcements: tuple[Announce, ...] = ()  # so does what is said of that


@dataclass(frozen=True)
class TestModel:
    """Test models of a committed round beside all else; answer Tested or TestFailed."""

    __test__ = False  # not a pytest class

    round: int
    models: tuple[str, ...] = (GLOBAL,)


@dataclass(frozen=True)
class Publish:
    """Push clients their current view: these, and whoever else has news; or everybody."""

    seats: tuple[int, ...] | None = None  # None: everybody


@dataclass(frozen=True)
class Announce:
    """Something the journal's readers want to know."""

    name: str
    fields: dict[str, object] = field(default_factory=dict)
    written: bool = False  # the journal has it: it went with its decision


@dataclass(frozen=True)
class Exit:
    """Leave the process: the run is over, parked, or cannot go on in this process (failed)."""

    ending: Ended | None


Effect = Persist | PrepareRound | FoldRound | CommitRound | TestModel | Publish | Announce | Exit
