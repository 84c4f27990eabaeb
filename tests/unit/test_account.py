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
        self.taken: list[Callable[[], None]] = []

    def tell(self, cost: RoundCost, heard: Callable[[], None]) -> None:
        self.rounds.append(cost.round)
        self.taken.append(heard)
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


def test_what_is_owed_is_that_of_the_last_two_rounds_and_the_newest_goes_with_a_header() -> None:
    async def check() -> None:
        server = Heard()
        mine = Account(server.tell)
        assert mine.previous is None
        for round in (1, 2, 3):
            mine.owe(cost(round))
        assert mine.previous == cost(3)
        mine.heard(None)
        mine.heard(cost(3))  # of another one, as of a life before
        mine.tell()
        assert server.rounds == [2, 3]
        mine.heard(mine.previous)
        assert mine.previous is None
        mine.tell()
        assert server.rounds == [2, 3, 2]

    quickly(check())


def test_at_the_end_the_last_round_is_told_with_what_came_after_its_verdict() -> None:
    told: list[RoundCost] = []

    async def check(rounds: int, *, heard: bool) -> list[RoundCost]:
        told.clear()
        mine = Account(lambda cost, _: told.append(cost))
        for round in range(1, rounds + 1):
            mine.owe(cost(round))
        if heard:
            mine.heard(mine.previous)
        mine.close(cost(0))
        return list(told)

    assert quickly(check(0, heard=False)) == []
    (last,) = quickly(check(1, heard=True))
    assert (last.round, last.train_s, last.wait_s) == (1, 2.0, 0.5)
    assert [one.round for one in quickly(check(2, heard=False))] == [1, 2]


def test_at_the_end_what_came_to_nothing_is_told_with_the_round_that_was_refused() -> None:
    told: list[RoundCost] = []

    async def check(settled: int, refused: int) -> list[tuple[int, float]]:
        told.clear()
        mine = Account(lambda cost, _: told.append(cost))
        if settled:
            mine.owe(cost(settled))
        mine.refuse(refused)
        mine.close(cost(0))
        return [(one.round, one.train_s) for one in told]

    assert quickly(check(settled=0, refused=3)) == [(3, 1.0)]
    assert quickly(check(settled=2, refused=3)) == [(2, 1.0), (3, 1.0)]
    assert quickly(check(settled=4, refused=3)) == [(4, 2.0)]


def test_what_was_heard_meanwhile_is_not_told_in_its_time() -> None:
    async def check() -> None:
        server = Heard()
        mine = Account(server.tell)
        mine.owe(cost(1))
        mine.tell()
        server.taken[0]()
        await asyncio.sleep(5 * WITHIN_S)
        assert server.rounds == [1]

    quickly(check())
