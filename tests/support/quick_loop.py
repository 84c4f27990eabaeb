"""An event loop in which a second takes no time: what waits is waited for, and nobody waits."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Clock(selectors.DefaultSelector):
    """Where others would wait, its time goes on instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        found = super().select(0)
        if timeout is None and not found:
            raise AssertionError("all wait for each other: nothing will ever happen here")
        return found


class QuickLoop(asyncio.SelectorEventLoop):
    """A loop of its own time, for work without threads."""

    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def quickly(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end; whatever it waits for has come at once."""
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        return runner.run(work)
