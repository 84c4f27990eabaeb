"""What a client and its server say to each other, as values; `link` alone knows the messages for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeflock.common.errors import EdgeflockError
from edgeflock.common.payload.package import CodecChoice, Kind, Package, Scope
from edgeflock.common.plugins.digest import Code
from edgeflock.common.reason import Reason
from edgeflock.common.verdict import Verdict
from edgeflock.methods.kit.values import Plan

if TYPE_CHECKING:
    from edgeflock.common.datasets.kit.own import OwnPart

# ------------------------------------------------------------------------------------------------ the client


@dataclass(frozen=True)
class Device:
    """What this machine is, and what its operator said of the work on it."""

    machine: str
    system: str
    cores: int
    memory_bytes: int
    torch: str
    compute: str
    python: str
    asked: str
    threads: int
    parallel: int
    watts: float  # 0: nothing was said
    hold_out: float = 0.0  # share of its own data that is kept for tests


@dataclass(frozen=True)
class Introduction:
    """Who asks for a seat."""

    client_id: str
    instance: bytes
    own: OwnPart | None  # the data that it trains on, if they are its own
    device: Device
    life: bytes = b""  # of this process
    code: tuple[Code, ...] = ()  # the plug-ins that a run could ask it for
    saves: str = ""  # which model of the run it fetches to keep: final, best; empty: none


# ------------------------------------------------------------------------------------------------ the server


@dataclass(frozen=True)
class Settlement:
    """The final word on one update of this client."""

    round: int
    digest: bytes
    verdict: Verdict

    @property
    def counted(self) -> bool:
        return self.verdict is Verdict.COUNTED


@dataclass(frozen=True)
class Extent:
    """Which own data a round is trained on, or a whole run (0)."""

    round: int
    samples: int
    digest: str


@dataclass(frozen=True)
class Generation:
    """A state of this client: after which of its counted updates it is."""

    round: int
    digest: bytes


START = Generation(0, b"")  # before the first one: as on first participation


@dataclass(frozen=True)
class Quarantine:
    """This client takes no part in rounds for a while, because of its updates."""

    until_round: int
    reason: str


@dataclass(frozen=True)
class Parcel:
    """A package that a task names: to be fetched, unless its payload came along."""

    scope: Scope
    package: Package | None  # None: it is described when it is fetched
    payload: bytes = b""


@dataclass(frozen=True)
class WantedBundle:
    """What an update must hold, of which layout, in which codec."""

    kind: Kind
    layout_digest: bytes
    codec: CodecChoice


@dataclass(frozen=True)
class Task:
    """What the server asks of this client in a round."""

    round: int
    plan: Plan = field(default_factory=lambda: Plan(lr=0.0))
    parcels: tuple[Parcel, ...] = ()
    uploads: tuple[WantedBundle, ...] = ()
    closing: bool = False  # training is over: it has no step
    scores: tuple[str, ...] = ()  # that the client's own model is tested for
    allowances: Mapping[str, float] = field(default_factory=dict)  # by resource
    fault: EdgeflockError | None = None  # why nobody could do it: it makes no sense

    @property
    def made_from(self) -> bytes:
        """The digest of the package that everybody gets in this round: what an update is made from."""
        shared = (one.package for one in self.parcels if one.scope is Scope.SHARED)
        return next((package.digest for package in shared if package is not None), b"")


@dataclass(frozen=True)
class Offered:
    """A model that the server has for this client to keep."""

    round: int  # after which it is
    best: bool  # the best so far; else the run's final one


@dataclass(frozen=True)
class View:
    """What the server said last about this client; a later view replaces an earlier one."""

    round: int = 0  # the last one opened
    seat: int | None = None
    draining: bool = False  # the server goes down and will be back; its view names no task then
    task: Task | None = None
    settled: tuple[Settlement, ...] = ()  # the last two, oldest first
    standing: Generation | None = None  # where this client's state must be; None: it does not say
    ending: str | None = None  # the reason, once the run is over
    failed: bool = False  # that is how it ended
    quarantine: Quarantine | None = None
    offer: Offered | None = None
    return_within_ms: int = 0  # with `draining`: over which its clients shall spread their return

    @property
    def asked(self) -> int | None:
        """The round of the task."""
        return self.task.round if self.task else None

    @property
    def closing(self) -> bool:
        """Whether the task is the one after the last round of training."""
        return self.task is not None and self.task.closing


# ------------------------------------------------------------------------------------------------ no answer


class ServerRefused(EdgeflockError):
    """The server refused; `temporary` means that nothing is lost and the same may be tried again."""

    def __init__(
        self, reason: Reason | None, sentence: str, *, temporary: bool = False, retry_after_ms: int = 0
    ) -> None:
        super().__init__(sentence)
        self.reason = reason  # None: one that this version does not know
        self.temporary = temporary
        self.retry_after_ms = retry_after_ms

    @property
    def anew(self) -> bool:
        """Whether another session is all that it takes."""
        return self.reason in (Reason.UNKNOWN_SESSION, Reason.SUPERSEDED)

    @property
    def passes(self) -> bool:
        """Whether the same, later or in another session, may succeed."""
        return self.temporary or self.anew


class Interrupted(Exception):
    """What was going on ended early: it goes on where it was."""


class Unreached(Exception):
    """The connection broke, or none came about; its text says why, in our words."""

    def __init__(self, why: str, *, hint: str = "", distrusted: bool = False, foreign: bool = False) -> None:
        super().__init__(why)
        self.hint = hint  # what a server may have meant that was never met before
        self.distrusted = distrusted  # TLS is set up wrongly, here or there
        self.foreign = foreign  # something answers that is no aggregator
