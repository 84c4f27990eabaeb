"""Flow: how much of what is uploaded may be in the air, who goes first, and how long one waits for a sender.

Credit. The sum of outstanding credit is the memory bound of all uploads (DESIGN rules 5 and 6). Every stream
may always hold one small chunk; more goes to streams that have used theirs up.

Turns. A dozen streams at once push each other out of the caches and make each other wait for a core: one
after the other they all are through sooner. Where networks are what limits, waiting would help nobody: then
whoever has no turn goes on without.

Patience. A sender of many small messages is held to the same rate as one of large chunks.

Credit and patience are pure: neither waits nor looks at a clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from edgeflock.common.wire.transport import CHUNK, SMALL_CHUNK

TURNS = 4  # streams at a time
LOOK_S = 0.05  # so often those who wait look how fast the others are
QUICK = 16 << 20  # bytes in that time, in all: no slower than this machine
SLOWEST_BYTES_PER_S = 2048  # over twice a chunk's time, while credit is unused


# ------------------------------------------------------------------------------- credit


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

    def __init__(self, budget_bytes: int, *, window_bytes: int = 4 * CHUNK) -> None:
        self.budget = budget_bytes
        self.window = window_bytes
        self.outstanding = 0

    def admit(self, held: int, size: int) -> Stream:
        """Open a stream that goes on at `held`; it can always send one small chunk.

        After an interruption the window is small: what is in the air when the next one comes is sent twice.
        """
        stream = Stream(held, held, size, min(self.window, 2 * SMALL_CHUNK) if held else self.window)
        self._grant(stream, SMALL_CHUNK)
        self.extend(stream)
        return stream

    def spooled(self, stream: Stream, count: int) -> bool:
        """Take note of bytes written; return whether the stream's limit has grown."""
        stream.held += count
        self.outstanding -= count
        before = stream.limit
        if stream.outstanding <= stream.window // 2:
            self.extend(stream)
        if stream.outstanding < SMALL_CHUNK:
            self._grant(stream, SMALL_CHUNK - stream.outstanding)
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


# ------------------------------------------------------------------------------- turns


class Turns:
    """Hands out turns in the order in which they are asked for."""

    def __init__(self, most: int = TURNS, *, look_s: float = LOOK_S, quick: int = QUICK) -> None:
        self._free, self._look_s, self._quick = most, look_s, quick
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._moved = 0

    def moved(self, count: int) -> None:
        """Note bytes of any stream, with a turn or without."""
        self._moved += count

    @asynccontextmanager
    async def one(self, size_bytes: int) -> AsyncIterator[bool]:
        """Give the block a turn when one is free, or none, and say which; a small transfer needs none."""
        if size_bytes <= SMALL_CHUNK:
            yield True
            return
        mine = await self._take()
        try:
            yield mine
        finally:
            if mine:
                self._give_back()

    async def _take(self) -> bool:
        if self._free:
            self._free -= 1
            return True
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            while not mine.done() and await self._all_are_quick(mine):
                pass
        except asyncio.CancelledError:
            if mine.done():
                self._give_back()
            raise
        finally:
            if not mine.done():
                self._waiting.remove(mine)
        return mine.done()

    async def _all_are_quick(self, mine: asyncio.Future[None]) -> bool:
        before = self._moved
        await asyncio.wait((mine,), timeout=self._look_s)
        return self._moved - before >= self._quick

    def _give_back(self) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1


# ------------------------------------------------------------------------------- patience


class Patience:
    """Seconds of waiting that a sender has left; what it sends earns it more.

    So a sender of many small messages is held to the same rate as one of large chunks.
    """

    def __init__(self, chunk_bytes: int) -> None:
        self.most_s = self.left_s = 2 * chunk_bytes / SLOWEST_BYTES_PER_S

    def waited(self, seconds: float) -> None:
        self.left_s -= seconds

    def received(self, size: int) -> None:
        self.left_s = min(self.most_s, self.left_s + size / SLOWEST_BYTES_PER_S)
