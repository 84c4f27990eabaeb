"""Pacing of a stream of many small words: the first goes at once, those that follow go together."""

from __future__ import annotations

import asyncio
import time

APART_S = 0.01  # of two messages: each costs both ends as much as a dozen of the words in it


class Pacing:
    """How long the next message waits for more to say."""

    def __init__(self) -> None:
        self._last = 0.0

    async def wait(self) -> None:
        """Wait until the next message may go."""
        if (left := self._last + APART_S - time.monotonic()) > 0:
            await asyncio.sleep(left)
        self._last = time.monotonic()
