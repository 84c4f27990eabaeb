"""What a round took is told once: by the next header, or by a call of its own when it has waited enough."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from edgeflock.client.deciding.backoff import Backoff
from edgeflock.client.link.account import WITHIN_S, Account
from edgeflock.client.link.contact import Contact
from edgeflock.client.training.meter import Meter
from edgeflock.v1 import aggregator_pb2 as pb


class Told(Contact):
    """Keeps what it is told to send."""

    def __init__(self) -> None:
        super().__init__(Backoff(Random(0)))
        self.at: list[float] = []
        self.rounds: list[int] = []

    def tell(self, request: pb.ReportRequest, heard: Callable[[], None] | None = None) -> None:
        self.rounds.append(request.cost.round)
        self.at.append(asyncio.get_running_loop().time())


class Clock(selectors.DefaultSelector):
    """Where others would wait, its time goes on instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        return super().select(0)


class QuickLoop(asyncio.SelectorEventLoop):
    """A loop in which a second takes no time."""

    def __init__(self) -> None:
        self._clock = Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        runner.run(work)


def test_what_no_header_has_carried_is_told_in_its_time_and_once() -> None:
    async def check() -> None:
        contact = Told()
        mine = Account(Meter(alone=False), contact)
        for round in (1, 2, 3):
            mine.settle(round)
            if round != 2:
                mine.heard(mine.previous)
        assert contact.rounds == []
        await asyncio.sleep(5 * WITHIN_S)
        assert contact.rounds == [2]
        mine.settle(4)  # nothing has waited meanwhile
        await asyncio.sleep(5 * WITHIN_S)
        assert contact.rounds == [2, 4]

    run(check())


def test_each_round_waits_from_its_own_verdict_on() -> None:
    async def check() -> None:
        contact = Told()
        mine = Account(Meter(alone=False), contact)
        mine.settle(1)
        await asyncio.sleep(0.6 * WITHIN_S)
        mine.settle(2)
        await asyncio.sleep(5 * WITHIN_S)
        assert contact.rounds == [1, 2]
        assert contact.at == pytest.approx([WITHIN_S, 1.6 * WITHIN_S])

    run(check())
