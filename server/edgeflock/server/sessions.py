"""Who is connected: sessions by token and by client id, and the streams that are their presence."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from edgeflock.common.errors import EdgeflockError
from edgeflock.server.spool import Entry


class DuplicateId(EdgeflockError):
    """Another living instance uses the id."""


@dataclass(eq=False)
class Session:
    """One client's connection since its last Join."""

    client_id: str
    instance_id: bytes
    software: str
    device: dict[str, object]
    token: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # the view is to be sent again
    watching: int = 0  # open Watch streams; two while a half-open one is not yet noticed
    superseded: bool = False
    progress: tuple[int, int, int] = (0, 0, 0)  # round, steps done, steps in all
    seen: float = field(default_factory=time.monotonic)  # its last call or chunk
    upload: asyncio.Task[object] | None = None  # the Deliver stream in progress
    arriving: tuple[Entry, int] | None = None  # what that stream fills, and the bytes it will hold
    message_bytes_down: int = 0  # since the last commit
    message_bytes_up: int = 0
    bytes_down: int = 0
    bytes_up: int = 0

    def take_over(self, old: Session) -> None:
        """Go on with the books of the session before, and with the upload that may still hold the spool."""
        self.upload = old.upload
        for name, value in old.take_bytes().items():
            setattr(self, name, value)

    def take_bytes(self) -> dict[str, int]:
        """Return the counters and start them again."""
        names = ("bytes_down", "bytes_up", "message_bytes_down", "message_bytes_up")
        taken = {name: int(getattr(self, name)) for name in names}
        for name in names:
            setattr(self, name, 0)
        return taken


class Sessions:
    """All sessions; at most one for each client id."""

    def __init__(self) -> None:
        self._by_token: dict[bytes, Session] = {}
        self._by_id: dict[str, Session] = {}

    def admit(self, session: Session) -> Session:
        """Take a new session in; an older one of the same instance is superseded.

        Raises DuplicateId if the id is alive in another instance.
        """
        old = self._by_id.get(session.client_id)
        if old is not None:
            if old.watching and old.instance_id != session.instance_id:
                raise DuplicateId(
                    f"another living client uses the id {session.client_id!r}: give this one another"
                )
            self.remove(old)
            session.take_over(old)
            old.superseded = True
            old.changed.set()
        self._by_token[session.token] = session
        self._by_id[session.client_id] = session
        return session

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
        if self._by_id.get(session.client_id) is session:
            del self._by_id[session.client_id]

    def publish(self) -> None:
        """Let every stream look at its view again."""
        for session in self._by_id.values():
            session.changed.set()

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_id.values()))
