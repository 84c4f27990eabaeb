"""The watch over the budgets while a round is at hand: a timer for time, a look at bytes before they pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from edgeflock.server.costs.budget import Budget, shown

_EVERY_S = 2.0  # what a kill may cost the books, and how often the CPU time is looked at


class Limits:
    """Tells when a limit is reached in the midst of a round; lives on the event loop."""

    def __init__(
        self,
        budget: Budget,
        *,
        used: Callable[[], Mapping[str, float]],
        own: Callable[[], Collection[str]],  # resources that the method itself counts
        tell: Callable[[str], None],
        note: Callable[[], None],
    ) -> None:
        self._budget, self._used, self._own, self._tell, self._note = budget, used, own, tell, note
        self._timer: asyncio.TimerHandle | None = None
        self._over = False  # it is told: nothing more passes

    def begin(self) -> None:
        """A round is being opened."""
        if self._budget.limits and self._timer is None and not self._reached(self._used()):
            self._wait(self._used())

    def rest(self) -> None:
        """No round is at hand."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def admits(self, size: int = 0) -> bool:
        """Whether that many bytes more may pass, none: whether those that have passed were not too many."""
        limit = self._budget.limits.get("bytes")
        if self._over or limit is None:
            return not self._over
        used = self._used()["bytes"]
        if used + size <= limit:
            return True
        more = f", and a message has {shown('bytes', size)}" if size else ""
        self._say(f"the budget of bytes is used up: {shown('bytes', used)} of {shown('bytes', limit)}{more}")
        return False

    def bytes_left(self) -> float:
        limit = self._budget.limits.get("bytes")
        return float("inf") if limit is None else limit - self._used()["bytes"]

    def _reached(self, used: Mapping[str, float]) -> bool:
        reason = self._budget.reached(used, self._own())
        if reason:
            self._say(reason)
        return bool(reason)

    def _say(self, reason: str) -> None:
        self._over = True
        self.rest()
        self._tell(reason)

    def _wait(self, used: Mapping[str, float]) -> None:
        time = self._budget.limits.get("time")
        left = _EVERY_S if time is None or "time" in self._own() else max(0.0, time - used["time"])
        self._timer = asyncio.get_running_loop().call_later(min(left, _EVERY_S), self._look)

    def _look(self) -> None:
        used = self._used()
        self._note()
        if not self._reached(used):
            self._wait(used)
