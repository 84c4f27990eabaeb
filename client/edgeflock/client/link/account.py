"""The account: what a client's last rounds took, kept until the server has heard of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from edgeflock.client.costs import RoundCost

WITHIN_S = 1.0  # a round's costs wait so long for the next update's header to carry them
_MOST = 2  # rounds: of older ones the server takes no costs any more

Tell = Callable[[RoundCost, Callable[[], None]], None]  # sends costs, and calls back when they were heard


class Account:
    """Costs of one client in one run. A header carries them, or a call of their own; what is lost on the way
    is told again."""

    def __init__(self, tell: Tell) -> None:
        self._send = tell
        self._owed: dict[int, RoundCost] = {}  # by round
        self._last: RoundCost | None = None  # of the newest settled round
        self._refused = 0  # the newest round without an update, which has no verdict
        self._waiting: deque[tuple[float, RoundCost]] = deque()  # until when for a header, in this order

    @property
    def previous(self) -> RoundCost | None:
        """What the next header carries."""
        return self._owed.get(self._last.round) if self._last else None

    def owe(self, cost: RoundCost) -> None:
        """A round has its verdict: this is what it took."""
        self._owe(cost)
        self._waiting.append((asyncio.get_running_loop().time() + WITHIN_S, cost))
        if len(self._waiting) == 1:
            self._look_again()

    def _look_again(self) -> None:
        asyncio.get_running_loop().call_at(self._waiting[0][0], self._look)

    def _look(self) -> None:
        """Tell what has waited long enough; most of it a header has carried meanwhile."""
        now = asyncio.get_running_loop().time()
        while self._waiting and (self._waiting[0][0] <= now or not self._owes(self._waiting[0][1])):
            self._tell(self._waiting.popleft()[1])
        if self._waiting:
            self._look_again()

    def heard(self, cost: RoundCost | None) -> None:
        """The server has these."""
        if cost is not None and self._owes(cost):
            del self._owed[cost.round]

    def tell(self) -> None:
        """Tell all that is owed in calls of its own."""
        for cost in tuple(self._owed.values()):
            self._tell(cost)

    def refuse(self, round: int) -> None:
        """There will be no verdict: what it took is told with the next that has one, or at the end."""
        self._refused = round

    def close(self, rest: RoundCost) -> None:
        """The run is over: tell what is owed, and what came after the last verdict with the newest round."""
        if self._refused > (self._last.round if self._last else 0):
            self._owe(rest._replace(round=self._refused))
        elif self._last is not None:
            self._owe(self._last.with_rest(rest))
        self.tell()

    def _owes(self, cost: RoundCost) -> bool:
        return self._owed.get(cost.round) is cost

    def _owe(self, cost: RoundCost) -> None:
        self._last = self._owed[cost.round] = cost
        while len(self._owed) > _MOST:
            del self._owed[min(self._owed)]

    def _tell(self, cost: RoundCost) -> None:
        if self._owes(cost):  # no header has carried it meanwhile
            self._send(cost, partial(self.heard, cost))
