"""The account: what a client's last rounds took, kept until the server has heard of it."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from edgeflock.client.link.contact import Contact
from edgeflock.client.training.meter import Meter, RoundCost
from edgeflock.v1 import aggregator_pb2 as pb

WITHIN_S = 1.0  # a round's costs wait so long for the next update's header to carry them
LAST_WORDS_S = 4.0  # that a client which has heard the end waits for its reports, twice at most
_MOST = 2  # rounds: of older ones the server takes no costs any more


class Account:
    """Costs of one client in one run. A header carries them, or a call of their own; what is lost on the way
    is told again."""

    def __init__(self, meter: Meter, contact: Contact) -> None:
        self._meter, self._contact = meter, contact
        self._owed: dict[int, RoundCost] = {}  # by round
        self._last: RoundCost | None = None  # of the newest settled round
        self._waiting: deque[tuple[float, RoundCost]] = deque()  # until when for a header, in this order

    @property
    def previous(self) -> RoundCost | None:
        """What the next header carries."""
        return self._owed.get(self._last.round) if self._last else None

    def settle(self, round: int) -> RoundCost:
        """A round has its verdict: return what it took; the next one begins."""
        cost = self._meter.finish(round)
        self._owe(cost)
        self._waiting.append((asyncio.get_running_loop().time() + WITHIN_S, cost))
        if len(self._waiting) == 1:
            self._look_again()
        return cost

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

    async def close(self) -> None:
        """The run is over: tell what is owed, and with the last round what came after its verdict."""
        await self._contact.told(LAST_WORDS_S)  # what is on its way must not come after the last word
        if self._last is not None:
            self._owe(self._last.with_rest(self._meter.finish(self._last.round)))
        self.tell()
        await self._contact.told(LAST_WORDS_S)

    def _owes(self, cost: RoundCost) -> bool:
        return self._owed.get(cost.round) is cost

    def _owe(self, cost: RoundCost) -> None:
        self._last = self._owed[cost.round] = cost
        while len(self._owed) > _MOST:
            del self._owed[min(self._owed)]

    def _tell(self, cost: RoundCost) -> None:
        if self._owes(cost):  # no header has carried it meanwhile
            self._contact.tell(pb.ReportRequest(cost=to_wire(cost)), partial(self.heard, cost))


def to_wire(cost: RoundCost | None) -> pb.RoundCost | None:
    """Return costs as a message."""
    if cost is None:
        return None
    said = cost.fields()
    del said["bytes_up"]  # the server counts that
    return pb.RoundCost(**said)
