"""Attempts over many lines: whatever a broken one does to a call, the next one is used."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, cast

import grpc
import pytest

from edgeflock.client.costs import RoundCost
from edgeflock.client.deciding.backoff import Backoff
from edgeflock.client.link.contact import Contact
from edgeflock.client.link.line import Line
from edgeflock.client.link.pace import Journey, Pace
from edgeflock.client.link.stub import Stub
from edgeflock.client.link.trust import Trust
from edgeflock.client.protocol import Interrupted, ServerRefused, Unreached
from edgeflock.client.training.gauge import Gauge
from edgeflock.client.training.meter import Activity, Meter
from edgeflock.common.reason import Reason
from edgeflock.common.wire.address import parse_address
from edgeflock.v1 import aggregator_pb2 as pb

WAIT_S = 10


def line() -> Line:
    return Line(cast(Stub, None), b"session", Trust(parse_address("127.0.0.1:1", "--server")))


async def hangs(first: Line) -> str:
    """As gRPC's `write` does when the connection breaks in the instant in which the call begins."""
    asyncio.get_running_loop().call_soon(first.lose, Interrupted("the watch has noticed"))
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return await never


async def is_cancelled(first: Line) -> str:
    """As a call is whose channel another client has closed."""
    raise asyncio.CancelledError


async def is_too_late(first: Line) -> str:
    raise grpc.aio.UsageError("Channel is closed.")


@pytest.mark.parametrize("trouble", [hangs, is_cancelled, is_too_late])
def test_a_call_that_its_line_takes_along_is_made_again_on_the_next(
    trouble: Callable[[Line], Awaitable[str]],
) -> None:
    async def talk() -> tuple[str, bool]:
        contact, first, second = Contact(Backoff(Random(1)), Meter(alone=True)), line(), line()

        async def operation(current: Line) -> str:
            return "done" if current is second else await trouble(current)

        contact.attach(first)
        job = asyncio.create_task(contact.attempt(operation, lambda: 0, Journey()))
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait([first.lost])
            contact.detach()
            contact.attach(second)
            return await job, first.up

    assert asyncio.run(talk()) == ("done", False)


def test_a_refusal_for_good_is_not_asked_about_again() -> None:
    async def talk() -> int:
        asked = 0

        async def operation(current: Line) -> None:
            nonlocal asked
            asked += 1
            raise ServerRefused(Reason.WRONG_LAYOUT, "another layout")

        contact = Contact(Backoff(Random(1)), Meter(alone=True))
        contact.attach(line())
        with pytest.raises(ServerRefused, match="another layout"):
            async with asyncio.timeout(WAIT_S):
                await contact.attempt(operation, lambda: 0, Journey())
        return asked

    assert asyncio.run(talk()) == 1


def test_a_refusal_for_now_is_asked_about_again_and_not_before_its_time() -> None:
    async def talk() -> float:
        times: list[float] = []

        async def operation(current: Line) -> None:
            times.append(asyncio.get_running_loop().time())
            if len(times) == 1:
                raise ServerRefused(Reason.BUSY, "later", temporary=True, retry_after_ms=60)

        contact = Contact(Backoff(Random(1)), Meter(alone=True))
        contact.attach(line())
        async with asyncio.timeout(WAIT_S):
            await contact.attempt(operation, lambda: 0, Journey())
        first, second = times
        return second - first

    assert asyncio.run(talk()) >= 0.06


class Listening(Line):
    """A line whose server takes its time with every report."""

    def __init__(self) -> None:
        super().__init__(cast(Stub, None), b"session", Trust(parse_address("127.0.0.1:1", "--server")))
        self.taken: list[pb.ReportRequest] = []
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def report(self, request: pb.ReportRequest, within_s: float = WAIT_S) -> None:
        self.asked.set()
        await self.answer.wait()
        for _ in range(9):  # it takes a few turns of the loop
            await asyncio.sleep(0)
        self.taken.append(request)


def test_who_is_told_to_go_goes_when_its_last_words_are_taken() -> None:
    cost = RoundCost(3, 0.1, 1.0, 0.2, 0.3, 0.9, 1000)
    none = RoundCost(3, 0.0, 0.0, 0.0, 0.0, 0.0, 0)

    async def talk() -> list[str | None]:
        contact, listening = Contact(Backoff(Random(1)), Meter(alone=True)), Listening()
        contact.attach(listening)
        contact.progress(3, done=1, total=2, cpu_s=0.5, temperature_c=None)
        contact.owe(cost)
        async with asyncio.timeout(WAIT_S):
            leaving = asyncio.create_task(contact.close(lambda: none))
            await listening.asked.wait()
            assert not leaving.done()
            listening.answer.set()
            await leaving
        return [request.WhichOneof("report") for request in listening.taken]

    assert asyncio.run(talk()) == ["progress", "cost"]


def test_a_job_that_is_stopped_takes_its_call_along() -> None:
    async def talk() -> list[str]:
        ends: list[str] = []
        began = asyncio.Event()

        async def operation(current: Line) -> Any:
            began.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ends.append("cleaned up")

        contact = Contact(Backoff(Random(1)), Meter(alone=True))
        contact.attach(line())
        job = asyncio.create_task(contact.attempt(operation, lambda: 0, Journey()))
        async with asyncio.timeout(WAIT_S):
            await began.wait()
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
        assert job.cancelled()
        return ends

    assert asyncio.run(talk()) == ["cleaned up"]


def test_waiting_for_a_line_is_waiting_and_so_is_a_line_on_which_nothing_moves() -> None:
    """Cut in mid-transfer: what came before counts as delivering, not the silence until it is noticed, nor
    the time until there is another line; stated watts are drawn for the delivering alone."""
    silence_s, away_s = 0.3, 0.3

    async def talk() -> RoundCost:
        meter = Meter(alone=True, gauge=Gauge(watts=10.0))
        contact, first, second, update = Contact(Backoff(Random(1)), meter), line(), line(), Journey()

        async def operation(current: Line) -> str:
            update.moved()
            if current is first:
                await asyncio.sleep(silence_s)
                raise Unreached("the keepalive has noticed")
            return "done"

        contact.attach(first)
        meter.enter(Activity.DELIVER)
        job = asyncio.create_task(contact.attempt(operation, lambda: 0, update))
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait([first.lost])
            await asyncio.sleep(away_s)
            contact.attach(second)
            assert await job == "done"
        return meter.finish(1)

    cost = asyncio.run(talk())
    assert cost.wait_s >= silence_s + away_s
    assert cost.deliver_s < silence_s / 2
    assert cost.readings.energy_j == pytest.approx(10.0 * cost.deliver_s)


def test_a_silence_that_nobody_notices_is_waiting_where_the_pace_is_known() -> None:
    """The packets come again before any line is lost; a slow link is slow, and at work."""
    now = [0.0]
    pace = Pace(lambda: now[0])
    first = pace.journey(1000)
    now[0] = 30.0
    first.moved()
    assert first.idle_s == 0.0  # it may be as slow as that
    pace.learn(first, 1000)
    for took_s, silence_s in ((122.0, 122.0), (100.0, 0.0)):
        journey = pace.journey(1000)
        now[0] += took_s
        journey.moved()
        assert journey.idle_s == silence_s
        pace.learn(journey, 1000)  # of one with an outage nothing
    quick = pace.journey(10)  # the last undisturbed one took 0.1 s a byte
    now[0] += 6.0
    quick.moved()
    assert quick.idle_s == 6.0
