"""Attempts over many lines: whatever a broken one does to a call, the next one is used."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any, cast

import grpc
import pytest
from structlog.testing import capture_logs

from edgeflock.client.costs import RoundCost
from edgeflock.client.deciding.backoff import Backoff
from edgeflock.client.link import contact as contacts
from edgeflock.client.link.contact import LAST_WORDS_S, Contact
from edgeflock.client.link.line import Line
from edgeflock.client.link.pace import Journey, Pace
from edgeflock.client.link.stub import Stub
from edgeflock.client.link.trust import Trust
from edgeflock.client.protocol import Interrupted, ServerRefused, Unreached
from edgeflock.client.training.gauge import Gauge
from edgeflock.client.training.meter import Activity, Meter
from edgeflock.common.payload.package import Package
from edgeflock.common.reason import Reason
from edgeflock.common.wire.address import parse_address
from edgeflock.v1 import aggregator_pb2 as pb
from support.quick_loop import quickly

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


# ------------------------------------------------------------------------------- in a time of its own


class Kept:
    """Who keeps the time of a client: for how long it waited, and what was waiting afterwards."""

    def __init__(self) -> None:
        self.idle_s = 0.0
        self.silent_s: list[float] = []

    @contextmanager
    def idle(self) -> Iterator[None]:
        began = now()
        try:
            yield
        finally:
            self.idle_s += now() - began

    def was_idle(self, seconds: float) -> None:
        self.silent_s.append(seconds)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_attempts_come_less_and_less_often_until_something_gets_on() -> None:
    """Whatever is between two attempts is waiting."""

    async def talk() -> None:
        keeping, times, reached = Kept(), list[float](), [0]
        connecting = Backoff(Random(1), attempts=9)
        contact = Contact(connecting, keeping)

        async def operation(current: Line) -> str:
            times.append(now())
            await asyncio.sleep(1.0)
            if len(times) == 12:
                reached[0] = 5
                assert connecting.attempts == 9
            if len(times) < 14:
                raise Interrupted("it ended early")
            return "done"

        contact.attach(line())
        assert await contact.attempt(operation, lambda: reached[0], Journey()) == "done"
        delays = [later - earlier - 1.0 for earlier, later in pairwise(times)]
        assert max(delays[:3]) < 0.2 * 4
        assert max(delays[5:11]) > 3.0
        assert delays[12] <= 0.2  # it had come further
        assert connecting.attempts == 0
        assert keeping.idle_s == pytest.approx(sum(delays))

    quickly(talk())


def test_why_there_is_another_attempt_is_said_with_how_far_the_last_one_came() -> None:
    async def talk() -> None:
        troubles = [ServerRefused(Reason.BUSY, "later", temporary=True), Interrupted("it ended early")]
        contact = Contact(Backoff(Random(1)), Kept())

        async def operation(current: Line) -> None:
            if troubles:
                raise troubles.pop(0)

        contact.attach(line())
        await contact.attempt(operation, lambda: 7, Journey())

    with capture_logs() as lines:
        quickly(talk())
    refused, broken = lines
    assert (refused["event"], refused["reason"]) == ("try_again", "later")
    assert 0 < refused["delay_s"] == round(refused["delay_s"], 2)
    assert (broken["event"], broken["reason"], broken["reached"]) == (
        "transfer_interrupted",
        "it ended early",
        7,
    )


def test_what_works_at_once_makes_the_next_connection_quick_again() -> None:
    async def talk() -> int:
        connecting = Backoff(Random(1), attempts=9)
        contact = Contact(connecting, Kept())

        async def operation(current: Line) -> None:
            pass

        contact.attach(line())
        await contact.attempt(operation, lambda: 0, Journey())
        return connecting.attempts

    assert quickly(talk()) == 0


@pytest.mark.parametrize("reason", [Reason.UNKNOWN_SESSION, Reason.SUPERSEDED])
def test_what_another_session_mends_waits_for_the_next_line(reason: Reason) -> None:
    async def talk() -> None:
        keeping = Kept()
        contact, first, second = Contact(Backoff(Random(1)), keeping), line(), line()

        async def operation(current: Line) -> str:
            if current is first:
                raise ServerRefused(reason, "join again", temporary=True)
            return "done"

        contact.attach(first)
        job = asyncio.create_task(contact.attempt(operation, lambda: 0, Journey()))
        await asyncio.sleep(7)
        assert not job.done()
        assert str(first.lost.exception()) == "join again"
        contact.attach(second)
        assert await job == "done"
        assert keeping.idle_s == 7

    quickly(talk())


@pytest.mark.parametrize("ends", [Unreached("reset"), grpc.aio.UsageError("Channel is closed."), None])
def test_a_silence_that_ends_with_the_line_was_waiting(ends: Exception | None) -> None:
    """From what moved last, whatever the call itself says of the end: None, it hangs."""

    async def talk() -> None:
        keeping = Kept()
        contact, first, second, update = (
            Contact(Backoff(Random(1)), keeping),
            line(),
            line(),
            Journey(clock=now),
        )

        async def operation(current: Line) -> str:
            if current is second:
                return "done"
            await asyncio.sleep(2)
            update.moved()
            await asyncio.sleep(3)
            if ends is not None:
                raise ends
            first.lose(Interrupted("the watch has noticed"))
            never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            return await never

        contact.attach(first)
        job = asyncio.create_task(contact.attempt(operation, lambda: 0, update))
        await asyncio.sleep(9)
        contact.attach(second)
        assert await job == "done"
        assert (sum(keeping.silent_s), keeping.idle_s) == (3, 4)
        assert update.idle_s == 3

    quickly(talk())


def test_a_line_that_is_told_what_is_owed_is_told_once() -> None:
    async def talk() -> None:
        contact, listening = Contact(Backoff(Random(1)), Kept()), Listening()
        contact.owe(RoundCost(3, 0.1, 1.0, 0.2, 0.3, 0.9, 1000))  # there is no line yet
        assert contact.attach(listening)
        assert not contact.attach(listening)
        await listening.asked.wait()
        listening.answer.set()
        await asyncio.sleep(5)
        assert len(listening.taken) == 1
        contact.detach()
        contact.progress(3, done=1, total=2, cpu_s=0.5, temperature_c=None)  # to nobody
        listening.lose(Interrupted("cut"))
        contact.attach(listening)
        contact.tell_owed()
        await asyncio.sleep(5)
        assert len(listening.taken) == 1

    quickly(talk())


@pytest.mark.parametrize("trouble", [Unreached("gone"), ServerRefused(Reason.BUSY, "no")])
def test_costs_that_were_not_taken_are_owed_still(trouble: Exception) -> None:
    async def talk() -> None:
        contact, failing, listening = Contact(Backoff(Random(1)), Kept()), Listening(), Listening()

        async def report(request: pb.ReportRequest, within_s: float = WAIT_S) -> None:
            raise trouble

        failing.report = report  # type: ignore[method-assign]
        contact.attach(failing)
        contact.owe(RoundCost(3, 0.1, 1.0, 0.2, 0.3, 0.9, 1000))
        await asyncio.sleep(5)
        listening.answer.set()
        contact.attach(listening)
        await contact.told(WAIT_S)
        assert [request.cost.round for request in listening.taken] == [3]

    quickly(talk())


def test_reports_are_not_waited_for_longer_than_that() -> None:
    async def talk() -> None:
        contact = Contact(Backoff(Random(1)), Kept())
        await contact.told(5)
        assert now() == 0
        contact.attach(Listening())
        contact.progress(3, done=1, total=2, cpu_s=0.5, temperature_c=None)
        await contact.told(5)
        assert now() == 5
        await contact.close(lambda: RoundCost(3, 0.0, 0.0, 0.0, 0.0, 0.0, 0))
        assert now() == 5 + 2 * LAST_WORDS_S

    quickly(talk())


def test_a_wish_that_comes_true_without_a_line_takes_the_place_and_leaves_nothing_behind() -> None:
    async def talk() -> None:
        contact, wished = Contact(Backoff(Random(1)), Kept()), asyncio.Event()

        async def wish() -> None:
            await wished.wait()

        async def operation(current: Line) -> None:
            raise AssertionError("there is no line")

        job = asyncio.create_task(contact.attempt(operation, lambda: 0, Journey(), wish))
        await asyncio.sleep(5)
        wished.set()
        with pytest.raises(Interrupted, match="another client waits"):
            await job
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    quickly(talk())


@dataclass(frozen=True)
class Parcelled:
    """An update as far as a delivery looks at it, and what becomes of it."""

    trouble: Exception | None
    sent_bytes: int

    @property
    def package(self) -> Package:
        return Package((), {}, 0)

    async def deliver(self, stub: Stub, session: bytes, outgoing: Any) -> None:
        outgoing.sent_bytes += self.sent_bytes
        if self.trouble is not None:
            raise self.trouble


def test_bytes_that_were_sent_in_vain_were_sent_and_costs_are_heard_with_what_was_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def talk() -> None:
        contact = Contact(Backoff(Random(1)), Kept())
        contact.owe(RoundCost(3, 0.1, 1.0, 0.2, 0.3, 0.9, 1000))
        listening = Listening()
        listening.answer.set()
        for update in (Parcelled(ServerRefused(Reason.LATE, "no"), 7), Parcelled(None, 5)):
            monkeypatch.setattr(contacts, "deliver", update.deliver)
            contact.attach(line())
            with suppress(ServerRefused):
                await contact.deliver(cast(Any, update), -1)
            contact.detach()
            contact.attach(listening)
            await contact.told(WAIT_S)
            listening.taken += [pb.ReportRequest()]
        assert [one.WhichOneof("report") for one in listening.taken] == ["cost", None, None]
        assert contact.take_sent_bytes() == 12
        assert contact.take_sent_bytes() == 0

    quickly(talk())
