"""Attempts over many lines: whatever a broken one does to a call, the next one is used."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, cast

import grpc
import pytest

from edgeflock.client.deciding.backoff import Backoff
from edgeflock.client.link.contact import Contact
from edgeflock.client.link.line import Line
from edgeflock.client.link.stub import Stub
from edgeflock.client.link.trust import Trust
from edgeflock.client.protocol import Interrupted
from edgeflock.common.wire.address import parse_address

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
        contact, first, second = Contact(Backoff(Random(1))), line(), line()

        async def operation(current: Line) -> str:
            return "done" if current is second else await trouble(current)

        contact.attach(first)
        job = asyncio.create_task(contact.attempt(operation, lambda: 0))
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait([first.lost])
            contact.detach()
            contact.attach(second)
            return await job, first.up

    assert asyncio.run(talk()) == ("done", False)


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

        contact = Contact(Backoff(Random(1)))
        contact.attach(line())
        job = asyncio.create_task(contact.attempt(operation, lambda: 0))
        async with asyncio.timeout(WAIT_S):
            await began.wait()
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
        assert job.cancelled()
        return ends

    assert asyncio.run(talk()) == ["cleaned up"]
