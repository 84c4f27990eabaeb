"""Traffic: bytes that crossed the wire with one client since the last commit, by what they held. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from edgeflock.common.framing import framed
from edgeflock.common.package import Package

UNKNOWN = ("unknown", "unknown")  # bytes that belong to no bundle: beyond the end of their package
DOWN, UP = "down", "up"
_NOTHING = Package(())


@dataclass
class Traffic:
    """Bytes of one client. Those of the bundles add up to the payload, what came twice included."""

    bytes_down: int = 0  # payload
    bytes_up: int = 0
    message_bytes_down: int = 0  # with the messages around it
    message_bytes_up: int = 0
    wire_bytes_down: int = 0  # with everything around those, as `framing` estimates it
    wire_bytes_up: int = 0
    bundles: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def sent(
        self, message_bytes: int, payload: int = 0, package: Package | None = None, offset: int = 0
    ) -> None:
        """Note a message to the client, with so much of a package's payload from an offset on."""
        self.bytes_down += payload
        self.message_bytes_down += message_bytes
        self.wire_bytes_down += framed(message_bytes)
        if payload:
            self._divide(DOWN, package, offset, payload)

    def received(
        self, message_bytes: int, payload: int = 0, package: Package | None = None, offset: int = 0
    ) -> None:
        """Note a message from the client."""
        self.bytes_up += payload
        self.message_bytes_up += message_bytes
        self.wire_bytes_up += framed(message_bytes) if message_bytes else 0
        if payload:
            self._divide(UP, package, offset, payload)

    def _divide(self, way: str, package: Package | None, offset: int, size: int) -> None:
        for kind, codec, part in parts(package or _NOTHING, offset, size):
            self.bundles[way, kind, codec] += part

    def counted(self) -> dict[str, int]:
        """Return the columns of the ledger."""
        return {name: int(getattr(self, name)) for name in COLUMNS}

    def forget(self) -> None:
        """Begin again at zero."""
        for name in COLUMNS:
            setattr(self, name, 0)
        self.bundles.clear()


COLUMNS = tuple(name for name in Traffic.__dataclass_fields__ if name != "bundles")


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
