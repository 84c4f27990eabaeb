"""Transfers: where an update goes and where a package comes from; thread, traffic and budget are inside."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from edgeflock.common.errors import FULL, CorruptPayload
from edgeflock.common.payload.checksum import Buffer
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.package import Package
from edgeflock.common.reason import Reason
from edgeflock.server.core.events import Broken
from edgeflock.server.core.refusal import Refused
from edgeflock.server.costs.rows import Row
from edgeflock.server.costs.traffic import Traffic
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.loop import in_words
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.engine.results import Results
from edgeflock.server.files.packages import Broadcast
from edgeflock.server.files.spool import SpoolEntry

CLOSED = "the round was closed while your update was on its way: ask for the verdict"
_ROUND_OVER = Refused(Reason.BUSY, "the round is over: look at your view again")
_RETRY_SPACE_MS = 2000
_PASSING = {
    **dict.fromkeys(FULL, Reason.NO_SPACE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN), Reason.BUSY),
}


@dataclass(frozen=True)
class Header:
    """What is said of an update before its bytes."""

    described: Description
    costs: Row = field(default_factory=dict)  # as stated
    used_up: str = ""  # the allowance that ended the training early
    held_up_s: float = 0.0  # for which tests of clients' own models have held it up
    busy_s: float = 0.0  # in which its process has trained anybody in this round

    @property
    def round(self) -> int:
        return self.described.round

    @property
    def package(self) -> Package:
        return self.described.package


class Landing(Protocol):
    """Where one upload goes, here, or at a gate."""

    @property
    def held(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def full(self) -> bool: ...
    async def begin(self) -> Refused | None: ...
    async def append(
        self, offset: int, data: Buffer, crc32c: int, *, message_bytes: int = 0
    ) -> Refused | None: ...
    async def complete(self) -> Refused | None: ...


class Slot:
    """Where one upload goes: its entry in the spool, with thread, traffic and budget of bytes.

    Whoever fills it calls `begin`, then `append` until `held` is `size`, then `complete`; each says why not.
    """

    def __init__(
        self,
        engine: Engine,
        opened: OpenRound,
        seat: int,
        header: Header,
        entry: SpoolEntry,
        traffic: Traffic,
    ) -> None:
        self._engine, self._opened, self._seat = engine, opened, seat
        self._header, self._entry, self._traffic = header, entry, traffic
        self._arrival = entry.arrival

    @property
    def seat(self) -> int:
        return self._seat

    @property
    def package(self) -> Package:
        return self._header.package

    @property
    def limit(self) -> int:
        """The most bytes that an update of the round may have."""
        return self._opened.work.upload_limit

    @property
    def held(self) -> int:
        """Bytes that are here, and good."""
        return self._arrival.held

    @property
    def size(self) -> int:
        """Bytes of the whole update."""
        return self._header.package.size_bytes

    @property
    def full(self) -> bool:
        """Whether this very update is complete and checked already."""
        return self._entry.complete

    async def begin(self) -> Refused | None:
        """Take the header down; what is held of this very update stays."""
        if over := self._over():
            return over
        self._state()
        self._arrival = self._entry.begin(self._header.described.to_bytes())
        return None if self.size else await self._on_disk(self._arrival.note)

    def lies_at(self, path: str) -> Refused | None:
        """All of it lies in that file, whole and checked by whoever wrote it: the round has this update."""
        if over := self._over():
            return over
        self._state()
        self._entry.lies_at(path, self._header.described.to_bytes())
        self._engine.received(self._seat, self._header.described)
        return None

    def _state(self) -> None:
        scalars, header = self._header.package.scalars, self._header
        stated = {name: int(scalars[name]) for name in ("samples", "steps")}
        costs = {**stated, **header.costs}
        self._opened.state(self._seat, costs, header.used_up, header.held_up_s, header.busy_s)

    async def append(
        self, offset: int, data: Buffer, crc32c: int, *, message_bytes: int = 0
    ) -> Refused | None:
        """Take the next bytes, with the checksum of all up to their end."""
        package, size = self._header.package, memoryview(data).nbytes
        self._traffic.received(message_bytes, size, package, offset)
        last = offset + size == package.size_bytes
        refused = await self._on_disk(self._arrival.append, offset, data, crc32c, last)
        self._engine.admits()  # if not, the round is over now
        return refused or self._over()

    async def complete(self) -> Refused | None:
        """All is here: from now on the round has this update."""
        if over := self._over():
            return over
        package = self._header.package
        if self._arrival.running != package.crc32c:
            self._entry.forget(self._arrival)
            words = "the payload is complete, but not the one that its header describes"
            return Refused(Reason.BAD_TRANSFER, words)
        self._engine.received(self._seat, self._header.described)
        return None

    async def _on_disk(self, work: Callable[..., object], *arguments: object) -> Refused | None:
        """Do it in a thread; return why it cannot be done."""
        try:
            await self._engine.means.threads.write(work, *arguments)
        except CorruptPayload as error:
            self._entry.forget(self._arrival)
            return Refused(Reason.BAD_TRANSFER, str(error))
        except OSError as error:
            return undone(self._engine, "write your update", error)
        return None

    def _over(self) -> Refused | None:
        """The round may have been closed since the header was answered: its verdict is on the way.

        Or another update of the same member has come in place of this one.
        """
        engine = self._engine
        wanted = engine.opened is self._opened and engine.machine.has_task(self._seat)
        if wanted and self._entry.arrival is self._arrival:
            return None
        return Refused(Reason.BUSY, CLOSED)


class Download:
    """One package on its way to a client, as long as its round is open and the budget has room."""

    def __init__(self, engine: Engine, opened: OpenRound, broadcast: Broadcast, traffic: Traffic) -> None:
        self._engine, self._opened, self._broadcast = engine, opened, broadcast
        self._traffic = traffic
        self.package = broadcast.package
        self.shared = broadcast.shared

    async def message(self, offset: int, size: int) -> bytes | Refused:
        """Return the message with the bytes from there on, at most so many, or why there is none."""
        engine, payload = self._engine, min(size, self.package.size_bytes - offset)
        if engine.opened is not self._opened or not engine.admits(payload):
            return _ROUND_OVER
        message = self._broadcast.cached(offset, size)
        if message is None:
            try:
                message = await engine.means.threads.write(self._broadcast.message, offset, size)
            except OSError as error:
                return undone(engine, "read your package", error)
        self._traffic.sent(len(message), payload, self.package, offset)
        return message


class ResultDownload:
    """A model on its way to a device that keeps it: of no round, and not held up by budgets."""

    def __init__(
        self, engine: Engine, results: Results, broadcast: Broadcast, traffic: Traffic | None
    ) -> None:
        """Without `traffic` whoever brings it says what has passed."""
        self._engine, self._results, self._broadcast = engine, results, broadcast
        self._traffic = traffic
        self.package = broadcast.package
        self.shared = broadcast.shared

    async def message(self, offset: int, size: int) -> bytes | Refused:
        """Return the message with the bytes from there on, at most so many, or why there is none."""
        message = self._broadcast.cached(offset, size)
        if message is None:
            try:
                message = await self._engine.means.threads.write(self._broadcast.message, offset, size)
            except OSError as error:
                return undone(self._engine, "read your package", error)
        if self._traffic is not None:
            self.passed(self._traffic, len(message), min(size, self.package.size_bytes - offset))
        return message

    def passed(self, traffic: Traffic, message_bytes: int, payload: int) -> None:
        """Note that a message has gone: the model itself is in no figure of a round."""
        traffic.sent(message_bytes - payload)
        self._results.sent(payload)


def undone(engine: Engine, what: str, error: OSError) -> Refused:
    """What passes is met by another try; a disk that fails ends this process (DESIGN rule 7)."""
    reason = _PASSING.get(error.errno or 0, Reason.DRAINING)
    if reason is Reason.DRAINING:
        engine.post(Broken(in_words(error), time.monotonic()))  # the next start sees what is sound
    return Refused(reason, f"the server cannot {what}: {error.strerror}", _RETRY_SPACE_MS)
