"""Traffic: bytes that crossed the wire since the last commit, by client and by what they held. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from edgeflock.common.payload.package import Package
from edgeflock.common.wire.framing import framed

UNKNOWN = ("unknown", "unknown")  # bytes that belong to no bundle: beyond the end of their package
DOWN, UP = "down", "up"
_NOTHING = Package(())
_MOST = 64  # messages that wait to be counted

_Note = tuple[int, int, Package | None, int]  # bytes of a message, of its payload; whose, and from where on


@dataclass
class Moved:
    """The payload of several clients together, both ways: a running total, asked for with every chunk."""

    payload: int = 0
    whose: set[str] = field(default_factory=set)  # of whom there is any
    testing: bool = False  # what passes now is for tests of clients' own models: no cost


@dataclass
class Traffic:
    """Bytes of one client. Those of the bundles add up to the payload, what came twice included.

    A message is only noted when it passes: to count many at a time is several times cheaper.
    """

    bytes_down: int = 0  # payload
    bytes_up: int = 0
    exam_bytes: int = 0  # of a task that tests the client's own model and nothing else: no cost
    _message_bytes_down: int = 0  # with the messages around it
    _message_bytes_up: int = 0
    _wire_bytes_down: int = 0  # with everything around those, as `framing` estimates it
    _wire_bytes_up: int = 0
    _bundles: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _down: list[_Note] = field(default_factory=list)
    _up: list[_Note] = field(default_factory=list)
    _moved: Moved = field(default_factory=Moved, compare=False)  # Invariant: this client's share is in it
    _name: str = field(default="", compare=False)  # in that

    def sent(
        self, message_bytes: int, payload: int = 0, package: Package | None = None, offset: int = 0
    ) -> None:
        """Note a message to the client, with so much of a package's payload from an offset on."""
        if payload and self._moved.testing:
            self.exam_bytes += payload
            message_bytes, payload, package = message_bytes - payload, 0, None
        self.bytes_down += payload
        self._move(payload)
        self._down.append((message_bytes, payload, package, offset))
        if len(self._down) > _MOST:
            self._count()

    def received(
        self, message_bytes: int, payload: int = 0, package: Package | None = None, offset: int = 0
    ) -> None:
        """Note a message from the client."""
        self.bytes_up += payload
        self._move(payload)
        self._up.append((message_bytes, payload, package, offset))
        if len(self._up) > _MOST:
            self._count()

    def _move(self, payload: int) -> None:
        if payload:
            self._moved.payload += payload
            self._moved.whose.add(self._name)

    def _count(self) -> None:
        for size, payload, package, offset in self._down:
            self._message_bytes_down += size
            self._wire_bytes_down += framed(size)
            self._divide(DOWN, package, offset, payload)
        for size, payload, package, offset in self._up:
            self._message_bytes_up += size
            self._wire_bytes_up += framed(size) if size else 0
            self._divide(UP, package, offset, payload)
        self._down.clear()
        self._up.clear()

    def _divide(self, way: str, package: Package | None, offset: int, size: int) -> None:
        for kind, codec, part in parts(package or _NOTHING, offset, size) if size else ():
            self._bundles[way, kind, codec] += part

    @property
    def bundles(self) -> Counter[tuple[str, str, str]]:
        """The payload by direction, kind and codec."""
        self._count()
        return self._bundles

    def counted(self) -> dict[str, int]:
        """Return the columns of the ledger."""
        self._count()
        return {
            "bytes_down": self.bytes_down,
            "bytes_up": self.bytes_up,
            "exam_bytes": self.exam_bytes,
            "message_bytes_down": self._message_bytes_down,
            "message_bytes_up": self._message_bytes_up,
            "wire_bytes_down": self._wire_bytes_down,
            "wire_bytes_up": self._wire_bytes_up,
        }

    def forget(self) -> None:
        """Begin again at zero."""
        self._moved.payload -= self.bytes_down + self.bytes_up
        self._moved.whose.discard(self._name)
        self.bytes_down = self.bytes_up = self.exam_bytes = 0
        self._message_bytes_down = self._message_bytes_up = 0
        self._wire_bytes_down = self._wire_bytes_up = 0
        for noted in (self._bundles, self._down, self._up):
            noted.clear()


class TrafficBook:
    """The traffic of all clients since the last commit; it stays when its client has gone: it was paid."""

    def __init__(self) -> None:
        self._moved = Moved()
        self._traffic: dict[str, Traffic] = {}

    @property
    def moved(self) -> int:
        """The payload of all clients, both ways."""
        return self._moved.payload

    @property
    def testing(self) -> bool:
        """Whether what passes is for tests of clients' own models, and no cost."""
        return self._moved.testing

    def test(self, testing: bool) -> None:
        """Say whether the round at hand is nothing but such a test."""
        self._moved.testing = testing

    def moving(self) -> list[str]:
        """Return of whom there is payload."""
        return sorted(self._moved.whose)

    def of(self, client_id: str) -> Traffic:
        """Return what one client moves, begun now if it is new."""
        found = self._traffic.get(client_id)
        if found is None:
            found = self._traffic[client_id] = Traffic(_moved=self._moved, _name=client_id)
        return found

    def pass_on(self, before: str, client_id: str) -> None:
        """Another client has the seat that this one had, and what is written of it."""
        if client_id not in self._traffic and (found := self._traffic.pop(before, None)) is not None:
            self._traffic[client_id] = found

    def strike(self, client_id: str) -> None:
        """Forget a client without a seat: nobody will ask, and what it still moves is nobody's."""
        found = self._traffic.pop(client_id, None)
        if found is not None:
            found.forget()
            found._moved = Moved()


def parts(package: Package, offset: int, size: int) -> Iterator[tuple[str, str, int]]:
    """Yield kind, codec and number of a payload's bytes from an offset on."""
    first, left = 0, size
    for section in package.sections:
        last = first + section.size_bytes
        part = min(last, offset + size) - max(first, offset)
        if part > 0:
            left -= part
            yield str(section.kind), str(section.codec), part
        first = last
    if left:
        yield *UNKNOWN, left
