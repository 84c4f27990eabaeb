"""Turns: few large transfers of one direction at a time, while this machine is what limits them.

A dozen streams at once push each other out of the caches and make each other wait for a core: one after the
other they all are through sooner. Where networks are what limits, waiting would help nobody: then whoever
has no turn goes on without.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from edgeflock.common.wire.transport import SMALL_CHUNK

MOST = 4  # streams
LOOK_S = 0.05  # so often those who wait look how fast the others are
QUICK = 16 << 20  # bytes in that time, in all: no slower than this machine


class Turns:
    """Hands out turns in the order in which they are asked for."""

    def __init__(self, most: int = MOST, *, look_s: float = LOOK_S, quick: int = QUICK) -> None:
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
