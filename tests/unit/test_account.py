"""What a round took is told once: by the next header, or by a call of its own when it has waited enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from edgeflock.client import account
from edgeflock.client.account import Account
from edgeflock.client.backoff import Backoff
from edgeflock.client.contact import Contact
from edgeflock.client.meter import Meter
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


def test_what_no_header_has_carried_is_told_in_its_time_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "WITHIN_S", 0.05)

    async def run() -> list[list[int]]:
        contact = Told()
        mine = Account(Meter(alone=False), contact)
        seen = []
        for round in (1, 2, 3):
            mine.settle(round)
            if round != 2:
                mine.heard(mine.previous)
        seen.append(list(contact.rounds))
        await asyncio.sleep(0.2)
        seen.append(list(contact.rounds))
        mine.settle(4)  # nothing has waited meanwhile
        await asyncio.sleep(0.2)
        return [*seen, contact.rounds]

    assert asyncio.run(run()) == [[], [2], [2, 4]]


def test_each_round_waits_from_its_own_verdict_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "WITHIN_S", 0.1)

    async def run() -> list[float]:
        contact, began = Told(), []
        mine = Account(Meter(alone=False), contact)
        for round in (1, 2):
            began.append(asyncio.get_running_loop().time())
            mine.settle(round)
            await asyncio.sleep(0.06)
        await asyncio.sleep(0.3)
        assert contact.rounds == [1, 2]
        return [at - since for at, since in zip(contact.at, began, strict=True)]

    assert min(asyncio.run(run())) > 0.099
