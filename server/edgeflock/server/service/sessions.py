"""Who is connected: sessions by token and by client id, and the streams that are their presence."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from edgeflock.common.errors import EdgeflockError
from edgeflock.common.payload.package import Package
from edgeflock.server.costs.traffic import Traffic, TrafficBook
from edgeflock.server.engine.transfer import CLOSED, Landing
from edgeflock.v1 import aggregator_pb2 as pb

TAKEOVERS, CONTEST_S = 6, 60.0  # so many within so long make a contest, and so long nobody is let in
MOST_STRANGERS = 1000  # sessions of ids that do not watch, beside as many as there are free seats
_TWO = (
    "two living clients with the id {!r} take it from each other, as two devices of one SD-card image or of "
    "one copied state directory do: give one of them another --id and a --state-dir of its own"
)


class DuplicateId(EdgeflockError):
    """Another living instance uses the id."""


class Contests:
    """Ids that two devices with one instance take from each other, as two of one SD-card image do.

    A client that is cut off and comes back takes its own half-open session over; one that is started anew
    may, too. Who takes over a living session of another life again and again is not alone.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._taken: dict[str, deque[float]] = {}  # when, the last few times; of an id that was one: the last

    def __contains__(self, client_id: str) -> bool:
        """Whether nobody is let in with that id for now."""
        taken = self._taken.get(client_id)
        return taken is not None and len(taken) == taken.maxlen and self._clock() - taken[-1] < CONTEST_S

    def take(self, client_id: str) -> None:
        """A living session was taken over by another life."""
        taken = self._taken.setdefault(client_id, deque(maxlen=TAKEOVERS))
        while taken and self._clock() - taken[0] > CONTEST_S:
            taken.popleft()
        taken.append(self._clock())
        if len(taken) == taken.maxlen:  # the next time once is enough
            self._taken[client_id] = deque(taken, maxlen=1)


@dataclass(eq=False)
class Session:
    """One client's connection since its last Join."""

    client_id: str
    instance_id: bytes
    software: str
    device: dict[str, object]
    saves: str = ""  # which model of the run it fetches to keep
    life: bytes = b""  # of the client's process; empty: it did not say
    token: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # the view is to be sent again
    watching: int = 0  # open Watch streams; two while a half-open one is not yet noticed
    superseded: bool = False
    progress: pb.Progress = field(default_factory=pb.Progress)  # as the client said last
    seen: float = field(default_factory=time.monotonic)  # its last call or chunk
    gate: str = ""  # by way of which it comes; empty: it is connected to this process
    upload: asyncio.Future[Any] | None = None  # the Deliver stream in progress
    arriving: Landing | None = None  # what that stream fills
    fetching: tuple[int, int] | None = None  # bytes that were sent of a package on its way, and all
    traffic: Traffic = field(default_factory=Traffic)  # the client's, whatever its session

    def sent(
        self, message_bytes: int, payload: int = 0, package: Package | None = None, offset: int = 0
    ) -> None:
        """Note a message to the client."""
        self.traffic.sent(message_bytes, payload, package, offset)

    def received(
        self, message_bytes: int, payload: int = 0, package: Package | None = None, offset: int = 0
    ) -> None:
        """Note a message from the client."""
        self.seen = time.monotonic()
        self.traffic.received(message_bytes, payload, package, offset)


class Sessions:
    """All sessions, at most one for each client id: the audience of the run (engine/engine.py)."""

    def __init__(self, traffic: TrafficBook) -> None:
        self._by_token: dict[bytes, Session] = {}
        self._by_id: dict[str, Session] = {}
        self._keeping: set[str] = set()  # who fetches a model of the run to keep
        # Who joined, or watched, and does not watch now, oldest first. Invariant: strangers are among them.
        self._idle: dict[bytes, Session] = {}
        self._traffic = traffic
        self._contests = Contests()

    def admit(self, session: Session, *, over: bool = False) -> Session:
        """Take a new session in; an older one of the same instance is superseded. Once the run is over, two
        devices have nothing to take from each other: both are told.

        Raises DuplicateId if the id is alive in another instance, or in two devices of this one.
        """
        old = self._by_id.get(session.client_id)
        if old is not None:
            if old.watching and old.instance_id != session.instance_id:
                raise DuplicateId(
                    f"another living client uses the id {session.client_id!r}: give this one another"
                )
            if old.watching and not (old.life and old.life == session.life):
                self._contests.take(old.client_id)
            old.superseded = True
            old.changed.set()
        if session.client_id in self._contests and not over:
            raise DuplicateId(_TWO.format(session.client_id))
        if old is not None:
            self.remove(old)
            session.upload = old.upload  # it may still hold the spool
        session.traffic = self._traffic.of(session.client_id)
        self._by_token[session.token] = session
        self._by_id[session.client_id] = session
        if session.saves:
            self._keeping.add(session.client_id)
        if not session.watching:
            self._idle[session.token] = session
        return session

    def watch(self, session: Session) -> None:
        """A stream of its begins."""
        session.watching += 1
        self._idle.pop(session.token, None)

    def unwatch(self, session: Session) -> Session | None:
        """A stream of its has ended; return the client's session now."""
        session.watching -= 1
        if not session.watching and session.token in self._by_token:
            self._idle[session.token] = session
        return self._by_id.get(session.client_id)

    def find(self, token: bytes) -> Session | None:
        """Return the session of a call; its client is seen by this."""
        session = self._by_token.get(token)
        if session is not None:
            session.seen = time.monotonic()
        return session

    def by_id(self, client_id: str) -> Session | None:
        return self._by_id.get(client_id)

    def remove(self, session: Session) -> None:
        self._by_token.pop(session.token, None)
        self._idle.pop(session.token, None)
        if self._by_id.get(session.client_id) is session:
            del self._by_id[session.client_id]
            self._keeping.discard(session.client_id)

    def forget_strangers(self, seated: Callable[[str], bool], free: int) -> None:
        """Ids that join and never take a seat shall not fill the memory: the oldest would join again.

        Whoever watches waits for a seat, and is no stranger. So many seats are free: as many more may be on
        their way from Join to Watch at once, and whoever comes has the moment in which a thousand others do.
        """
        while len(self._idle) > MOST_STRANGERS + free:
            oldest = next(iter(self._idle.values()))
            del self._idle[oldest.token]
            if not seated(oldest.client_id):
                self.remove(oldest)
                self._traffic.strike(oldest.client_id)

    def publish(self, clients: Iterable[str] | None = None, *, offered: bool = False) -> None:
        """Let these streams look at their views again, or all; `offered`: those that keep a model, too."""
        whom = self._by_id if clients is None else [*clients, *(self._keeping if offered else ())]
        for session in filter(None, map(self._by_id.get, whom)):
            session.changed.set()

    def let_go(self, clients: Iterable[str]) -> None:
        """End the uploads of these."""
        for client_id in clients:
            session = self._by_id.get(client_id)
            if session is not None and session.upload is not None:
                session.upload.cancel(CLOSED)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_id.values()))
