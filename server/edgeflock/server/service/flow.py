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
AIR = 8 << 20  # bytes of small transfers that may be on their way at once,
SMALL_LOOK_S = 0.25  # unless it takes longer than this until they are through: then networks are slow
TINY = 16 << 10  # bytes that cost no more than the stream that they go on
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

    def __init__(
        self, most: int = TURNS, *, look_s: float = LOOK_S, quick: int = QUICK, free: int = SMALL_CHUNK
    ) -> None:
        """A transfer of so many `free` bytes needs none."""
        self._left, self._look_s, self._quick, self._free = most, look_s, quick, free
        self._waiting: deque[asyncio.Future[bool]] = deque()  # for a turn, or for going on without
        self._seen = 0  # of those, who was there at the last look
        self._moved = self._before = 0  # bytes, in all and at the last look
        self._looking: asyncio.TimerHandle | None = None  # one for all who wait

    def moved(self, count: int) -> None:
        """Note bytes of any stream, with a turn or without."""
        self._moved += count

    @asynccontextmanager
    async def one(self, size_bytes: int) -> AsyncIterator[bool]:
        """Give the block a turn when one is free, or none, and say which; a small transfer needs none."""
        if size_bytes <= self._free:
            yield True
            return
        mine = await self._take()
        try:
            yield mine
        finally:
            if mine:
                self._give_back()

    async def _take(self) -> bool:
        if self._left:
            self._left -= 1
            return True
        mine: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        self._look_later()
        try:
            return await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled() and mine.result():
                self._give_back()
            raise

    def _look_later(self) -> None:
        if self._looking is None:
            self._before = self._moved
            self._looking = asyncio.get_running_loop().call_later(self._look_s, self._look)

    def _look(self) -> None:
        """Where the others were slow since the last look, who waited then goes on without a turn."""
        self._looking = None
        if not self._all_are_quick():
            for _ in range(self._seen):
                self._next(turn=False)
        self._seen = len(self._waiting)
        if self._waiting:
            self._look_later()

    def _all_are_quick(self) -> bool:
        return self._moved - self._before >= self._quick

    def _give_back(self) -> None:
        while self._waiting:
            if self._next(turn=True):
                return
        self._left += 1

    def _next(self, *, turn: bool) -> bool:
        """Let the first who waits go on; return whether it still did."""
        mine, self._seen = self._waiting.popleft(), max(0, self._seen - 1)
        if waits := not mine.done():
            mine.set_result(turn)
        return waits


def small_turns() -> Turns:
    """Return the turns of transfers of at most one small chunk: of all clients at once they would be as many
    copies of the model as there are clients."""
    return Turns(AIR // SMALL_CHUNK, look_s=SMALL_LOOK_S, quick=AIR, free=TINY)


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
