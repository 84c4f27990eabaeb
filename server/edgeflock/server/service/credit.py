"""Credit on uploads: how many bytes may be in the air, in all and for each stream. Pure.

The sum of outstanding credit is the memory bound of all uploads (DESIGN rules 5 and 6).
Every stream may always hold one small chunk; more goes to streams that have used theirs up.
"""

from __future__ import annotations

from dataclasses import dataclass

SMALL = 256 * 1024  # what every stream may hold, bytes
LARGE = 1024 * 1024  # a chunk on a good link, bytes


@dataclass
class Stream:
    """Credit of one upload: bytes at or beyond `limit` must not be sent yet."""

    held: int
    limit: int
    size: int
    window: int

    @property
    def outstanding(self) -> int:
        return self.limit - self.held


class CreditPool:
    """Grants credit to streams while the sum stays under the budget."""

    def __init__(self, budget_bytes: int, *, window_bytes: int = 4 * LARGE) -> None:
        self.budget = budget_bytes
        self.window = window_bytes
        self.outstanding = 0

    def admit(self, held: int, size: int) -> Stream:
        """Open a stream that goes on at `held`; it can always send one small chunk.

        After an interruption the window is small: what is in the air when the next one comes is sent twice.
        """
        stream = Stream(held, held, size, min(self.window, 2 * SMALL) if held else self.window)
        self._grant(stream, SMALL)
        self.extend(stream)
        return stream

    def spooled(self, stream: Stream, count: int) -> bool:
        """Take note of bytes written; return whether the stream's limit has grown."""
        stream.held += count
        self.outstanding -= count
        before = stream.limit
        if stream.outstanding <= stream.window // 2:
            self.extend(stream)
        if stream.outstanding < SMALL:
            self._grant(stream, SMALL - stream.outstanding)
        return stream.limit > before

    def extend(self, stream: Stream) -> None:
        """Raise the stream's limit to a full window, as far as the budget allows."""
        room = max(0, self.budget - self.outstanding)
        self._grant(stream, min(stream.window - stream.outstanding, room))

    def close(self, stream: Stream) -> None:
        """Take back what was granted and not used."""
        self.outstanding -= stream.outstanding
        stream.limit = stream.held

    def _grant(self, stream: Stream, count: int) -> None:
        count = max(0, min(count, stream.size - stream.limit))
        stream.limit += count
        self.outstanding += count
