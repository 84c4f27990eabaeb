"""An update at a gate: into its spool, then over to the coordinator; and what passes of it, noted."""

from __future__ import annotations

import errno
from collections.abc import Callable

import structlog

from edgeflock.common.errors import FULL, CorruptPayload
from edgeflock.common.payload.checksum import Buffer
from edgeflock.common.payload.package import Package
from edgeflock.common.reason import Reason
from edgeflock.server.core.refusal import Refused
from edgeflock.server.costs.traffic import Traffic
from edgeflock.server.engine.transfer import CLOSED, Header
from edgeflock.server.files.spool import SpoolEntry
from edgeflock.server.gate.hand import Hand
from edgeflock.server.gate.upstream import Ticket
from edgeflock.server.service.refusals import from_wire
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import gate_pb2 as gpb

log = structlog.get_logger()

_RETRY_MS = 2000
_MOST_NOTES = 16
_BUSY = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)


class NotedTraffic(Traffic):
    """Messages between the gate and one client, told to the coordinator: it counts them."""

    def __init__(self, ticket: Ticket) -> None:
        super().__init__()
        self._ticket, self._passed = ticket, gpb.GateMoved()

    def sent(
        self, message_bytes: int, payload: int = 0, package: Package | None = None, offset: int = 0
    ) -> None:
        self._passed.down.add(message_bytes=message_bytes, payload=payload, offset=offset)
        self._tell()

    def received(
        self, message_bytes: int, payload: int = 0, package: Package | None = None, offset: int = 0
    ) -> None:
        self._passed.up.add(message_bytes=message_bytes, payload=payload, offset=offset)
        self._tell()

    def _tell(self) -> None:
        if len(self._passed.down) + len(self._passed.up) >= _MOST_NOTES:
            self.tell()

    def tell(self) -> None:
        """Say what has passed since the last time; nobody waits for it."""
        if self._passed.down or self._passed.up:
            self._ticket.ask(gpb.Asked(moved=self._passed), now=False)
            self._passed = gpb.GateMoved()


class GateSlot:
    """Where one upload goes at a gate: its entry in the spool here, and the coordinator's word in the end."""

    def __init__(
        self, ticket: Ticket, header: Header, entry: SpoolEntry, traffic: NotedTraffic, hand: Hand, start: int
    ) -> None:
        """The coordinator has its first `start` bytes."""
        self._ticket, self._header, self._entry = ticket, header, entry
        self._traffic, self._hand, self._start = traffic, hand, start
        self._arrival = entry.arrival

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
        """Whether the round has it: else the coordinator would not have asked for it."""
        return False

    async def begin(self) -> Refused | None:
        """Take the header down; what is held of this very update stays."""
        self._arrival = self._entry.begin(self._header.described.to_bytes())
        if self.size:
            return None
        return await self._on_disk(self._arrival.note)

    async def append(
        self, offset: int, data: Buffer, crc32c: int, *, message_bytes: int = 0
    ) -> Refused | None:
        """Take the next bytes, with the checksum of all up to their end."""
        size = memoryview(data).nbytes
        self._traffic.received(message_bytes, size, self._header.package, offset)
        last = offset + size == self.size
        refused = await self._on_disk(self._arrival.append, offset, data, crc32c, last)
        if refused is None and self._entry.arrival is not self._arrival:
            return Refused(Reason.BUSY, CLOSED)
        return refused

    async def complete(self) -> Refused | None:
        """All is here: hand it over and return what the coordinator says."""
        if self._arrival.running != self._header.package.crc32c:
            self._entry.forget(self._arrival)
            words = "the payload is complete, but not the one that its header describes"
            return Refused(Reason.BAD_TRANSFER, words)
        self._traffic.tell()
        path = await self._hand.over(self._ticket, self._entry.data_path, self._start, self.size)
        self._ticket.ask(gpb.Asked(complete=gpb.GateComplete(path=path)))
        answer = pb.DeliverResponse.FromString((await self._ticket.next()).answer)
        return from_wire(answer.refusal) if answer.HasField("refusal") else None

    async def _on_disk(self, work: Callable[..., object], *arguments: object) -> Refused | None:
        """Do it in a thread; return why it cannot be done."""
        try:
            await self._hand.stock.write(work, *arguments)
        except CorruptPayload as error:
            self._entry.forget(self._arrival)
            return Refused(Reason.BAD_TRANSFER, str(error))
        except OSError as error:
            return undone(error)
        return None


def undone(error: OSError) -> Refused:
    """Another try, at this gate or another, may find room."""
    passing = {**dict.fromkeys(FULL, Reason.NO_SPACE), **dict.fromkeys(_BUSY, Reason.BUSY)}
    log.warning("gate_cannot_write", reason=error.strerror)
    reason = passing.get(error.errno or 0, Reason.DRAINING)
    return Refused(reason, f"the gate cannot write your update: {error.strerror}", _RETRY_MS)
