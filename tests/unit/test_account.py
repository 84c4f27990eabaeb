"""What a round took is told once: by the next header, or by a call of its own when it has waited enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from edgeflock.client.costs import RoundCost
from edgeflock.client.link.account import WITHIN_S, Account
from support.quick_loop import quickly


class Heard:
    """Keeps what it is told, and when."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.rounds: list[int] = []

    def tell(self, cost: RoundCost, heard: Callable[[], None]) -> None:
        self.rounds.append(cost.round)
        self.at.append(asyncio.get_running_loop().time())


def cost(round: int) -> RoundCost:
    return RoundCost(round, 0.5, 1.0, 0.25, 0.25, 1.0, 1000)


def test_what_no_header_has_carried_is_told_in_its_time_and_once() -> None:
    async def check() -> None:
        server = Heard()
        mine = Account(server.tell)
        for round in (1, 2, 3):
            mine.owe(cost(round))
            if round != 2:
                mine.heard(mine.previous)
        assert server.rounds == []
        await asyncio.sleep(5 * WITHIN_S)
        assert server.rounds == [2]
        mine.owe(cost(4))  # nothing has waited meanwhile
        await asyncio.sleep(5 * WITHIN_S)
        assert server.rounds == [2, 4]

    quickly(check())


def test_each_round_waits_from_its_own_verdict_on() -> None:
    async def check() -> None:
        server = Heard()
        mine = Account(server.tell)
        mine.owe(cost(1))
        await asyncio.sleep(0.6 * WITHIN_S)
        mine.owe(cost(2))
        await asyncio.sleep(5 * WITHIN_S)
        assert server.rounds == [1, 2]
        assert server.at == pytest.approx([WITHIN_S, 1.6 * WITHIN_S])

    quickly(check())
